"""Pods of the demo, and the tensors that check its answers."""

from pathlib import Path

import pytest

from scheduler.cli.document_files import read_sound
from scheduler.dispatch.sizing import PodPrices
from scheduler.model.documents import FunctionProfile, Workflow
from scheduler.model.plan import Prices
from scheduler.model.pod import function_pod
from tests.testbed import REPOSITORY
from workbench.demo.pod_plan import answer_factor, outputs_of, plan_pods, pods_of

SAMPLES = read_sound(Path(REPOSITORY, "deploy", "samples"))
WORKFLOWS = [d for d in SAMPLES if isinstance(d, Workflow)]
PROFILES = {d.metadata.name: d for d in SAMPLES if isinstance(d, FunctionProfile)}


def workflow(after, inputs=None):
    """A workflow whose stages are named as their functions."""
    stages = [
        {"name": stage, "function": stage, "after": before, "inputs": (inputs or {}).get(stage, [])}
        for stage, before in after.items()
    ]
    metadata = {"name": "w", "namespace": "n"}
    spec = {"slo": {"latencyMs": 500}, "stages": stages}
    return Workflow.model_validate({"metadata": metadata, "spec": spec})


def groups(rate_per_s=5.0):
    prices = PodPrices(Prices())
    return plan_pods(WORKFLOWS, PROFILES, prices, workflow_rate_per_s=rate_per_s)


def run_ms(group):
    """Time of one request on a pod of the group."""
    share = group.configuration.cpu, group.configuration.gpu_percent
    return next(
        c.latency_ms
        for c in PROFILES[group.function[1]].spec.gpus[0].configurations
        if (c.cpu, c.gpu_percent) == share and c.batch == 1
    )


def test_each_workflow_has_time_left():
    """The runs of a request's stages take part of its SLO; the rest is for queues and machine."""
    times_ms = {group.function: run_ms(group) for group in groups()}
    for document in WORKFLOWS:
        stages = [(document.key[0], stage.function) for stage in document.spec.stages]
        assert sum(times_ms[stage] for stage in stages) <= 0.6 * document.spec.slo.latency_ms


@pytest.mark.parametrize("rate_per_s", [1.0, 5.0, 20.0])
def test_pods_have_more_capacity_than_the_rate(rate_per_s):
    """All requests of a function are served, even one by one."""
    for group in groups(rate_per_s):
        users = sum(
            group.function[1] in {stage.function for stage in document.spec.stages}
            for document in WORKFLOWS
        )
        assert group.pods > users * rate_per_s * run_ms(group) / 1000


def test_pods_have_an_exact_grant_and_unique_names():
    """The extender gives each the share that was chosen; the first ones are of all functions."""
    planned = groups()
    pods = pods_of(planned)
    assert len(pods) == sum(group.pods for group in planned)
    assert len({pod["metadata"]["name"] for pod in pods}) == len(pods)
    shares = {group.function[1]: group.configuration.gpu_percent for group in planned}
    for pod in pods:
        parsed = function_pod(pod)
        assert parsed.configuration.gpu_percent == shares[parsed.stage]
    first = {function_pod(pod).stage for pod in pods[: 2 * len(planned)]}
    assert first == set(shares)


def test_a_chain_doubles_at_each_stage():
    """The client knows the answer to its request."""
    assert answer_factor(workflow({"a": [], "b": ["a"], "c": ["b"]})) == 8.0


def test_a_join_adds_its_named_inputs():
    """Each stage doubles the sum of what it takes; an output has the name that is taken."""
    inputs = {"d": [{"name": "left", "from": "b.y"}, {"name": "right", "from": "c.z"}]}
    joined = workflow({"d": ["b", "c"], "b": ["a"], "c": ["a"], "a": []}, inputs)
    assert answer_factor(joined) == 2 * (4 + 4)
    assert outputs_of(("n", "b"), [joined]) == ("y",)
    assert outputs_of(("n", "a"), [joined]) == ("x",)
