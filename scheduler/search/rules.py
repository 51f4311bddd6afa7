"""Operator settings that apply to every plan."""

from dataclasses import dataclass, field
from typing import Literal

from scheduler.model.plan import Prices

SPREAD_RATIO = 0.05  # two standard deviations are the 9 % that one neighbour on a GPU costs
EXPANSIONS_MAX = 1_024  # states of one A* search


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """Settings of the planner.

    Attributes:
        policy: ``exact``: one search over all remaining stages. ``esg``: the paper's method as
            reconstructed here: the SLO is split by dominators and ANL among groups of stages, and
            one group is searched at a time with the additive bound.
        group_size: maximum number of stages in a group, for ``esg``.
        latency: plan with the ``mean`` times of the profile, or with its 95th percentiles, ``p95``,
            where it has them; a configuration without one has the largest ratio of p95 to mean of
            its function. Costs and throughput always use the mean.
        spread_ratio: standard deviation / mean of the run times of a function whose profile has no
            95th percentile.
        on_lost_slo: order of the candidates if no completion meets the budget. ``fastest`` gives
            late requests whole GPUs, which makes other requests late: a full cluster does not
            recover from that.
        expansions_max: states that one A* search may expand, for ``esg``.
    """

    prices: Prices = field(default_factory=Prices)
    policy: Literal["exact", "esg"] = "exact"
    group_size: int = 3
    latency: Literal["mean", "p95"] = "mean"
    spread_ratio: float = SPREAD_RATIO
    on_lost_slo: Literal["fastest", "cheapest"] = "cheapest"
    expansions_max: int = EXPANSIONS_MAX
