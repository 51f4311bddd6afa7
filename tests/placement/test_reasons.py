"""What a refused node says: numbers, and whether evicting could help."""

import re

import pytest

from scheduler.ledger.ledger import Ledger
from scheduler.ledger.reservation import Reservation
from scheduler.model.node import Gpu, Node
from scheduler.model.plan import Candidate, Configuration
from scheduler.placement.placing import place
from scheduler.placement.reasons import Limits, refusals


def gpu(index: int, model: str = "A100", memory_mib: int = 8_192, healthy: bool = True) -> Gpu:
    return Gpu(
        index=index,
        uuid=f"GPU-{model}-{index}",
        model=model,
        memory_mib=memory_mib,
        multiprocessors=108,
        healthy=healthy,
    )


def candidate(percent: int, memory_mib: int, cpu: int = 1, model: str = "A100") -> Candidate:
    return Candidate(Configuration(1, cpu, percent, memory_mib, 10.0), model, 10.0, 10.0, 1e-5)


def told(ledger: Ledger, *asked: Candidate):
    names = ["n1"]
    placing = place(ledger.fleet, asked, ledger.fleet.rows(names))
    return refusals(ledger.fleet, placing, names, ledger.limits)["n1"]


def ledger_of(*gpus: Gpu, cpu_milli: int = 16_000, limits: Limits | None = None) -> Ledger:
    ledger = Ledger(limits)
    ledger.set_node(Node("n1", gpus, cpu_milli))
    return ledger


def test_full_gpu_tells_the_nearest_one():
    """Of two full GPUs the one that comes nearest is told, for the least demanding candidate."""
    ledger = ledger_of(gpu(0), gpu(1))
    ledger.confirm(Reservation("a", "d", "a", "n1", 0, "GPU-A100-0", 80, 1_000))
    ledger.confirm(Reservation("b", "d", "b", "n1", 0, "GPU-A100-1", 60, 1_000))
    refusal = told(ledger, candidate(90, 2_000), candidate(55, 2_000))
    assert refusal.reason == "GPU 1: 40 % free, 55 % asked; 6,168 MiB free, 2,000 asked"
    assert refusal.resolvable


def test_no_vcpu_left():
    """What is free and what is asked is told in vCPUs."""
    ledger = ledger_of(gpu(0), cpu_milli=1_500)
    assert told(ledger, candidate(10, 100, cpu=2)).reason == "1.5 vCPU free, 2 asked"


@pytest.mark.parametrize(
    ("ledger", "says"),
    [
        pytest.param(ledger_of(), "no GPU to share", id="no GPU"),
        pytest.param(ledger_of(gpu(0, model="T4")), "its GPUs are T4", id="another model"),
        pytest.param(ledger_of(gpu(2, healthy=False)), r"unhealthy \(GPU 2\)", id="ill"),
        pytest.param(ledger_of(gpu(0, memory_mib=2_000)), "too large for any GPU", id="too small"),
        pytest.param(
            ledger_of(gpu(0), limits=Limits(percent_max=10)),
            "too large for any",
            id="share ceiling",
        ),
    ],
)
def test_what_no_eviction_can_change_is_unresolvable(ledger, says):
    """kube-scheduler must not evict pods from a node that could never hold the pod."""
    refusal = told(ledger, candidate(30, 2_000))
    assert not refusal.resolvable
    assert re.search(says, refusal.reason)


def test_clients_of_mps_are_counted():
    """A GPU with share and memory left but no client slot says so."""
    ledger = ledger_of(gpu(0), limits=Limits(clients_max=1))
    ledger.confirm(Reservation("a", "d", "a", "n1", 0, "GPU-A100-0", 1, 1))
    assert told(ledger, candidate(10, 100)).reason.endswith("all 1 MPS clients taken")
