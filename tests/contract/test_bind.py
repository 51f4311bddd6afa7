"""Bind: one Binding with its annotations; idempotent; refused with a reason where it must be."""

# ruff: noqa: E501 - a row of a table is one line

import json
from concurrent.futures import ThreadPoolExecutor

import pytest

from scheduler.extender.binding import slo_message
from scheduler.model.grant import grant_of
from tests.extender.factories import GROUP, pod


def test_the_grant_is_on_the_pod(extender):
    """A bound pod carries the GPU, its limits and the plan, as the node's runtime reads them."""
    pending = pod("half", annotations={"queued": "1"})
    extender.filter(pending, "n1")
    assert extender.bind(pending, "n1") == ""
    bound = extender.stored_pod(pending)
    annotations = {
        k.removeprefix(f"{GROUP}/"): v for k, v in bound["metadata"]["annotations"].items()
    }
    plan = json.loads(annotations.pop("plan"))
    assert bound["spec"]["nodeName"] == "n1"
    assert annotations == {
        "queued": "1",
        "gpu": "GPU-n1-0",
        "gpu-percent": "50",
        "gpu-memory": "0=4000M",
        "batch": "1",
    }
    assert (plan["gpu_percent"], plan["cpu"], plan["stage_ms"]) == (50, 1, 100.0)
    assert (plan["feasible"], plan["message"], plan["epsilon"], plan["exact"]) == (
        True,
        "",
        0,
        True,
    )


def test_the_requested_configuration_is_granted(extender):
    """The annotation configuration decides where the plan would be another one."""
    cheapest = extender.place(pod("elastic"), "n1")
    requested = {"batch": 1, "cpu": 1, "gpuPercent": 90}
    pending = pod("elastic", annotations={"configuration": json.dumps(requested)})
    granted = extender.place(pending, "n1")
    assert (cheapest["gpu_percent"], granted["gpu_percent"], granted["batch"]) == (20, 90, 1)


def test_a_refused_configuration_is_named(extender):
    """On a full node the reason has the requested share, though a smaller one would fit."""
    for _ in range(2):
        extender.place(pod("half"), "n1")
        extender.place(pod("tenth"), "n1")
    requested = {"batch": 1, "cpu": 1, "gpuPercent": 90}
    pending = pod("elastic", annotations={"configuration": json.dumps(requested)})
    reason = extender.filter(pending, "n1")["FailedNodes"]["n1"]
    assert "90 percent asked" in reason


def test_a_configuration_without_a_profile_is_refused(extender):
    """The Error names the configuration, and the nearest one of the profile."""
    requested = {"batch": 1, "cpu": 1, "gpuPercent": 50}
    pending = pod("elastic", annotations={"configuration": json.dumps(requested)})
    answer = extender.filter(pending, "n1")
    assert answer["Error"] == (
        "function elastic has no configuration (batch 1, 1 vCPU, 50 percent GPU) in its profile; "
        "the nearest is (batch 1, 1 vCPU, 90 percent GPU) on NVIDIA A100-SXM4-80GB: request that, "
        "or profile it"
    )
    assert extender.bind(pending, "n1") == answer["Error"]


def test_repeating_a_bind_changes_nothing(extender):
    """Binding the same pod to the same node again succeeds, and reserves its share once."""
    pending = pod("half")
    granted = extender.place(pending, "n1")
    assert [extender.bind(pending, "n1") for _ in range(3)] == ["", "", ""]
    assert granted == extender.explain(pending)["granted"]
    assert [gpu["free_percent"] for gpu in extender.gpus("n1")] == [50, 100]


def test_another_node_is_refused(extender):
    """A bound pod stays where it is; the error names that node."""
    pending = pod("half")
    extender.place(pending, "n1")
    assert extender.bind(pending, "n2") == "the pod is bound to node n1 already"
    assert extender.explain(pending)["node"] == "n1"
    assert [gpu["free_percent"] for gpu in extender.gpus("n2")] == [100, 100]


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        pytest.param({"PodName": "nobody", "PodUID": "?"}, "pod default/nobody does not exist any more", id="an unknown pod"),
        pytest.param({"PodUID": "another"}, "was recreated: its uid is", id="a pod made anew under the name"),
        pytest.param({"Node": "ghost"}, "node ghost: the node is not known to the extender (yet)", id="an unknown node"),
        pytest.param({"Node": "bare"}, "node bare: the node has no GPU to share", id="a node without GPU"),
        pytest.param({"PodName": "nobody"}, "unknown pod: default/nobody", id="the uid of another name"),
        pytest.param({"PodNamespace": "elsewhere"}, "unknown pod: elsewhere/", id="the uid of another namespace"),
    ],
)  # fmt: skip
def test_what_cannot_be_bound_is_told(extender, changed, says):
    """The answer is 200 with an Error that says why; nothing is reserved; the pod can be bound."""
    pending = pod("half")
    extender.filter(pending, "n1")
    assert says in extender.bind(pending, "n1", **changed)
    assert [gpu["free_percent"] for gpu in extender.gpus("n1")] == [100, 100]
    assert extender.bind(pending, "n1") == ""


def test_a_full_node_is_refused_with_numbers(extender):
    """Bind checks again: capacity may be gone since filter, and the error says what is left."""
    late = pod("whole")
    extender.filter(late, "n1")
    for _ in range(3):
        extender.place(pod("half"), "n1")
    error = extender.bind(late, "n1")
    assert (
        error == "node n1: GPU 1: 50 percent free, 100 percent asked; 76,896 MiB free, 4,000 asked"
    )


@pytest.mark.parametrize("node", ["n1", "bare"])
def test_a_pod_of_others_gets_a_binding_without_annotations(extender, node):
    """A pod without our labels is bound as it is, on nodes without a GPU too."""
    pending = pod(requests={"cpu": "3"})
    extender.filter(pending, node)
    assert [extender.bind(pending, node), extender.bind(pending, node)] == ["", ""]
    assert extender.stored_pod(pending)["metadata"]["annotations"] == {}
    assert extender.explain(pending)["granted"] is None


def test_the_vcpus_of_others_count(extender):
    """VCPUs that an ordinary pod requests are not available to a function."""
    extender.filter(ordinary := pod(requests={"cpu": "15500m"}), "n1")
    assert extender.bind(ordinary, "n1") == ""
    assert extender.filter(pod("half"), "n1")["FailedNodes"] == {"n1": "0.5 vCPU free, 1 asked"}


def test_a_malformed_pod_is_not_bound(extender):
    """A pod that filter refuses is refused by bind too."""
    pending = pod("half", annotations={"queued": "many"})
    extender.filter(pending, "n1")
    assert "esg-scheduler.io/queued: 'many' must be a whole number" in extender.bind(pending, "n1")


def test_racing_binds_share_what_is_there(extender):
    """Twenty pods of half a GPU at once on four halves: four are bound, the others get numbers."""
    pending = [pod("half") for _ in range(20)]
    for raw in pending:
        extender.filter(raw, "n1")
    with ThreadPoolExecutor(8) as threads:
        errors = list(threads.map(lambda raw: extender.bind(raw, "n1"), pending))
    assert errors.count("") == 4
    assert {
        "node n1: GPU 0: 0 percent free, 50 percent asked; 72,896 MiB free, 4,000 asked"
    } == set(errors) - {""}
    assert [gpu["free_percent"] for gpu in extender.gpus("n1")] == [0, 0]


def test_the_same_bind_twice_at_once(extender):
    """Two calls for one pod and node, as after a time-out, are one Binding."""
    pending = pod("half")
    extender.filter(pending, "n1")
    with ThreadPoolExecutor(8) as threads:
        errors = list(threads.map(lambda _: extender.bind(pending, "n1"), range(8)))
    assert set(errors) == {""}
    assert [gpu["free_percent"] for gpu in extender.gpus("n1")] == [50, 100]


def test_an_unmeetable_slo_is_bound_all_the_same(extender, clock):
    """A pod too late for its SLO runs on the cheapest configuration, and its plan says so."""
    deadline = "2027-01-15T08:00:00.010Z"
    pending = pod(workflow="lone-stage", stage="elastic", annotations={"deadline": deadline})
    granted = extender.place(pending, "n1")
    assert granted["gpu_percent"] == 20
    assert granted["plan"]["feasible"] is False
    assert granted["plan"]["budget_ms"] == pytest.approx(10)
    says = "the SLO is lost: 10.0 ms left, and the fastest completion takes 100.0 ms; "
    assert granted["plan"]["message"] == says + "the cheapest come first"
    assert slo_message(grant_of(extender.stored_pod(pending))) == (
        says + "the cheapest come first; as granted the stages left take 400 ms with batch 1, "
        "1 vCPU and 20 % of a GPU"
    )


def test_a_rate_that_nothing_keeps_up_with_is_told(extender):
    """The pod's plan says why it is not feasible where time is not the reason."""
    pending = pod(workflow="lone-stage", stage="elastic", annotations={"rate": "50"})
    plan = extender.place(pending, "n1")["plan"]
    assert plan["feasible"] is False
    assert plan["message"].startswith(
        "no configuration serves 50 requests per second: the maximum is 10.0"
    )
