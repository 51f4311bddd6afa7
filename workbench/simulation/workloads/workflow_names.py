"""How users name workflows."""

from collections import Counter
from collections.abc import Sequence

from scheduler.model.quoting import listed, quoted
from workbench.simulation.workloads.arrivals import WorkflowKey


def spellings(workflows: Sequence[WorkflowKey]) -> dict[str, int]:
    """Index of each workflow by "namespace/name", and by its name where no other one has it."""
    counts = Counter(name for _, name in workflows)
    alone = {name: i for i, (_, name) in enumerate(workflows) if counts[name] == 1}
    return alone | {f"{namespace}/{name}": i for i, (namespace, name) in enumerate(workflows)}


def unknown(given: str, workflows: Sequence[WorkflowKey]) -> str:
    """What to tell of a name that is none of the `spellings`."""
    namespaces = sorted(namespace for namespace, name in workflows if name == given)
    if namespaces:
        return f"{quoted(given)} is in namespaces {listed(namespaces)}; write NAMESPACE/{given}"
    known = listed([f"{namespace}/{name}" for namespace, name in workflows])
    return f"{quoted(given)} is no workflow here; there are {known}"
