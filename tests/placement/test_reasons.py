"""Reasons of refusals: numbers, and whether evicting pods could help."""

import re

import numpy as np
import pytest

from scheduler.ledger.ledger import Ledger
from scheduler.ledger.reservation import Reservation
from scheduler.model.node import Gpu, Node
from scheduler.model.plan import Candidate, Configuration
from scheduler.placement.options import Limits
from scheduler.placement.placement import place
from scheduler.placement.reasons import refusals


def gpu(
    index: int,
    model: str = "A100",
    memory_mib: int = 8_192,
    healthy: bool = True,
    uuid: str | None = None,
) -> Gpu:
    return Gpu(
        index=index,
        uuid=uuid or f"GPU-{model}-{index}",
        model=model,
        memory_mib=memory_mib,
        multiprocessors=108,
        healthy=healthy,
    )


def candidate(
    percent: int, memory_mib: int, cpu: int = 1, model: str = "A100", start_ms: float = 0.0
) -> Candidate:
    configuration = Configuration(1, cpu, percent, memory_mib, 10.0)
    return Candidate(configuration, model, 10.0, 10.0 + start_ms, 1e-5, start_ms)


def refusal_of_n1(
    ledger: Ledger, *candidates: Candidate, budget_ms: float | None = None, **starts_ms: float
):
    """Return the refusal of n1; ``starts_ms`` names the nodes, where it is not n1 alone."""
    starts_ms = starts_ms or {"n1": 0.0}
    names = list(starts_ms)
    placement = place(
        ledger.fleet,
        candidates,
        ledger.fleet.rows(names),
        node_start_ms=np.array(list(starts_ms.values())),
    )
    return refusals(placement, names, budget_ms)["n1"]


def ledger_of(*gpus: Gpu, cpu_milli: int = 16_000, limits: Limits | None = None) -> Ledger:
    ledger = Ledger(limits)
    ledger.set_node(Node("n1", gpus, cpu_milli))
    return ledger


def test_full_gpu_tells_the_nearest_one():
    """The nearest of two full GPUs is reported, for the least demanding candidate."""
    ledger = ledger_of(gpu(0), gpu(1))
    ledger.confirm(Reservation("a", "d", "a", "n1", 0, "GPU-A100-0", 80, 1_000))
    ledger.confirm(Reservation("b", "d", "b", "n1", 0, "GPU-A100-1", 60, 1_000))
    refusal = refusal_of_n1(ledger, candidate(90, 2_000), candidate(55, 2_000))
    assert refusal.reason == "GPU 1: 40 % free, 55 % asked; 6,168 MiB free, 2,000 asked"
    assert refusal.resolvable


def test_no_vcpu_left():
    """Free and requested CPU is reported in vCPUs."""
    ledger = ledger_of(gpu(0), cpu_milli=1_500)
    assert refusal_of_n1(ledger, candidate(10, 100, cpu=2)).reason == "1.5 vCPU free, 2 asked"


@pytest.mark.parametrize(
    ("ledger", "reason"),
    [
        pytest.param(ledger_of(), "no GPU to share", id="no GPU"),
        pytest.param(ledger_of(gpu(0, model="T4")), "its GPUs are T4", id="another model"),
        pytest.param(ledger_of(gpu(2, healthy=False)), r"unhealthy \(GPU 2\)", id="unhealthy"),
        pytest.param(ledger_of(gpu(0, memory_mib=2_000)), "too large for any GPU", id="too small"),
        pytest.param(
            ledger_of(gpu(0), limits=Limits(percent_max=10)),
            "too large for any",
            id="share ceiling",
        ),
    ],
)
def test_what_no_eviction_can_change_is_unresolvable(ledger, reason):
    """kube-scheduler must not evict pods from a node that could never hold the pod."""
    refusal = refusal_of_n1(ledger, candidate(30, 2_000))
    assert not refusal.resolvable
    assert re.search(reason, refusal.reason)


def test_clients_of_mps_are_counted():
    """A GPU with share and memory left but no client slot reason so."""
    ledger = ledger_of(gpu(0), limits=Limits(clients_max=1))
    ledger.confirm(Reservation("a", "d", "a", "n1", 0, "GPU-A100-0", 1, 1))
    assert refusal_of_n1(ledger, candidate(10, 100)).reason.endswith("all 1 MPS clients taken")


@pytest.fixture
def two() -> Ledger:
    """n1 and n2, each with one GPU that is free."""
    ledger = ledger_of(gpu(0))
    ledger.set_node(Node("n2", (gpu(0, uuid="GPU-n2"),), 16_000))
    return ledger


def test_a_start_that_no_candidate_has_time_for(two):
    """The message has the start time and the time available; eviction makes nothing faster."""
    refusal = refusal_of_n1(two, candidate(10, 100), budget_ms=130.9, n1=2_300.0, n2=0.0)
    assert refusal.reason == "starts this function in 2,300 ms, 120 ms are left for it"
    assert not refusal.resolvable


def test_a_start_that_is_too_slow_while_the_fast_nodes_are_full(two):
    """It fits on no node: the slow one reports its start, and no pod is to be evicted there."""
    two.confirm(Reservation("a", "d", "a", "n2", 0, "GPU-n2", 100, 0))
    refusal = refusal_of_n1(two, candidate(10, 100), budget_ms=50, n1=2_300.0, n2=0.0)
    assert refusal.reason == "starts this function in 2,300 ms, 40 ms are left for it"
    assert not refusal.resolvable


def test_a_start_that_a_dearer_candidate_has_time_for(two):
    """The chosen candidate fits elsewhere; another candidate could fit on the node."""
    candidates = [candidate(10, 100), candidate(90, 100, start_ms=2_300)]
    refusal = refusal_of_n1(two, *candidates, budget_ms=2_400, n1=2_300.0, n2=0.0)
    assert refusal.reason == (
        "starts this function in 2,300 ms; the plan takes nodes that start it within 0 ms"
    )
    assert refusal.resolvable


def test_full_nodes_report_what_fits_for_their_start(two):
    """A slow node lacks room for the candidate that it has time for, not for the smallest."""
    for name, uuid in (("n1", "GPU-A100-0"), ("n2", "GPU-n2")):
        two.confirm(Reservation(name, "d", name, name, 0, uuid, 95, 0))
    candidates = [candidate(10, 100), candidate(90, 100, start_ms=2_300)]
    refusal = refusal_of_n1(two, *candidates, budget_ms=2_400, n1=2_300.0, n2=0.0)
    assert refusal.reason == "GPU 0: 5 % free, 90 % asked; 7,168 MiB free, 100 asked"
    assert refusal.resolvable


def test_full_nodes_report_what_fits_on_their_gpus():
    """In a fleet of two models each node reports the candidate for its own."""
    ledger = ledger_of(gpu(0, model="T4"))
    ledger.confirm(Reservation("a", "d", "a", "n1", 0, "GPU-T4-0", 50, 0))
    candidates = [candidate(14, 100, model="A100"), candidate(60, 100, model="T4")]
    assert refusal_of_n1(ledger, *candidates).reason.startswith("GPU 0: 50 % free, 60 % asked")


def test_a_better_candidate_on_other_gpus(two):
    """A node with free capacity is refused when the chosen candidate is for another model."""
    two.set_node(Node("n1", (gpu(0, model="T4"),), 16_000))
    refusal = refusal_of_n1(two, candidate(14, 100), candidate(60, 100, model="T4"), n1=0.0, n2=0.0)
    assert refusal.reason == ("its GPUs are T4; a cheaper candidate fits on other nodes (A100)")
    assert refusal.resolvable
