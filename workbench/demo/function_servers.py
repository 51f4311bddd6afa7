"""FunctionServers of the demo, and the tensors that check its answers."""

from collections.abc import Iterable
from typing import Any

from scheduler.dispatch.stage_graph import StageGraph
from scheduler.model.documents import Workflow

TENSOR = "x"
KEEP_ALIVE_S = 5.0  # so that a short run shows ends of pods
_PODS_MAX = 1_000  # the nodes are the limit
_Key = tuple[str, str]  # namespace, function


def server_of(function: _Key, port: int) -> dict[str, Any]:
    """Return the FunctionServer of a function, whose pods the gateway creates."""
    container = {"name": "server", "image": "example.org/model-server"}
    return {
        "metadata": {"name": function[1], "namespace": function[0]},
        "spec": {
            "function": function[1],
            "template": {"spec": {"schedulerName": "esg-scheduler", "containers": [container]}},
            "protocol": "http-binary",
            "port": port,
            "maxPods": _PODS_MAX,
            "keepAliveS": KEEP_ALIVE_S,
        },
    }


def outputs_of(function: _Key, workflows: Iterable[Workflow]) -> tuple[str, ...]:
    """Return the outputs that later stages take from a function by name, or the usual one."""
    outputs = set()
    for workflow in workflows:
        functions = {s.name: (workflow.key[0], s.function) for s in workflow.spec.stages}
        for stage in workflow.spec.stages:
            outputs |= {i.output for i in stage.inputs if functions[i.stage] == function}
    return tuple(sorted(outputs)) or (TENSOR,)


def answer_factor(workflow: Workflow) -> float:
    """Return the factor of a workflow's answers: each stage doubles the sum of its inputs."""
    stages = workflow.spec.stages
    graph = StageGraph(stages)
    factors: dict[str, float] = {}
    while len(factors) < len(stages):
        for stage, before in zip(stages, graph.predecessors, strict=True):
            sources = [i.stage for i in stage.inputs] or [stages[b].name for b in before]
            if stage.name not in factors and all(s in factors for s in sources):
                factors[stage.name] = 2 * (sum(factors[s] for s in sources) if sources else 1.0)
    last = next(i for i in range(len(stages)) if not graph.successors[i])
    return factors[stages[last].name]
