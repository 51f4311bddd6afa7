"""Outcomes in figures: flat for programs, and taken together over seeds for people."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

from workbench.simulation.result import Latency, Phases, Result
from workbench.simulation.runs.job import Outcome

US_PER_S = 1e6


def figures(outcome: Outcome) -> dict[str, Any]:
    """A run's figures by name, the same for the same job; dollars, SLOs, seconds, parts of one."""
    job, result = outcome.job, outcome.result
    named: dict[str, Any] = {"policy": job.policy, "setting": job.setting, "seed": job.seed}
    if result is not None:
        named |= {
            "requests": result.requests,
            "hits": result.hits,
            "misses": result.misses,
            "dropped": result.dropped,
            "hit_rate": result.hit_ratio,
            "cost_per_1000": result.cost_per_1000,
            "reserved_per_1000": result.reserved_per_1000,
            "paid_per_1000": result.cost_per_1000 + result.reserved_per_1000,
            "mean_over_slo": result.latency.mean,
            "p50_over_slo": result.latency.quantile(0.5),
            "p99_over_slo": result.latency.quantile(0.99),
            "gpu_fill": result.gpu_fill_mean,
            "dispatches": result.runs,
            "dispatches_per_s": result.runs_per_s,
            "batch_mean": result.batch_mean,
            "cold_starts": result.cold_starts,
            "prewarmed": result.prewarmed,
            "evictions": result.evictions,
            "forced": result.forced,
            "planning_calls": result.planning_calls,
            "simulated_s": result.simulated_ms / 1000,
        }
    if outcome.failure:
        named["failure"] = outcome.failure
    return named


def timings(outcome: Outcome) -> dict[str, Any]:
    """What differs from one time to the next: how long the run took, and the policy in it."""
    job, result = outcome.job, outcome.result
    named: dict[str, Any] = {"policy": job.policy, "setting": job.setting, "seed": job.seed}
    named |= {"wall_s": outcome.wall_s, "setup_s": outcome.setup_s}
    if result is not None:
        calls = result.planning_calls
        named["planning_s"] = result.planning_s
        named["planning_us_per_call"] = US_PER_S * result.planning_s / calls if calls else 0.0
        named["events_per_s"] = result.events / outcome.wall_s if outcome.wall_s else 0.0
    return named


@dataclass(frozen=True, slots=True, kw_only=True)
class Together:
    """A policy under a setting over all its seeds: means of the runs, sums of their requests."""

    policy: str
    setting: str
    results: tuple[Result, ...]

    @property
    def hit_ratios(self) -> list[float]:
        """Of each run."""
        return [result.hit_ratio for result in self.results]

    @property
    def costs_per_1000(self) -> list[float]:
        """Dollars, of each run."""
        return [result.cost_per_1000 for result in self.results]

    @property
    def latency(self) -> Latency:
        """Of the requests of all runs."""
        latencies = [result.latency for result in self.results]
        sizes = [sum(each.counts) for each in latencies]
        total = sum(sizes)
        means = sum(each.mean * size for each, size in zip(latencies, sizes, strict=True))
        return Latency(
            tuple(map(sum, zip(*(each.counts for each in latencies), strict=True))),
            means / total if total else 0.0,
            max(each.longest for each in latencies),
        )

    @property
    def missed(self) -> Phases:
        """Where the time of the misses of all runs went, ms a miss."""
        misses = max(sum(result.misses for result in self.results), 1)
        return Phases(
            sum(result.missed.queue_ms for result in self.results) / misses,
            sum(result.missed.start_ms for result in self.results) / misses,
            sum(result.missed.transfer_ms for result in self.results) / misses,
            sum(result.missed.execute_ms for result in self.results) / misses,
        )

    def mean(self, name: str) -> float:
        """The mean of an attribute of the results."""
        return fmean(getattr(result, name) for result in self.results)


def together(outcomes: Iterable[Outcome]) -> list[Together]:
    """The outcomes by setting, then by policy, in the order in which each first comes."""
    found: dict[str, dict[str, list[Result]]] = {}
    for outcome in outcomes:
        if outcome.result is not None and outcome.result.requests:
            policies = found.setdefault(outcome.job.setting, {})
            policies.setdefault(outcome.job.policy, []).append(outcome.result)
    return [
        Together(policy=policy, setting=setting, results=tuple(results))
        for setting, policies in found.items()
        for policy, results in policies.items()
    ]


def as_json(outcomes: Sequence[Outcome]) -> Mapping[str, Any]:
    """What ``esg simulate --json`` prints: figures, and apart from them what differs each time."""
    return {
        "runs": [figures(outcome) for outcome in outcomes],
        "timings": [timings(outcome) for outcome in outcomes],
    }
