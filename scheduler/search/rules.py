"""How plans are made, whatever is asked."""

from dataclasses import dataclass, field
from typing import Literal

from scheduler.model.plan import Prices

EXPANSIONS_MAX = 1_024  # states of one A*: some ms for 12 stages x 32 configurations


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """What an operator decides about planning.

    Attributes:
        prices: of vCPUs and GPUs.
        policy: ``exact``: one search over all stages left. ``esg``: the paper's way, as
            reconstructed: the SLO is split by dominators and ANL among groups of stages, and one
            group is searched at a time with the additive bound.
        group_size: most stages of a group, for ``esg``.
        latency: plan with the profile's ``mean`` times, or with their 95th percentile, ``p95``,
            where the profile has it. What is paid and how much is served go by the mean.
        on_lost_slo: what comes first when no completion meets the budget any more. Served as fast
            as can be, late requests take whole GPUs and make others late, and a full cluster does
            not recover.
        expansions_max: states that one A* may expand to answer a question; a sweep, which makes
            the frontier for all questions to a stage, some hundred times as many, in pieces.
    """

    prices: Prices = field(default_factory=Prices)
    policy: Literal["exact", "esg"] = "exact"
    group_size: int = 3
    latency: Literal["mean", "p95"] = "mean"
    on_lost_slo: Literal["fastest", "cheapest"] = "cheapest"
    expansions_max: int = EXPANSIONS_MAX
