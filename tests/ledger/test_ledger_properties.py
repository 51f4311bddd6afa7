"""The ledger under any order of events, compared with a model that only adds up."""

from dataclasses import replace

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, multiple, rule

from scheduler.ledger.ledger import DoesNotFitError, Ledger
from scheduler.ledger.reservation import Reservation
from scheduler.model.node import Gpu, Node
from scheduler.placement.options import Limits
from tests.examples import examples

LIMITS = Limits(percent_max=100, server_context_mib=1_000, clients_max=3)
NODES = ("a", "b", "c")


def node_of(name: str, gpus: int, healthy: bool = True) -> Node:
    return Node(
        name,
        tuple(
            Gpu(
                index=index,
                uuid=f"GPU-{name}-{index}",
                model=("A100", "T4")[index % 2],
                memory_mib=10_000,
                multiprocessors=108,
                healthy=healthy,
            )
            for index in range(gpus)
        ),
        cpu_milli=8_000,
    )


class LedgerMachine(RuleBasedStateMachine):
    """A plain dictionary of reservations takes every step, too; the ledger must agree with it."""

    pods = Bundle("pods")

    def __init__(self) -> None:
        super().__init__()
        self.ledger = Ledger(LIMITS)
        self.nodes: dict[str, Node] = {}
        self.reservations: dict[str, Reservation] = {}
        self.assumed: dict[str, Reservation] = {}
        self.counter = 0

    @rule(name=st.sampled_from(NODES), gpus=st.integers(0, 3), healthy=st.booleans())
    def node_comes_or_changes(self, name: str, gpus: int, healthy: bool) -> None:
        self.nodes[name] = node_of(name, gpus, healthy)
        self.ledger.set_node(self.nodes[name])

    @rule(name=st.sampled_from(NODES))
    def node_goes(self, name: str) -> None:
        self.nodes.pop(name, None)
        self.ledger.remove_node(name)

    @rule(
        target=pods,
        name=st.sampled_from(NODES),
        gpu=st.integers(0, 3),
        percent=st.integers(1, 100),
        memory=st.integers(1, 9_500),
        cpu=st.integers(0, 5_000),
    )
    def binding_begins(self, name: str, gpu: int, percent: int, memory: int, cpu: int):
        self.counter += 1
        reservation = Reservation(
            uid=str(self.counter),
            namespace="default",
            name=f"p{self.counter}",
            node=name,
            cpu_milli=cpu,
            gpu_uuid=f"GPU-{name}-{gpu}",
            gpu_percent=percent,
            memory_mib=memory,
            assumed_at_s=0.0,
        )
        fits = self.fits(reservation)
        if not fits:
            with pytest.raises(DoesNotFitError, match=name):
                self.ledger.assume(reservation)
            return multiple()
        self.ledger.assume(reservation)
        self.reservations[reservation.uid] = self.assumed[reservation.uid] = reservation
        return reservation.uid

    @rule(uid=pods)
    def same_pod_again(self, uid: str) -> None:
        if uid in self.reservations:
            with pytest.raises(DoesNotFitError):
                self.ledger.assume(self.reservations[uid])

    @rule(uid=pods)
    def cluster_shows_it_bound(self, uid: str) -> None:
        if uid in self.reservations:
            self.reservations[uid] = self.reservations[uid].as_confirmed()
            self.ledger.confirm(self.reservations[uid])

    @rule(uid=pods, name=st.sampled_from(NODES), percent=st.integers(1, 100))
    def cluster_shows_other_values(self, uid: str, name: str, percent: int) -> None:
        if uid in self.reservations:
            changed = replace(
                self.reservations[uid], node=name, gpu_uuid=f"GPU-{name}-0", gpu_percent=percent
            )
            self.reservations[uid] = changed.as_confirmed()
            self.ledger.confirm(changed)

    @rule(uid=pods)
    def binding_is_refused(self, uid: str) -> None:
        assumed = self.assumed[uid]
        is_reserved = self.reservations.get(uid) is assumed
        assert self.ledger.withdraw(assumed) == is_reserved
        if is_reserved:
            del self.reservations[uid]

    @rule(uid=consumes(pods))
    def pod_goes(self, uid: str) -> None:
        assert self.ledger.release(uid) == self.reservations.pop(uid, None)

    @rule()
    def arrays_are_compacted(self) -> None:
        self.ledger.fleet.compact()

    def fits(self, reservation: Reservation) -> bool:
        node = self.nodes.get(reservation.node)
        gpu = next((g for g in node.gpus if g.uuid == reservation.gpu_uuid), None) if node else None
        if node is None or gpu is None or not gpu.healthy:
            return False
        on_node = [placed for placed in self.reservations.values() if placed.node == node.name]
        on_gpu = [placed for placed in on_node if placed.gpu_uuid == gpu.uuid]
        return (
            sum(o.cpu_milli for o in on_node) + reservation.cpu_milli <= node.cpu_milli
            and sum(o.gpu_percent for o in on_gpu) + reservation.gpu_percent <= 100
            and sum(o.memory_mib for o in on_gpu) + reservation.memory_mib <= gpu.memory_mib - 1_000
            and len(on_gpu) < 3
        )

    @invariant()
    def free_capacity_is_what_the_reservations_leave(self) -> None:
        fleet = self.ledger.fleet
        assert sorted(self.ledger.node_names()) == sorted(self.nodes)
        for node in self.nodes.values():
            row = fleet.node_row[node.name]
            on_node = [
                reservation
                for reservation in self.reservations.values()
                if reservation.node == node.name
            ]
            reserved_milli = sum(reservation.cpu_milli for reservation in on_node)
            assert fleet.arrays.node_free_cpu_milli[row] == node.cpu_milli - reserved_milli
            for gpu in node.gpus:
                on_gpu = [
                    reservation for reservation in on_node if reservation.gpu_uuid == gpu.uuid
                ]
                gpu_row = fleet.gpu_row(node.name, gpu.uuid)
                assert fleet.arrays.gpu_free_percent[gpu_row] == 100 - sum(
                    h.gpu_percent for h in on_gpu
                )
                assert fleet.arrays.gpu_free_memory_mib[gpu_row] == 9_000 - sum(
                    h.memory_mib for h in on_gpu
                )
                assert fleet.arrays.gpu_free_clients[gpu_row] == 3 - len(on_gpu)
                usable = fleet.arrays.gpu_model[gpu_row]
                assert usable == (fleet.model_number(gpu.model) if gpu.healthy else -1)

    @invariant()
    def models_are_those_of_the_gpus(self) -> None:
        models = {gpu.model for node in self.nodes.values() for gpu in node.gpus}
        assert set(self.ledger.fleet.capacity.models) == models
        numbers = [self.ledger.fleet.model_number(model) for model in models]
        assert len(set(numbers) - {-1}) == len(models)

    @invariant()
    def overcommits_are_those_that_add_up_to_more(self) -> None:
        reported = {over.gpu_uuid for over in self.ledger.overcommitted()}
        expected = set()
        for node in self.nodes.values():
            for gpu in node.gpus:
                reservations = [h for h in self.reservations.values() if h.gpu_uuid == gpu.uuid]
                if (
                    sum(h.gpu_percent for h in reservations) > 100
                    or sum(h.memory_mib for h in reservations) > 9_000
                    or len(reservations) > 3
                ):
                    expected.add(gpu.uuid)
        assert reported == expected

    @invariant()
    def snapshot_shows_every_reservation_on_a_gpu_once(self) -> None:
        shown = [
            pod["uid"]
            for node in self.ledger.snapshot()
            for gpu in node["gpus"]
            for pod in gpu["pods"]
        ]
        there = [
            uid
            for uid, reservation in self.reservations.items()
            if reservation.node in self.nodes
            and any(gpu.uuid == reservation.gpu_uuid for gpu in self.nodes[reservation.node].gpus)
        ]
        assert sorted(shown) == sorted(there)


TestLedger = LedgerMachine.TestCase
TestLedger.settings = examples(60, stateful_step_count=40)
