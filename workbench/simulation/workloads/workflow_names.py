"""Names of workflows as users write them."""

from collections import Counter
from collections.abc import Sequence

from scheduler.model.message_text import listed, quoted
from workbench.simulation.workloads.arrivals import WorkflowKey


def workflow_indices(workflows: Sequence[WorkflowKey]) -> dict[str, int]:
    """Return the index of each workflow by "namespace/name", and by its name if that is unique."""
    counts = Counter(name for _, name in workflows)
    alone = {name: i for i, (_, name) in enumerate(workflows) if counts[name] == 1}
    return alone | {f"{namespace}/{name}": i for i, (namespace, name) in enumerate(workflows)}


def unknown_workflow(name: str, workflows: Sequence[WorkflowKey]) -> str:
    """Return the message for a name that is none of the `workflow_indices`."""
    namespaces = sorted(namespace for namespace, listed_name in workflows if listed_name == name)
    if namespaces:
        return f"{quoted(name)} is in namespaces {listed(namespaces)}; write NAMESPACE/{name}"
    known_names = listed([f"{namespace}/{name}" for namespace, name in workflows])
    return f"{quoted(name)} is not a workflow; there are {known_names}"
