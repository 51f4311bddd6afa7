"""Reservations from the Binding until the cluster shows it."""

import pytest

from scheduler.ledger.ledger import DoesNotFitError, Ledger
from scheduler.ledger.reservation import Reservation
from scheduler.model.node import Gpu, Node

GPU = Gpu(index=3, uuid="GPU-3", model="A100", memory_mib=8_192, multiprocessors=108, healthy=True)


def ledger_with_one_gpu() -> Ledger:
    ledger = Ledger()
    ledger.set_node(Node("n1", (GPU,), 16_000))
    return ledger


def reservation_of(uid: str, percent: int = 60, memory_mib: int = 2_000, at_s: float | None = 10.0):
    return Reservation(
        uid, "default", f"pod-{uid}", "n1", 1_000, "GPU-3", percent, memory_mib, assumed_at_s=at_s
    )


def test_second_pod_is_refused_with_what_is_free_and_what_is_asked():
    """A GPU with 40 % free refuses 60 %, in numbers."""
    ledger = ledger_with_one_gpu()
    ledger.assume(reservation_of("1"))
    with pytest.raises(DoesNotFitError, match="40 % free, 60 % asked; 5,168 MiB free, 2,000 asked"):
        ledger.assume(reservation_of("2"))


def test_an_old_unconfirmed_reservation_is_reported():
    """Only reservations that are old enough and not confirmed are reported."""
    ledger = ledger_with_one_gpu()
    ledger.assume(reservation_of("1", percent=10, at_s=10.0))
    ledger.assume(reservation_of("2", percent=10, at_s=20.0))
    ledger.confirm(reservation_of("3", percent=10))
    assert [reservation.uid for reservation in ledger.unconfirmed_since(15.0)] == ["1"]


def test_what_the_cluster_shows_replaces_what_was_assumed():
    """The confirmed share counts, not the sum of both."""
    ledger = ledger_with_one_gpu()
    ledger.assume(reservation_of("1", percent=60))
    ledger.confirm(reservation_of("1", percent=30))
    ledger.assume(reservation_of("2", percent=70))
    assert ledger.overcommitted() == []


def test_an_unhealthy_gpu_takes_nothing_more_and_keeps_its_reservations():
    """Health changes what may be assumed, not what is reserved."""
    ledger = ledger_with_one_gpu()
    ledger.assume(reservation_of("1", percent=30))
    ledger.set_node(Node("n1", (GPU.model_copy(update={"healthy": False}),), 16_000))
    with pytest.raises(DoesNotFitError, match="not healthy"):
        ledger.assume(reservation_of("2", percent=30))
    reservation = ledger.reservation("1")
    assert reservation is not None
    assert reservation.gpu_percent == 30


def test_a_node_that_returns_has_its_pods_still():
    """A node object that was deleted and created again does not free what its pods reserved."""
    ledger = ledger_with_one_gpu()
    ledger.confirm(reservation_of("1", percent=90))
    ledger.remove_node("n1")
    ledger.set_node(Node("n1", (GPU,), 16_000))
    with pytest.raises(DoesNotFitError, match="10 % free, 20 % asked"):
        ledger.assume(reservation_of("2", percent=20))


@pytest.mark.slow
def test_many_nodes_coming_and_going_do_not_grow_the_arrays():
    """Rows of removed nodes are used again."""
    ledger = Ledger()
    for round_number in range(200):
        for n in range(20):
            gpus = tuple(
                GPU.model_copy(update={"uuid": f"GPU-{round_number}-{n}-{i}"}) for i in range(8)
            )
            ledger.set_node(Node(f"n{n}", gpus[: 1 + (round_number + n) % 8], 16_000))
    assert len(ledger.fleet.gpus) < 4_000
    assert len(ledger.fleet.nodes) == 20


def test_a_pod_that_lacks_memory_alone_is_refused():
    """A GPU with half of its percent free, and with too little memory, takes nothing more."""
    ledger = ledger_with_one_gpu()
    ledger.assume(reservation_of("1", percent=10, memory_mib=7_000))
    with pytest.raises(DoesNotFitError, match="90 % free, 10 % asked; 168 MiB free, 169 asked"):
        ledger.assume(reservation_of("2", percent=10, memory_mib=169))
    ledger.assume(reservation_of("2", percent=10, memory_mib=168))
    assert ledger.overcommitted() == []
