"""The ledger with holders, members and reserved pods, compared with a model that only adds up."""

from dataclasses import replace

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, invariant, multiple, rule

from scheduler.ledger.ledger import DoesNotFitError, Ledger
from scheduler.ledger.reservation import Reservation
from scheduler.model.node import Gpu, Node
from scheduler.placement.options import Limits
from tests.examples import examples

LIMITS = Limits(percent_max=100, server_context_mib=0, clients_max=3)
UUIDS = ("GPU-0", "GPU-1")
MEMORY_MIB, CPU_MILLI = 10_000, 8_000


def node_of(healthy: bool = True) -> Node:
    return Node(
        "a",
        tuple(
            Gpu(
                index=index,
                uuid=uuid,
                model="A100",
                memory_mib=MEMORY_MIB,
                multiprocessors=108,
                healthy=healthy,
            )
            for index, uuid in enumerate(UUIDS)
        ),
        cpu_milli=CPU_MILLI,
    )


def pool_of(pod: Reservation) -> tuple[str, str]:
    return pod.namespace, pod.group


class PoolMachine(RuleBasedStateMachine):
    """A dictionary takes every step, too; what may be assumed is said again in plain sums."""

    pods = Bundle("pods")

    def __init__(self) -> None:
        super().__init__()
        self.ledger = Ledger(LIMITS)
        self.ledger.set_node(node_of())
        self.healthy = True
        self.pods_by_uid: dict[str, Reservation] = {}
        self.counter = 0

    @rule(
        target=pods,
        pool=st.sampled_from(("", "holder", "member", "member")),
        namespace=st.sampled_from(("one", "two")),
        group=st.sampled_from(("", "a")),
        uuid=st.sampled_from(UUIDS),
        percent=st.sampled_from((10, 30, 50, 60, 100)),
        memory=st.sampled_from((1_000, 4_000, 9_000)),
        cpu=st.sampled_from((1_000, 3_000)),
    )
    def binding_begins(
        self,
        pool: str,
        namespace: str,
        group: str,
        uuid: str,
        percent: int,
        memory: int,
        cpu: int,
    ):
        self.counter += 1
        is_member = pool == "member"
        pod = Reservation(
            uid=str(self.counter),
            namespace=namespace,
            name=f"p{self.counter}",
            node="a",
            cpu_milli=10 if is_member else cpu,
            gpu_uuid=uuid,
            gpu_percent=0 if is_member else percent,
            memory_mib=0 if pool == "holder" else memory,
            pool=pool,
            group=group if pool else "",
            slice_percent=percent if is_member else 0,
            slice_cpu_milli=cpu if is_member else 0,
            assumed_at_s=0.0,
        )
        if not self.may_be_assumed(pod):
            with pytest.raises(DoesNotFitError, match="a"):
                self.ledger.assume(pod)
            return multiple()
        self.ledger.assume(pod)
        self.pods_by_uid[pod.uid] = pod
        return pod.uid

    @rule(uid=pods)
    def cluster_shows_it_bound(self, uid: str) -> None:
        self.confirm(uid)

    @rule(uid=pods)
    def cluster_shows_it_deleted(self, uid: str) -> None:
        self.confirm(uid, is_ending=True)

    @rule(uid=pods)
    def pod_ends(self, uid: str) -> None:
        assert self.ledger.release(uid) == self.pods_by_uid.pop(uid, None)

    @rule()
    def health_changes(self) -> None:
        self.healthy = not self.healthy
        self.ledger.set_node(node_of(self.healthy))

    def confirm(self, uid: str, **changed: bool) -> None:
        if uid in self.pods_by_uid:
            self.pods_by_uid[uid] = replace(self.pods_by_uid[uid].as_confirmed(), **changed)
            self.ledger.confirm(self.pods_by_uid[uid])

    def may_be_assumed(self, pod: Reservation) -> bool:
        there = [placed for placed in self.pods_by_uid.values() if placed.gpu_uuid == pod.gpu_uuid]
        slices = [
            placed
            for placed in there
            if placed.pool == "holder" and pool_of(placed) == pool_of(pod)
        ]
        of_pool = {
            "": True,
            "holder": not slices,
            "member": any(
                held.assumed_at_s is None
                and not held.is_ending
                and held.gpu_percent >= pod.slice_percent
                and held.cpu_milli >= pod.slice_cpu_milli
                for held in slices
            ),
        }[pod.pool]
        processes = [placed for placed in there if placed.pool != "holder"]
        cpu_milli = sum(placed.cpu_milli for placed in self.pods_by_uid.values())
        return (
            self.healthy
            and of_pool
            and cpu_milli + pod.cpu_milli <= CPU_MILLI
            and self.percent_of(there) + self.percent_of([pod]) <= 100
            and sum(placed.memory_mib for placed in there) + pod.memory_mib <= MEMORY_MIB
            and len(processes) < 3
        )

    @staticmethod
    def percent_of(pods: list[Reservation]) -> int:
        """Sum the percent that nobody else may have: of all but members."""
        return sum(pod.gpu_percent for pod in pods if pod.pool != "member")

    @invariant()
    def no_gpu_has_more_than_it_is(self) -> None:
        assert self.ledger.overcommitted() == []
        for uuid in UUIDS:
            there = [pod for pod in self.pods_by_uid.values() if pod.gpu_uuid == uuid]
            assert self.percent_of(there) <= 100
            row = self.ledger.fleet.gpu_row("a", uuid)
            assert self.ledger.fleet.arrays.gpu_free_percent[row] == 100 - self.percent_of(there)

    @invariant()
    def slices_are_those_of_the_holders(self) -> None:
        holders = {
            pod.uid: (pool_of(pod), pod.gpu_uuid, pod.gpu_percent, pod.cpu_milli)
            for pod in self.pods_by_uid.values()
            if pod.pool == "holder"
        }
        slices = self.ledger.pools.slices()
        assert holders == {s.uid: (s.pool, s.gpu_uuid, s.percent, s.cpu_milli) for s in slices}
        for slice_ in slices:
            members = [
                pod
                for pod in self.pods_by_uid.values()
                if pod.pool == "member"
                and (pool_of(pod), pod.gpu_uuid) == (slice_.pool, slice_.gpu_uuid)
            ]
            assert slice_.members == len(members)


TestPools = PoolMachine.TestCase
TestPools.settings = examples(60, stateful_step_count=40)
