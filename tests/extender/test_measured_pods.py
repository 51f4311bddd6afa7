"""Pods whose function is measured: they state their share, and need no profile (ADR 50)."""

import json

import pytest

from tests.extender.factories import GROUP, pod


def measured(percent=28, memory_mib="3000", cpu=2, **changed):
    """Create a pod of a function without a profile, as the webhook mutates one."""
    configuration = json.dumps({"batch": 8, "cpu": cpu, "gpuPercent": percent})
    annotations = {"configuration": configuration, "memory-mib": memory_mib}
    requests = {"cpu": str(cpu), f"{GROUP}/gpu-percent": str(percent)}
    return pod(
        "unknown-function",
        **{
            "labels": {f"{GROUP}/measurement": "true"},
            "annotations": {key: text for key, text in annotations.items() if text is not None},
            "requests": requests,
            **changed,
        },
    )


def refusal(extender, pending, node="n1"):
    answer = extender.filter(pending, node)
    assert answer["NodeNames"] in ([], None)
    return (answer["FailedNodes"] | answer["FailedAndUnresolvableNodes"]).get(node) or answer[
        "Error"
    ]


def test_has_the_stated_share_and_memory(extender):
    """Its grant is exactly what it states, and the ledger counts it as any other."""
    grant = extender.place(measured(), "n1")
    assert (grant["gpu_percent"], grant["memory_mib"], grant["batch"]) == (28, 3000, 8)
    assert grant["plan"]["cpu"] == 2
    [first, _] = extender.gpus("n1")
    assert first["free_percent"] == 72


def test_waits_like_any_pod_for_room(extender):
    """Two of 60 % are on two GPUs, and the third has none."""
    for _ in range(2):
        extender.place(measured(60), "n1")
    assert refusal(extender, measured(60))


def test_only_on_the_gpu_model_that_it_names(extender):
    """Another model is refused."""
    pending = measured()
    pending["metadata"]["annotations"][f"{GROUP}/gpu-model"] = "another"
    assert refusal(extender, pending)


def test_a_share_above_its_requests_is_refused(extender):
    """A quota counts requests, and annotations may change after admission."""
    requests = {"cpu": "2", f"{GROUP}/gpu-percent": "14"}
    assert "is above the pod's requests" in refusal(extender, measured(28, requests=requests))


@pytest.mark.parametrize(
    ("changed", "text"),
    [
        ({"memory_mib": None}, "set the annotation esg-scheduler.io/memory-mib"),
        ({"memory_mib": "0"}, "must be a whole number from 1"),
        ({"labels": {f"{GROUP}/measurement": "yes"}}, "'yes' must be true"),
        (
            {
                "labels": {f"{GROUP}/measurement": "true", f"{GROUP}/pool": "member"},
                "requests": {"cpu": "0", f"{GROUP}/gpu-percent": "0"},
            },
            "remove the label esg-scheduler.io/pool",
        ),
        (
            {
                "labels": {
                    f"{GROUP}/measurement": "true",
                    f"{GROUP}/workflow": "w",
                    f"{GROUP}/stage": "s",
                }
            },
            "remove the label esg-scheduler.io/workflow",
        ),
    ],
)
def test_what_it_must_state(extender, changed, text):
    """A pod that states too little is refused with the remedy."""
    assert text in refusal(extender, measured(**changed))


def test_its_function_is_in_no_statistics(extender):
    """It says nothing of where the function is warm."""
    pending = measured()
    extender.place(pending, "n1")
    state = extender.service.state
    extender.on_loop(state.pods.upsert, extender.stored_pod(pending))
    assert not state.history.warm_nodes("default", "unknown-function")
