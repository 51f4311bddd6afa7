"""Pods that are none of ours, and pods of ours that cannot be read."""

from tests.e2e.bed import PODS
from tests.e2e.documents import configuration, profile
from tests.testbed.api import wait_until
from tests.testbed.pods import function_pod

DOCUMENTS = [profile("half", configuration(50))]
GPU_PERCENT = "esg-scheduler.io/gpu-percent"
FILTERED = "esg_extender_request_duration_seconds_count"


def test_ordinary_pods_pass_untouched(esg):
    """They are bound on any node without an annotation of ours; their vCPUs count for ours."""
    bed = esg(nodes=2, gpus=1, cpu=2, documents=DOCUMENTS)
    names = ["plain-0", "plain-1"]
    for name in names:
        bed.api.create(function_pod(name, resources={"cpu": "1500m"}))
    bed.wait_bound(*names)

    assert {bed.node_of(name) for name in names} == {"node-000", "node-001"}
    for name in names:
        assert bed.grant_of(name) == {}
        assert bed.explain(name)["granted"] is None
    assert bed.metric("esg_bind_total", result="bound") == 2
    assert bed.wait_agreement() == {}
    bed.create("ours", function="half")
    assert "0.5 vCPU free, 1 asked" in bed.wait_why("ours", "vCPU")
    bed.api.delete(f"{PODS}/plain-1")
    bed.wait_bound("ours")


def test_with_managed_resources_ordinary_pods_never_come_here(esg):
    """kube-scheduler calls the extender for pods that name the resource, and for no others."""
    bed = esg(nodes=1, gpus=1, documents=DOCUMENTS, managed_resources=True)
    bed.api.create(function_pod("plain"))
    bed.wait_bound("plain")
    assert bed.metric(FILTERED) == 0
    assert bed.metric("esg_bind_total") == 0

    bed.create("ours", function="half", resources={"cpu": "1", GPU_PERCENT: "50"})
    bed.wait_bound("ours")
    assert bed.metric(FILTERED, verb="filter") == 1
    assert bed.grant_of("ours")["gpu-percent"] == "50"
    assert bed.wait_agreement().keys() == {"default/ours"}


def test_a_malformed_pod_waits_and_is_told_why(esg):
    """Condition and Event say what is wrong and how to write it; once mended, it is bound."""
    bed = esg(nodes=1, gpus=1, documents=DOCUMENTS)
    bed.create("late", function="half", annotations={"deadline": "100% tomorrow"})
    problem = (
        "annotation esg-scheduler.io/deadline: '100percent tomorrow' is not an RFC 3339 time; "
        "write it as 2026-01-31T12:00:00.250Z"
    )
    bed.wait_why("late", problem)
    wait_until(
        lambda: any(problem in each for each in bed.event_messages("late", "FailedScheduling")),
        what="Event",
    )
    assert bed.explain("late")["error"] == problem.replace("percent", "%")
    assert not bed.node_of("late")

    bed.api.patch(
        f"{PODS}/late",
        {"metadata": {"annotations": {"esg-scheduler.io/deadline": "2999-01-31T12:00:00Z"}}},
    )
    bed.wait_bound("late")
