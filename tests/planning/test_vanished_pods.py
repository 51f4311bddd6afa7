"""Pods that vanish while they are bound: their containers may run on, so their shares stay.

Only the kubelet's word, a terminal phase, frees a share at once.
"""

from typing import Any

import pytest

from scheduler.cluster.resource import trim_pod
from scheduler.model.documents import Workflow, to_manifest
from scheduler.model.grant import Grant, grant_annotations
from scheduler.model.pools import PoolName
from scheduler.planning.metrics import Metrics
from scheduler.planning.state import State
from scheduler.settings import Settings
from tests.extender.factories import DOCUMENTS, GROUP, node, pod
from tests.extender.harness import Clock

Raw = dict[str, Any]
BY_FORCE = {"deletionTimestamp": "2027-01-15T08:00:00Z", "deletionGracePeriodSeconds": 0}
RUNNING = {"phase": "Running", "containerStatuses": [{"name": "f", "state": {"running": {}}}]}
GRACE_S = 30.0  # Kubernetes' default
KUBELET_S = 5.0  # until the kubelet has seen the deletion and has ended what outlives the grace
MAX_S = 100.0


class VanishingPods:
    """A state with one node, and pods of 60 % of its GPU."""

    def __init__(self, **settings: Any) -> None:
        self.monotonic = Clock(1_000.0)
        settings = {"deletion_grace_max_s": MAX_S} | settings
        self.state = State(Settings(**settings), Metrics(), clock=Clock(), monotonic=self.monotonic)
        self.state.nodes.replace([node("n1")])
        self.state.documents.workflows.replace(
            to_manifest(d) for d in DOCUMENTS if isinstance(d, Workflow)
        )
        self.state.documents.profiles.replace(
            to_manifest(d) for d in DOCUMENTS if not isinstance(d, Workflow)
        )

    def bound(self, name: str = "a", **spec: Any) -> Raw:
        """Return a pod of the node, which nothing has shown yet."""
        raw = pod("half", name=name, uid=name)
        grant = Grant("GPU-n1-0", 60, 4_000, 1, {"cpu": 1, "feasible": True})
        raw["metadata"]["annotations"] = grant_annotations(grant)
        raw["spec"] |= {"nodeName": "n1", **spec}
        return raw | {"status": RUNNING}

    def holder(self, **spec: Any) -> Raw:
        """Return a bound holder of 60 % of the GPU, which nothing has shown yet."""
        raw = self.bound("h", **spec)
        grant = Grant("GPU-n1-0", 60, 0, 0, {"cpu": 4, "pool": "holder"})
        raw["metadata"] |= {
            "annotations": grant_annotations(grant),
            "labels": {f"{GROUP}/pool": "holder"},
        }
        return raw

    def shows(self, raw: Raw) -> Raw:
        self.state.pods.upsert(trim_pod(raw))
        return raw

    def lists(self, *pods: Raw) -> None:
        self.state.pods.replace(map(trim_pod, pods))

    def deletes(self, raw: Raw, **metadata: Any) -> None:
        """Deliver the deletion, with the last state of the pod."""
        self.state.pods.delete(trim_pod(raw | {"metadata": raw["metadata"] | metadata}))

    def free_percent(self) -> int:
        fleet = self.state.ledger.fleet
        return int(fleet.arrays.gpu_free_percent[fleet.gpu_row("n1", "GPU-n1-0")])

    def free_after_s(self) -> float:
        """Return the time until the share is free, to a tenth of a second."""
        began_s = self.monotonic.now_s
        while self.free_percent() < 100:
            self.monotonic.now_s = round(self.monotonic.now_s + 0.1, 1)
            self.state.pods.expire()
            assert self.monotonic.now_s < began_s + 10_000, "never"
        return round(self.monotonic.now_s - began_s, 1)


@pytest.fixture
def pods() -> VanishingPods:
    return VanishingPods()


def test_a_deletion_by_force(pods: VanishingPods) -> None:
    """kube-apiserver writes a grace of 0 s, then removes the pod; its kubelet uses its own."""
    raw = pods.shows(pods.bound())
    forced = raw | {"metadata": raw["metadata"] | BY_FORCE}
    pods.shows(forced)
    pods.deletes(forced)
    assert pods.free_percent() == 40
    assert pods.free_after_s() == GRACE_S + KUBELET_S


def test_a_deletion_event_alone(pods: VanishingPods) -> None:
    """The event before it may be in a gap of the watch."""
    pods.deletes(pods.shows(pods.bound()), **BY_FORCE)
    assert pods.free_after_s() == GRACE_S + KUBELET_S


def test_a_pod_that_a_list_lacks(pods: VanishingPods) -> None:
    """It may have been deleted by force in a gap of the watch; later lists change nothing."""
    pods.shows(pods.bound())
    pods.lists()
    assert pods.free_percent() == 40
    pods.monotonic.now_s += 10.0
    pods.lists()
    pods.state.pods.expire()
    assert pods.free_after_s() == GRACE_S + KUBELET_S - 10.0


def test_a_terminating_pod_that_a_list_lacks(pods: VanishingPods) -> None:
    """Nothing shows that its kubelet has removed it."""
    raw = pods.bound()
    pods.shows(raw | {"metadata": raw["metadata"] | BY_FORCE | {"deletionGracePeriodSeconds": 30}})
    pods.lists()
    assert pods.free_after_s() == GRACE_S + KUBELET_S


def test_a_pod_recreated_under_its_name_in_a_gap(pods: VanishingPods) -> None:
    """The list has another UID under the name."""
    pods.shows(pods.bound())
    recreated = pod("half", name="a", uid="another")
    pods.lists(recreated)
    assert pods.free_percent() == 40
    assert list(pods.state.pods.pending) == ["another"]


def test_a_pod_that_was_never_seen_bound_before_its_deletion(pods: VanishingPods) -> None:
    """The deletion's last state has the grant."""
    raw = pods.bound()
    pending = raw | {"spec": {**raw["spec"], "nodeName": None}, "status": {"phase": "Pending"}}
    pods.shows(pending)
    pods.deletes(raw, **BY_FORCE)
    assert pods.free_percent() == 40
    assert pods.free_after_s() == GRACE_S + KUBELET_S


def test_a_bound_pod_that_has_not_started(pods: VanishingPods) -> None:
    """Its kubelet may be starting the container."""
    raw = pods.bound() | {"status": {"phase": "Pending"}}
    pods.deletes(pods.shows(raw), **BY_FORCE)
    assert pods.free_after_s() == GRACE_S + KUBELET_S


def test_a_crashed_container_may_start_again(pods: VanishingPods) -> None:
    """Without a terminal phase a terminated container is no end: the kubelet restarts it."""
    terminated = {"name": "f", "state": {"terminated": {"exitCode": 1}}}
    raw = pods.bound() | {"status": {"phase": "Running", "containerStatuses": [terminated]}}
    pods.deletes(pods.shows(raw), **BY_FORCE)
    assert pods.free_after_s() == GRACE_S + KUBELET_S


@pytest.mark.parametrize(
    ("spec", "metadata", "rest_s"),
    [
        ({"terminationGracePeriodSeconds": 5}, BY_FORCE, 5.0 + KUBELET_S),
        ({"terminationGracePeriodSeconds": 0}, BY_FORCE, KUBELET_S),
        ({"terminationGracePeriodSeconds": 600}, BY_FORCE, MAX_S),
        ({"terminationGracePeriodSeconds": None}, BY_FORCE, GRACE_S + KUBELET_S),
    ],
    ids=["short", "none", "longer than the setting", "null"],
)
def test_the_grace_period_is_the_pods_own(
    pods: VanishingPods, spec: Raw, metadata: Raw, rest_s: float
) -> None:
    """It counts up to the setting; the kubelet needs some time after it."""
    pods.deletes(pods.shows(pods.bound(**spec)), **metadata)
    assert pods.free_after_s() == rest_s


def test_a_longer_grace_of_an_earlier_deletion(pods: VanishingPods) -> None:
    """`kubectl delete --grace-period=60` and then `--force`: the kubelet goes on with 60 s."""
    raw = pods.bound()
    slow = raw | {"metadata": raw["metadata"] | BY_FORCE | {"deletionGracePeriodSeconds": 60}}
    pods.shows(slow)
    pods.shows(raw | {"metadata": raw["metadata"] | BY_FORCE})
    pods.deletes(raw, **BY_FORCE)
    assert pods.free_after_s() == 60.0 + KUBELET_S


@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
def test_a_kubelet_frees_the_share_at_once(pods: VanishingPods, phase: str) -> None:
    """It ends the containers, writes so into the phase, and removes the pod with a grace of 0 s."""
    raw = pods.shows(pods.bound())
    grace = {"deletionGracePeriodSeconds": 30}
    terminating = raw | {"metadata": raw["metadata"] | BY_FORCE | grace}
    pods.shows(terminating)
    assert pods.free_percent() == 40
    terminated = {"name": "f", "state": {"terminated": {"exitCode": 143}}}
    ended = terminating | {"status": {"phase": phase, "containerStatuses": [terminated]}}
    pods.shows(ended)
    assert pods.free_percent() == 100
    pods.deletes(ended, **BY_FORCE)
    assert pods.free_percent() == 100
    assert not pods.state.pods.is_ending("a")


def test_a_deletion_whose_last_state_has_ended(pods: VanishingPods) -> None:
    """The phase may come with the deletion alone."""
    raw = pods.shows(pods.bound())
    pods.deletes(raw | {"status": {"phase": "Failed"}}, **BY_FORCE)
    assert pods.free_percent() == 100


def test_a_phase_that_no_kubelet_wrote(pods: VanishingPods) -> None:
    """The pod garbage collector writes Failed and removes the pod; the container still runs."""
    raw = pods.shows(pods.bound())
    collected = pods.shows(raw | {"status": RUNNING | {"phase": "Failed"}})
    assert pods.free_percent() == 40
    pods.deletes(collected, **BY_FORCE)
    assert pods.free_after_s() == GRACE_S + KUBELET_S


def test_an_unbound_pod_holds_nothing(pods: VanishingPods) -> None:
    """No kubelet knows it."""
    raw = pods.bound()
    pending = raw | {"spec": {**raw["spec"], "nodeName": None}, "status": {"phase": "Pending"}}
    pods.deletes(pods.shows(pending), **BY_FORCE)
    assert pods.free_percent() == 100
    assert pods.state.pods.pending == {}


def test_a_pod_that_is_shown_again(pods: VanishingPods) -> None:
    """A restored etcd has it still: it keeps its share for as long as it is bound."""
    raw = pods.shows(pods.bound())
    pods.lists()
    pods.lists(raw)
    pods.monotonic.now_s += 2 * GRACE_S
    pods.state.pods.expire()
    assert pods.free_percent() == 40


def test_a_node_that_vanishes_with_its_pod(pods: VanishingPods) -> None:
    """If the node returns with its GPU, the share of the pod is still counted."""
    raw = pods.shows(pods.bound())
    pods.state.nodes.replace(())
    pods.deletes(raw, **BY_FORCE)
    pods.state.nodes.replace([node("n1")])
    assert pods.free_percent() == 40
    assert pods.free_after_s() == GRACE_S + KUBELET_S


def test_shares_of_vanished_pods_can_be_left_out(pods: VanishingPods) -> None:
    """Inside the block they are free; nothing else is, and nothing changes."""
    pods.shows(pods.bound("b"))
    with pods.state.pods.without_ending() as has_ending:
        assert (has_ending, pods.free_percent()) == (False, 40)
    pods.deletes(pods.shows(pods.bound("a")), **BY_FORCE)
    with pods.state.pods.without_ending() as has_ending:
        assert (has_ending, pods.free_percent()) == (True, 40)
    assert pods.free_percent() == -20


def test_vcpus_are_free_at_once(pods: VanishingPods) -> None:
    """kube-scheduler counts them so, too: only a share of a GPU stays."""
    plain = {
        "metadata": {"name": "p", "uid": "p", "namespace": "default"},
        "spec": {"nodeName": "n1", "containers": [{"resources": {"requests": {"cpu": "4"}}}]},
        "status": {"phase": "Running"},
    }
    pods.deletes(pods.shows(plain), **BY_FORCE)
    assert pods.state.ledger.reservation("p") is None


def test_it_can_be_switched_off() -> None:
    """With a longest grace of 0 s, the object alone counts."""
    pods = VanishingPods(deletion_grace_max_s=0.0)
    pods.deletes(pods.shows(pods.bound()), **BY_FORCE)
    pods.shows(pods.bound("b"))
    pods.lists()
    assert pods.free_percent() == 100


def test_a_holder_that_ends_keeps_its_slice_for_its_grace_period(pods: VanishingPods) -> None:
    """A kubelet that evicts it reports its end at once, and batches of members may run on."""
    holder = pods.shows(pods.holder())
    pods.shows(holder | {"status": {"phase": "Failed"}})
    assert pods.free_percent() == 40
    pods.deletes(holder | {"status": {"phase": "Failed"}})
    assert pods.free_after_s() == GRACE_S + KUBELET_S


def test_a_pod_that_waits_for_an_ended_slice_is_seen_to_fit_later(pods: VanishingPods) -> None:
    """A holder of the same namespace, too: a pool has one slice of a GPU, also while that ends."""
    holder = pods.shows(pods.holder())
    pods.deletes(holder)
    with pods.state.pods.without_ending() as has_ending:
        assert has_ending
        assert pods.state.ledger.pools.slices(PoolName("default")) == []
        assert pods.free_percent() == 100
    [slice_] = pods.state.ledger.pools.slices(PoolName("default"))
    assert (slice_.percent, slice_.is_open, pods.free_percent()) == (60, False, 40)


def test_the_grace_period_of_a_slice_counts_from_the_deletion_of_its_holder(
    pods: VanishingPods,
) -> None:
    """Its dispatcher has begun no batch since then."""
    holder = pods.shows(pods.holder())
    deleted = holder | {
        "metadata": holder["metadata"] | BY_FORCE | {"deletionGracePeriodSeconds": 30}
    }
    pods.shows(deleted)
    pods.monotonic.now_s += 30
    pods.shows(deleted | {"status": {"phase": "Succeeded"}})
    assert pods.free_after_s() == KUBELET_S


def test_a_holder_that_terminates_for_longer_keeps_its_slice(pods: VanishingPods) -> None:
    """Its containers run, as far as anybody has reported."""
    holder = pods.shows(pods.holder(terminationGracePeriodSeconds=600))
    pods.shows(
        holder | {"metadata": holder["metadata"] | {"deletionTimestamp": "2027-01-15T08:00:00Z"}}
    )
    pods.monotonic.now_s += 500
    pods.state.pods.expire()
    assert pods.free_percent() == 40
    pods.deletes(holder | {"status": {"phase": "Succeeded"}})
    assert pods.free_after_s() == 0.1
