"""Pods of the demo, and the documents and tensors that go with them."""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from math import ceil
from typing import Any, NamedTuple

from scheduler.dispatch.sizing import PodPrices, Size, Sizing, WorkflowLoad, staffed_pods
from scheduler.dispatch.stage_graph import StageGraph
from scheduler.model import names
from scheduler.model.documents import FunctionProfile, ProfiledConfiguration, Workflow

TENSOR = "x"
_LIMIT_RATIO = 0.6  # of an SLO, for the runs of a request's stages; the rest is for waiting
_Key = tuple[str, str]  # namespace, function


class PodGroup(NamedTuple):
    """Equal pods of one function.

    Attributes:
        function: namespace and name of the function.
        configuration: their share of a GPU, with the batch that their memory is for.
        pods: their number.
    """

    function: _Key
    configuration: ProfiledConfiguration
    pods: int


def plan_pods(
    workflows: Iterable[Workflow],
    profiles: Mapping[str, FunctionProfile],
    prices: PodPrices,
    *,
    workflow_rate_per_s: float,
) -> list[PodGroup]:
    """Choose the pods of each function for a rate of requests of each workflow."""
    by_namespace: defaultdict[str, list[WorkflowLoad]] = defaultdict(list)
    for workflow in workflows:
        limit_ms = _LIMIT_RATIO * workflow.spec.slo.latency_ms
        load = WorkflowLoad(workflow, workflow_rate_per_s / 1000, limit_ms)
        by_namespace[workflow.key[0]].append(load)
    return [
        PodGroup(
            (namespace, function),
            _largest(profiles[function], size),
            ceil(staffed_pods(size.busy_pods)),
        )
        for namespace, loads in by_namespace.items()
        for function, size in Sizing(loads, profiles, prices).chosen().items()
    ]


def _largest(profile: FunctionProfile, size: Size) -> ProfiledConfiguration:
    """Return the configuration of a size's share with the largest batch."""
    share = size.configuration.cpu, size.configuration.gpu_percent
    return max(
        (
            c
            for gpu in profile.spec.gpus
            if gpu.model == size.gpu_model
            for c in gpu.configurations
            if (c.cpu, c.gpu_percent) == share
        ),
        key=lambda c: c.batch,
    )


def pods_of(groups: Iterable[PodGroup]) -> list[dict[str, Any]]:
    """Return the Pod objects of groups, such that any first part has pods of all functions."""
    numbered = [(n, group) for group in groups for n in range(group.pods)]
    numbered.sort(key=lambda pod: (pod[0] + 0.5) / pod[1].pods)
    return [_pod(group, number) for number, group in numbered]


def _pod(group: PodGroup, number: int) -> dict[str, Any]:
    namespace, function = group.function
    c = group.configuration
    configuration = f'{{"batch": {c.batch}, "cpu": {c.cpu}, "gpuPercent": {c.gpu_percent}}}'
    return {
        "metadata": {
            "name": f"{function}-{number}",
            "namespace": namespace,
            "labels": {names.LABEL_FUNCTION: function},
            "annotations": {names.ANNOTATION_CONFIGURATION: configuration},
        },
        "spec": {
            "schedulerName": "esg-scheduler",
            "containers": [{"name": "server", "image": "example.org/model-server"}],
        },
    }


def server_of(function: _Key, port: int) -> dict[str, Any]:
    """Return the FunctionServer of a function's pods."""
    return {
        "metadata": {"name": function[1], "namespace": function[0]},
        "spec": {
            "function": function[1],
            "selector": {"matchLabels": {names.LABEL_FUNCTION: function[1]}},
            "protocol": "http-binary",
            "port": port,
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
