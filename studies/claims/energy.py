"""Energy-efficient scheduling of serverless functions: the planner with watts in place of prices.

The planner minimises vCPU-time and share-time by their prices. With the watts of the energy model
as prices it minimises the energy that keeps requests in time, without the published frequency
scaling, as profiles are of one clock frequency.
"""

from pathlib import Path
from statistics import fmean

import numpy as np

from scheduler.model.catalogue import Catalogue
from scheduler.model.plan import Prices
from scheduler.search.rules import Rules
from studies.claims.claim import ClaimedChange
from workbench.profiles.generated import samples
from workbench.simulation.engine import simulate
from workbench.simulation.result import Result
from workbench.simulation.scenario import Power, Scenario
from workbench.simulation.workloads.poisson import Poisson

_SEEDS = range(1)
_RATES_RPS = (2.0, 8.0)
_REQUESTS = 400
_NODES = 8
_POWER = Power()
_WATTS = Prices(
    vcpu_hour_dollars=_POWER.vcpu_watts,
    gpu_hour_dollars=_POWER.gpu_max_watts - _POWER.gpu_idle_watts,
)


def energy_changes(data: Path) -> list[ClaimedChange]:  # noqa: ARG001 - needs no data
    """Compare energy and misses with those of the planner by prices, and of other policies."""
    own = {rate: _results("exact", rate, _WATTS) for rate in _RATES_RPS}
    changes = []
    for rival in ("exact", "minimum"):
        joules_ratio, missed_points = {}, {}
        for rate in _RATES_RPS:
            others = _results(rival, rate, Prices())
            label = f"{rate:g} requests/s"
            joules_ratio[label] = _joules(own[rate]) / _joules(others) - 1
            missed_points[label] = _missed_ratio(own[rate]) - _missed_ratio(others)
        name = f"{rival} by prices" if rival == "exact" else rival
        changes += [
            ClaimedChange(
                what=f"energy per request against {name}",
                claimed_ratio=0.0,
                changes_ratio=joules_ratio,
            ),
            ClaimedChange(
                what=f"requests not in time against {name}",
                claimed_ratio=0.0,
                changes_ratio=missed_points,
                points=True,
            ),
        ]
    return changes


def _results(policy: str, rate_rps: float, prices: Prices) -> list[Result]:
    catalogue = Catalogue.of(samples())
    workflows = tuple(sorted(catalogue.workflows))
    scenario = Scenario(nodes=_NODES, rules=Rules(prices=prices), warmup_ms=0.0)
    arrivals = Poisson(rate_rps=rate_rps)
    return [
        simulate(
            scenario,
            catalogue,
            arrivals.arrivals(workflows, seed=np.random.SeedSequence(seed)),
            policy,
            requests=_REQUESTS,
            seed=seed,
        )
        for seed in _SEEDS
    ]


def _joules(results: list[Result]) -> float:
    return fmean(result.joules_per_request for result in results)


def _missed_ratio(results: list[Result]) -> float:
    return fmean(1 - result.hit_ratio for result in results)
