"""Summaries of outcomes: flat for programs, and aggregated over seeds for people."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from statistics import fmean
from typing import Any

from workbench.simulation.cost_split import CostSplit, mean_split
from workbench.simulation.counts import Latency, Phases
from workbench.simulation.result import Result
from workbench.simulation.runs.job import Outcome
from workbench.simulation.runs.paired import policy_differences

US_PER_S = 1e6
TENTHS = 10


def summary(outcome: Outcome) -> dict[str, Any]:
    """Return the numbers of a run, equal for equal jobs; dollars, SLOs, seconds and ratios."""
    job, result = outcome.job, outcome.result
    named: dict[str, Any] = {"policy": job.policy, "setting": job.setting, "seed": job.seed}
    if result is not None:
        named |= {
            "requests": result.requests,
            "hits": result.hits,
            "misses": result.misses,
            "dropped": result.dropped,
            "hit_rate": result.hit_ratio,
            "cost_per_1000": result.dollars_per_thousand,
            "ran_per_1000": result.ran_dollars_per_thousand,
            "idle_per_1000": result.idle_dollars_per_thousand,
            "paid_over_bound": result.paid_bound_ratio,
            "split_per_1000": None
            if result.split is None
            else dict(result.split.per(result.requests / 1000).parts()),
            "joules_per_request": result.joules_per_request,
            "steady_state": result.steady_state.verdict,
            "warmup_rule": result.steady_state.rule,
            "warmup_s": result.steady_state.warmup_ms / 1000,
            "arrived": result.arrived,
            "hits_by_tenth": result.over_time.hit_ratios(TENTHS),
            "mean_over_slo": result.latency.mean,
            "p50_over_slo": result.latency.quantile(0.5),
            "p99_over_slo": result.latency.quantile(0.99),
            "gpu_fill": result.mean_utilisation_ratio,
            "dispatches": result.runs,
            "dispatches_per_s": result.runs_per_s,
            "batch_mean": result.mean_batch_size,
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
    """Return the wall times of a run and of its policy, which differ between equal runs."""
    job, result = outcome.job, outcome.result
    named: dict[str, Any] = {"policy": job.policy, "setting": job.setting, "seed": job.seed}
    named["wall_s"] = outcome.wall_s
    if result is not None:
        named["setup_s"] = result.setup_s
        calls = result.planning_calls
        named["planning_s"] = result.planning_s
        named["planning_us_per_call"] = US_PER_S * result.planning_s / calls if calls else 0.0
        named["events_per_s"] = result.events / outcome.wall_s if outcome.wall_s else 0.0
    return named


@dataclass(frozen=True, slots=True, kw_only=True)
class Aggregate:
    """One policy under one setting over all its seeds: means of the runs, sums of the requests."""

    policy: str
    setting: str
    results: tuple[Result, ...]

    @property
    def hit_ratios(self) -> list[float]:
        """Hit ratio of each run."""
        return [result.hit_ratio for result in self.results]

    @property
    def dollars_per_thousand(self) -> list[float]:
        """Dollars paid per 1,000 requests, of each run."""
        return [result.dollars_per_thousand for result in self.results]

    @property
    def idle_ratio(self) -> float:
        """Part of what is paid that nothing ran for."""
        paid_dollars = self.mean("paid_dollars")
        return self.mean("idle_dollars") / paid_dollars if paid_dollars else 0.0

    @property
    def paid_bound_ratio(self) -> float | None:
        """Mean of what is paid over the least cost of the requests; None without a bound."""
        ratios = [
            ratio for result in self.results if (ratio := result.paid_bound_ratio) is not None
        ]
        return fmean(ratios) if len(ratios) == len(self.results) else None

    @property
    def split(self) -> CostSplit | None:
        """Parts of the cost of 1,000 requests, means of the runs; None if one has none."""
        splits = [
            result.split.per(result.requests / 1000)
            for result in self.results
            if result.split is not None
        ]
        return mean_split(splits) if len(splits) == len(self.results) else None

    @property
    def state(self) -> str:
        """Verdicts on the runs' steady state, the most frequent first, and the mean warm-up."""
        verdicts = Counter(result.steady_state.verdict for result in self.results)
        warmup_s = fmean(result.steady_state.warmup_ms for result in self.results) / 1000
        named = "/".join(verdict for verdict, _ in verdicts.most_common())
        return f"{named} from {warmup_s:.0f} s" if warmup_s else named

    def hit_ratios_over_time(self, parts: int) -> list[float]:
        """Mean hit ratios of so many parts of the whole runs."""
        runs = [result.over_time.hit_ratios(parts) for result in self.results]
        return [fmean(ratios) for ratios in zip(*runs, strict=True)]

    @property
    def latency(self) -> Latency:
        """Latency of the requests of all runs."""
        latencies = [result.latency for result in self.results]
        sizes = [sum(latency.counts) for latency in latencies]
        total = sum(sizes)
        sums = sum(latency.mean * size for latency, size in zip(latencies, sizes, strict=True))
        return Latency(
            tuple(map(sum, zip(*(latency.counts for latency in latencies), strict=True))),
            sums / total if total else 0.0,
            max(latency.max_ratio for latency in latencies),
        )

    @property
    def missed(self) -> Phases:
        """Phases of the misses of all runs, ms per miss."""
        misses = max(sum(result.misses for result in self.results), 1)
        return Phases(
            sum(result.missed.queue_ms for result in self.results) / misses,
            sum(result.missed.start_ms for result in self.results) / misses,
            sum(result.missed.transfer_ms for result in self.results) / misses,
            sum(result.missed.execute_ms for result in self.results) / misses,
        )

    def mean(self, name: str) -> float:
        """Mean of an attribute of the results."""
        return fmean(getattr(result, name) for result in self.results)


def aggregate(outcomes: Iterable[Outcome]) -> list[Aggregate]:
    """Aggregate outcomes by setting, then by policy, in the order of first occurrence."""
    settings: dict[str, dict[str, list[Result]]] = {}
    for outcome in outcomes:
        if outcome.result is not None and outcome.result.requests:
            policies = settings.setdefault(outcome.job.setting, {})
            policies.setdefault(outcome.job.policy, []).append(outcome.result)
    return [
        Aggregate(policy=policy, setting=setting, results=tuple(results))
        for setting, policies in settings.items()
        for policy, results in policies.items()
    ]


def as_json(outcomes: Sequence[Outcome]) -> Mapping[str, Any]:
    """Return the output of ``esg simulate --json``: summaries, and the wall times apart."""
    return {
        "runs": [summary(outcome) for outcome in outcomes],
        "differences": [asdict(difference) for difference in policy_differences(outcomes)],
        "timings": [timings(outcome) for outcome in outcomes],
    }
