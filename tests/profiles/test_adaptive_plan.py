"""Points that the adaptive plan measures, and the planner's cost with them."""

from itertools import pairwise

import numpy as np
import pytest

from scheduler.model.catalogue import Catalogue
from scheduler.model.documents import FunctionProfile, to_manifest
from scheduler.model.plan import Prices
from scheduler.search.planner import Planner, PlanRequest
from scheduler.search.rules import Rules
from workbench.profiles.adaptive_plan import ERROR_RATIO, next_points
from workbench.profiles.builders import graph
from workbench.profiles.dominance import point
from workbench.profiles.generated import FUNCTIONS, GPU_MODEL, generated_profile
from workbench.simulation.rng import Noise

SCALES_BADLY = ("super-resolution", "segmentation", "deblur", "classification")
"""Functions whose cost depends much on the share, so that few points can be the cheapest."""


def measured_by_plan(grid_ms):
    """Measure what the plan asks for; return the latencies by point."""
    measured_ms = {}
    while points := next_points(grid_ms, measured_ms, prices=Prices()):
        assert not measured_ms.keys() & set(points)
        measured_ms |= {place: grid_ms[place] for place in points}
    return measured_ms


def full_profile(name, noise_ratio):
    """Return a generated profile with noise on its latencies."""
    (function,) = (function for function in FUNCTIONS if function.name == name)
    profile = generated_profile(function)
    noise = Noise(np.random.default_rng(3), noise_ratio)
    rows = [
        row.model_copy(update={"latency_ms": row.latency_ms * noise.take_factor(), "p95_ms": None})
        for row in profile.spec.gpus[0].configurations
    ]
    return with_rows(profile, rows)


def with_rows(profile, rows):
    gpu = {"model": GPU_MODEL, "sparse": True}
    configurations = [row.model_dump(by_alias=True, exclude_none=True) for row in rows]
    manifest = to_manifest(profile)
    manifest["spec"] = {"gpus": [{**gpu, "configurations": configurations}]}
    return FunctionProfile.model_validate(manifest)


def costs(profile, slacks_ms, queues):
    """Return the planner's costs of one request, by slack and queue."""
    flow = graph({"only": [profile.metadata.name]})
    planner = Planner(Catalogue.of([profile, flow]), Rules())
    plans = [
        planner.plan(
            PlanRequest(
                namespace="default", workflow="w", stage="only", slack_ms=slack_ms, queued=queued,
                margin_ratio=0.0, k=1,
            )
        )
        for slack_ms in slacks_ms
        for queued in queues
    ]  # fmt: skip
    assert all(plan.feasible for plan in plans)
    return [plan.candidates[0].path_cost_dollars for plan in plans]


def check_costs(name, noise_ratio):
    """Compare the planner's costs; return the measured part of the grid."""
    profile = full_profile(name, noise_ratio)
    rows = {point(row): row for row in profile.spec.gpus[0].configurations}
    measured_ms = measured_by_plan({place: row.latency_ms for place, row in rows.items()})
    sparse = with_rows(profile, [rows[place] for place in measured_ms])
    fastest_ms = min(row.latency_ms for row in rows.values() if row.batch == 1)
    slacks_ms = fastest_ms * np.geomspace(1.0001, 200, 60)
    queues = (1, 3, 8, 16)
    for full, adaptive in zip(
        costs(profile, slacks_ms, queues), costs(sparse, slacks_ms, queues), strict=True
    ):
        assert adaptive <= full * (1 + ERROR_RATIO)
    return len(measured_ms) / len(rows)


@pytest.mark.parametrize("noise_ratio", [0.0, 0.01])
@pytest.mark.parametrize("name", SCALES_BADLY)
def test_measures_less_than_a_third(name, noise_ratio):
    """The planner's cost is within 2 % of the full grid's, with under a third of its points."""
    assert check_costs(name, noise_ratio) < 1 / 3


@pytest.mark.parametrize("name", sorted({f.name for f in FUNCTIONS} - {*SCALES_BADLY}))
def test_functions_that_scale_well(name):
    """More points are measured if nearly all shares cost the same, and the bound holds."""
    assert check_costs(name, 0.01) < 2 / 3


def test_measures_all_of_a_small_grid():
    """Three batches at one server have nothing between them to skip."""
    grid_ms = {(batch, 1, 100): 10.0 + batch for batch in (1, 2, 4)}
    assert measured_by_plan(grid_ms) == grid_ms


def test_time_stops_falling_between_measured_shares():
    """Three points fit a parabola, whatever lies between them: they are no measure of its error."""
    grid_ms = {
        (1, 1, percent): 100.0 / (min(percent, 90) / 10) ** 1.2 for percent in range(10, 101, 10)
    }
    measured_ms = measured_by_plan(grid_ms)
    minima = [
        min(
            Prices().request_cost_dollars(ms, cpu, percent, batch)
            for (batch, cpu, percent), ms in times_ms.items()
        )
        for times_ms in (grid_ms, measured_ms)
    ]
    assert minima[1] <= minima[0] * (1 + ERROR_RATIO)


def test_points_are_sorted_by_server():
    """The points of one share and number of vCPUs follow one another: a restart takes long."""
    grid = [(b, c, g) for b in (1, 2, 4, 8) for c in (1, 2, 4) for g in (14, 28, 56)]
    points = next_points(grid, {}, prices=Prices())
    servers = [places[1:] for places in points]
    changes = sum(before != after for before, after in pairwise(servers))
    assert changes == len(set(servers)) - 1
