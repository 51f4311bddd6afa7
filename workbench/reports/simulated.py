"""What is known of simulated policies: figures over all seeds, and the lines that are drawn."""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, stdev

PHASES = ("waiting for room", "starting", "input on its way", "running")


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulatedPolicy:
    """One policy under one setting.

    Attributes:
        policy, setting: their names.
        requests, misses, dropped: of all seeds.
        hit_ratios: hits over requests, of each seed.
        costs_per_1000: dollars per 1,000 requests, of each seed.
        reserved_per_1000: dollars per 1,000 requests for what was held while nothing ran in it.
        p50_over_slo, p99_over_slo: latency over SLO.
        latencies: (latency over SLO, the part of all requests that keep it), rising.
        fill: (s, the part of all GPUs' share that is held), of the first seed.
        fill_mean: over the whole time, of all seeds.
        missed_ms: where the time of a missed request went, by `PHASES`, ms in the mean.
        batch_mean: requests a dispatch.
        dispatches_per_s: of the virtual clock.
        cold_starts: of one seed, in the mean.
    """

    policy: str
    setting: str
    requests: int
    misses: int
    dropped: int
    hit_ratios: tuple[float, ...]
    costs_per_1000: tuple[float, ...]
    reserved_per_1000: float
    p50_over_slo: float
    p99_over_slo: float
    latencies: tuple[tuple[float, float], ...]
    fill: tuple[tuple[float, float], ...]
    fill_mean: float
    missed_ms: tuple[float, float, float, float]
    batch_mean: float
    dispatches_per_s: float
    cold_starts: float

    @property
    def hit_ratio(self) -> float:
        """In the mean over seeds."""
        return fmean(self.hit_ratios)

    @property
    def cost_per_1000(self) -> float:
        """In the mean over seeds, dollars."""
        return fmean(self.costs_per_1000)


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """Policies under settings.

    Attributes:
        policies: of all settings; those of one setting follow one another.
        remarks: what to know before anything else, a sentence each.
        facts: what was simulated, as names and texts.
    """

    policies: tuple[SimulatedPolicy, ...]
    remarks: tuple[str, ...] = ()
    facts: tuple[tuple[str, str], ...] = ()

    @property
    def settings(self) -> list[str]:
        """Their names."""
        return list(dict.fromkeys(each.setting for each in self.policies))

    @property
    def names(self) -> list[str]:
        """The policies' names."""
        return list(dict.fromkeys(each.policy for each in self.policies))

    @property
    def seeds(self) -> int:
        """Of each policy, at most."""
        return max((len(each.hit_ratios) for each in self.policies), default=0)

    def under(self, setting: str) -> list[SimulatedPolicy]:
        """The policies of one setting."""
        return [each for each in self.policies if each.setting == setting]


def deviation(values: Sequence[float]) -> float | None:
    """The standard deviation over seeds; None where there is one seed."""
    return stdev(values) if len(values) > 1 else None
