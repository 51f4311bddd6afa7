"""Candidates are placed by share, with the results of placing one after another."""

import pytest

from scheduler.model.catalogue import Catalogue
from scheduler.placement.candidates import CandidateTable
from tests.simulation.harness import Poisson, quiet, run
from workbench.profiles.builders import profile, workflow
from workbench.simulation.queues.dispatcher import QueueDispatcher

ROWS = [(b, 1, p, 90 * b**0.6 / (p / 20) ** 0.7) for b in (1, 2, 4) for p in (20, 40, 60)]
CATALOGUE = Catalogue.of(
    [
        workflow([[], [0]], slo_ms=150.0),
        profile("f0", ROWS, cold_start_ms=40.0),
        profile("f1", ROWS, cold_start_ms=400.0),
    ]
)


def naive_place(dispatcher, queue, offers, inputs, now_ms):
    """Naive twin of the dispatcher's placement: each candidate in a call of its own."""
    for candidate, grant in zip(offers.candidates, offers.grants, strict=True):
        table = CandidateTable(dispatcher._cluster.ledger.fleet, [candidate])
        ready_ms = queue.function.pool(grant).ready_ms
        place = queue.placer.best_gpu(
            table, inputs.node_transfer_ms, ready_ms, now_ms, inputs.nodes
        )
        if place is not None:
            return grant, place[1]
    return None


@pytest.mark.replaces
@pytest.mark.parametrize("placement", ["pack", "defrag"])
@pytest.mark.parametrize("idle_share", [True, False])
@pytest.mark.parametrize(
    "policy",
    ["exact", *(pytest.param(p, marks=pytest.mark.slow) for p in ("grandslam", "random"))],
)
def test_placement_by_share_is_placement_in_order(monkeypatch, policy, idle_share, placement):
    """On a cluster that is full most of the time, with every record of a request and a run."""
    scenario = quiet(
        nodes=3, resizable=False, idle_share=idle_share, placement=placement, prewarm=True
    )
    recorded = [run(scenario, CATALOGUE, Poisson(9.0, seed=5), policy, requests=150)]
    assert recorded[0].result.placement_failures > 0
    monkeypatch.setattr(QueueDispatcher, "_place", naive_place)
    recorded.append(run(scenario, CATALOGUE, Poisson(9.0, seed=5), policy, requests=150))
    by_share, in_order = [(r.result.as_json(), r.requests, r.spans) for r in recorded]
    assert in_order == by_share
