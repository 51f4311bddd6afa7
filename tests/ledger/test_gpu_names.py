"""A GPU that is known under two node names, as after a machine was renamed, is given to nobody."""

import pytest

from scheduler.ledger.gpu_names import NameConflict
from scheduler.ledger.ledger import DoesNotFitError, Ledger
from scheduler.ledger.reservation import Reservation
from scheduler.model.node import Gpu, Node
from scheduler.placement.options import Limits

UUID = "GPU-0"


def node(name: str, *uuids: str) -> Node:
    gpus = (
        Gpu(index=i, uuid=uuid, model="T4", memory_mib=9_000, multiprocessors=40, healthy=True)
        for i, uuid in enumerate(uuids)
    )
    return Node(name, tuple(gpus), cpu_milli=8_000)


def share(uid: str, name: str, *, uuid: str = UUID) -> Reservation:
    return Reservation(uid, "default", uid, name, 1_000, uuid, 60, 1_000)


@pytest.fixture
def ledger() -> Ledger:
    return Ledger(Limits())


def is_usable(ledger: Ledger, name: str, uuid: str = UUID) -> bool:
    """Return true if a share of the GPU can be assumed there; nothing stays reserved."""
    trial = share("trial", name, uuid=uuid)
    try:
        ledger.assume(trial)
    except DoesNotFitError:
        return False
    assert ledger.withdraw(trial)
    return True


def test_two_names_block_the_gpu_and_no_other(ledger: Ledger) -> None:
    """Neither node gets a pod on it, and both are reported; their other GPUs go on."""
    ledger.set_node(node("old", UUID, "GPU-1"))
    assert is_usable(ledger, "old")
    ledger.set_node(node("new", UUID, "GPU-2"))
    assert not is_usable(ledger, "old")
    assert not is_usable(ledger, "new")
    assert is_usable(ledger, "old", "GPU-1")
    assert is_usable(ledger, "new", "GPU-2")
    assert ledger.name_conflicts() == [
        NameConflict("new", 0, UUID, ("old",)),
        NameConflict("old", 0, UUID, ("new",)),
    ]


def test_the_name_that_stays_gets_the_gpu_back(ledger: Ledger) -> None:
    """The wrong Node is deleted, or publishes the GPU no more; a retry may fit from then on."""
    ledger.set_node(node("old", UUID))
    ledger.set_node(node("new", UUID))
    epoch = ledger.free_capacity_epoch
    ledger.remove_node("old")
    assert is_usable(ledger, "new")
    assert ledger.free_capacity_epoch > epoch
    ledger.set_node(node("old", UUID))
    assert not is_usable(ledger, "new")
    ledger.set_node(node("old"))
    assert is_usable(ledger, "new")
    assert ledger.name_conflicts() == []


def test_pods_under_the_former_name_keep_the_gpu(ledger: Ledger) -> None:
    """Their Node is gone, and their containers may run: 60 and 60 % would be 120."""
    ledger.set_node(node("old", UUID))
    ledger.confirm(share("pod", "old"))
    ledger.remove_node("old")
    ledger.set_node(node("new", UUID))
    assert not is_usable(ledger, "new")
    assert ledger.name_conflicts() == [NameConflict("new", 0, UUID, ("old",))]
    ledger.release("pod")
    assert is_usable(ledger, "new")


def test_a_pod_of_another_name_that_appears_later_blocks_the_gpu(ledger: Ledger) -> None:
    """The list of pods may come after that of nodes."""
    ledger.set_node(node("new", UUID))
    ledger.confirm(share("pod", "old"))
    assert not is_usable(ledger, "new")


def test_shares_on_a_blocked_gpu_still_count(ledger: Ledger) -> None:
    """Pods that the cluster shows are confirmed, and reported where they exceed the GPU."""
    for name in ("old", "new"):
        ledger.set_node(node(name, UUID))
    ledger.confirm(share("a", "new"))
    ledger.confirm(share("b", "new"))
    assert [over.percent for over in ledger.overcommitted()] == [120]
    ledger.remove_node("old")
    assert [over.percent for over in ledger.overcommitted()] == [120]
