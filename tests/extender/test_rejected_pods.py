"""A bound pod that its kubelet rejects: its share is free, and a metric and a log line say so."""

import pytest
from structlog.testing import capture_logs

from tests.extender.factories import pod

COUNTER = "esg_rejected_pods_total"
GRANT = {"gpu": "GPU-n1-0", "gpu-percent": "50", "gpu-memory": "0=4000M", "batch": "1"}


def bound(**status):
    raw = pod("half", name="p", uid="p", annotations=GRANT)
    raw["spec"]["nodeName"] = "n1"
    raw["status"] = {"phase": "Pending"} | status
    return raw


def rejected_count(extender):
    lines = extender.client.get("/metrics").text.splitlines()
    return next(float(line.split()[-1]) for line in lines if line.startswith(f"{COUNTER} "))


def report(extender, raw):
    """Pass on a watch event; return the warnings."""
    with capture_logs() as logged:
        extender.on_loop(extender.service.state.pods.upsert, raw)
    return [line for line in logged if line["log_level"] == "warning"]


@pytest.mark.parametrize("reason", ["OutOfcpu", "OutOfmemory", "UnexpectedAdmissionError"])
def test_rejected_pod_releases_its_share_and_counts_once(extender, reason):
    """The watch may repeat its last state."""
    report(extender, bound())
    assert extender.gpus("n1")[0]["pods"]
    failed = bound(phase="Failed", reason=reason, message="Node didn't have enough resource")
    [warning] = report(extender, failed)
    assert (warning["pod"], warning["node"]) == ("default/p", "n1")
    assert warning["reason"] == f"{reason}: Node didn't have enough resource"
    assert report(extender, failed) == []
    assert rejected_count(extender) == 1
    assert extender.gpus("n1")[0]["pods"] == []


@pytest.mark.parametrize(
    "status",
    [{"phase": "Failed"}, {"phase": "Failed", "reason": "Evicted"}, {"phase": "Succeeded"}],
)
def test_other_ends_are_no_rejections(extender, status):
    """Their containers have run."""
    report(extender, bound())
    assert report(extender, bound(**status)) == []
    assert rejected_count(extender) == 0
    assert extender.gpus("n1")[0]["pods"] == []


def test_a_rejection_before_the_first_list_is_not_counted(extender):
    """An earlier process has counted it."""
    state = extender.service.state
    extender.on_loop(state.pods.replace, [bound(phase="Failed", reason="OutOfcpu")])
    assert rejected_count(extender) == 0
