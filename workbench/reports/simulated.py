"""Results of simulated policies: summaries over all seeds, and the lines of the figures."""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, stdev

from workbench.reports.points import Waterfall

PHASES = ("waiting for room", "starting", "input on its way", "running")


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulatedPolicy:
    """Results of one policy under one setting.

    Attributes:
        name, setting: names of the policy and of the setting.
        requests, misses, dropped: totals over all seeds.
        hit_ratios: hits divided by requests, per seed.
        costs_dollars_per_thousand: dollars paid per 1,000 requests for what was set aside, per
            seed.
        paid_bound_ratio: ratio of the cost to the least of the same requests; None without a bound.
        split: parts of the cost over that least cost, mean over seeds; None without a bound.
        idle_dollars_per_thousand: dollars of these for which nothing ran, mean over seeds.
        state: verdict on the steady state, and the warm-up that is left out.
        hits_over_time: (s, hit ratio of the requests that arrived then), of the first seed.
        p50_slo_ratio, p99_slo_ratio: latency divided by SLO.
        latencies: (latency divided by SLO, fraction of all requests within it), ascending.
        utilisation: (s, reserved fraction of all GPUs' share), of the first seed.
        mean_utilisation_ratio: mean over the whole time and all seeds.
        missed_ms: mean time of a missed request in each of `PHASES`.
        mean_batch_size: requests per dispatch.
        dispatches_per_s: dispatches per second of the virtual clock.
        cold_starts: mean number per seed.
    """

    name: str
    setting: str
    requests: int
    misses: int
    dropped: int
    hit_ratios: tuple[float, ...]
    costs_dollars_per_thousand: tuple[float, ...]
    idle_dollars_per_thousand: float
    paid_bound_ratio: float | None
    split: Waterfall | None
    state: str
    hits_over_time: tuple[tuple[float, float], ...]
    p50_slo_ratio: float
    p99_slo_ratio: float
    latencies: tuple[tuple[float, float], ...]
    utilisation: tuple[tuple[float, float], ...]
    mean_utilisation_ratio: float
    missed_ms: tuple[float, float, float, float]
    mean_batch_size: float
    dispatches_per_s: float
    cold_starts: float

    @property
    def hit_ratio(self) -> float:
        """Mean over seeds."""
        return fmean(self.hit_ratios)

    @property
    def cost_dollars_per_thousand(self) -> float:
        """Mean over seeds, dollars."""
        return fmean(self.costs_dollars_per_thousand)


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """Comparison of policies under settings.

    Attributes:
        policies: results of all settings, grouped by setting.
        remarks: sentences to show first.
        facts: parameters of the simulation, as names and texts.
    """

    policies: tuple[SimulatedPolicy, ...]
    remarks: tuple[str, ...] = ()
    facts: tuple[tuple[str, str], ...] = ()

    @property
    def settings(self) -> list[str]:
        """Names of the settings."""
        return list(dict.fromkeys(policy.setting for policy in self.policies))

    @property
    def names(self) -> list[str]:
        """Names of the policies."""
        return list(dict.fromkeys(policy.name for policy in self.policies))

    @property
    def seeds(self) -> int:
        """Largest number of seeds of a policy."""
        return max((len(policy.hit_ratios) for policy in self.policies), default=0)

    def under(self, setting: str) -> list[SimulatedPolicy]:
        """Return the policies of one setting."""
        return [policy for policy in self.policies if policy.setting == setting]


def seed_sigma(values: Sequence[float]) -> float | None:
    """Return the standard deviation over seeds; None for a single seed."""
    return stdev(values) if len(values) > 1 else None
