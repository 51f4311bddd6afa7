"""Pods without a function, and malformed function pods."""

from tests.e2e.documents import configuration, profile
from tests.e2e.harness import PODS
from tests.testbed.api import wait_until
from tests.testbed.pods import function_pod

DOCUMENTS = [profile("half", configuration(50))]
GPU_PERCENT = "esg-scheduler.io/gpu-percent"
FILTERED = "esg_extender_request_duration_seconds_count"


def test_ordinary_pods_pass_untouched(esg):
    """They are bound to any node without a new annotation; their vCPUs count for function pods."""
    harness = esg(nodes=2, gpus=1, cpu=2, documents=DOCUMENTS)
    names = ["plain-0", "plain-1"]
    for name in names:
        harness.api.create(function_pod(name, resources={"cpu": "1500m"}))
    harness.wait_bound(*names)

    assert {harness.node_of(name) for name in names} == {"node-000", "node-001"}
    for name in names:
        assert harness.grant_of(name) == {}
        assert harness.explain(name)["granted"] is None
    wait_until(
        lambda: harness.metric_count("esg_bind_total", result="bound") == 2, what="binds counted"
    )
    assert harness.wait_agreement() == {}
    harness.create("ours", function="half")
    assert "0.5 vCPU free, 1 asked" in harness.wait_refused("ours", "vCPU")
    harness.api.delete(f"{PODS}/plain-1")
    harness.wait_bound("ours")


def test_with_managed_resources_ordinary_pods_cause_no_call(esg):
    """kube-scheduler calls the extender for pods that name the resource, and for no others."""
    harness = esg(nodes=1, gpus=1, documents=DOCUMENTS, managed_resources=True)
    harness.api.create(function_pod("plain"))
    harness.wait_bound("plain")
    assert harness.metric_count(FILTERED) == 0
    assert harness.metric_count("esg_bind_total") == 0

    harness.create("ours", function="half", resources={"cpu": "1", GPU_PERCENT: "50"})
    harness.wait_bound("ours")
    assert harness.metric_count(FILTERED, verb="filter") == 1
    assert harness.grant_of("ours")["gpu-percent"] == "50"
    assert harness.wait_agreement().keys() == {"default/ours"}


def test_a_malformed_pod_waits_with_a_reason(esg):
    """Condition and Event name the error and the correct form; the corrected pod is bound."""
    harness = esg(nodes=1, gpus=1, documents=DOCUMENTS)
    harness.create("late", function="half", annotations={"deadline": "100% tomorrow"})
    problem = (
        "annotation esg-scheduler.io/deadline: '100percent tomorrow' is not an RFC 3339 time; "
        "write it as 2026-01-31T12:00:00.250Z"
    )
    harness.wait_refused("late", problem)
    wait_until(
        lambda: any(
            problem in message for message in harness.event_messages("late", "FailedScheduling")
        ),
        what="Event",
    )
    assert harness.explain("late")["error"] == problem.replace("percent", "%")
    assert not harness.node_of("late")

    harness.api.patch(
        f"{PODS}/late",
        {"metadata": {"annotations": {"esg-scheduler.io/deadline": "2999-01-31T12:00:00Z"}}},
    )
    harness.wait_bound("late")


def test_a_pod_that_the_kubelet_rejects_frees_its_share(esg):
    """Another scheduler gave its vCPUs away: a second pod gets the GPU, and a series counts it."""
    harness = esg(nodes=1, gpus=1, documents=[profile("whole", configuration(100))])
    harness.create("rejected", function="whole")
    harness.wait_bound("rejected")
    harness.create("next", function="whole")
    harness.wait_refused("next", "0 percent free, 100 percent asked")

    message = "Node didn't have enough resource"
    harness.end("rejected", phase="Failed", reason="OutOfcpu", message=message)

    harness.wait_bound("next")
    assert harness.metric_count("esg_rejected_pods_total") == 1
    assert harness.wait_agreement().keys() == {"default/next"}
