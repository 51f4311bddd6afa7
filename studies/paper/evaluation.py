"""Runs of the ESG paper's evaluation, and statistics over them.

All policies under the paper's settings, as they are: with fixed shares. Then those that search a
share for each run, with shares that change; ESG with one mechanism after another switched off or
changed; and the headroom with which a policy that holds containers reaches a target
(`studies.paper.equal_hits`). Every policy serves the same requests, after the same warm-up, and
they are compared on them.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import sqrt
from statistics import fmean, stdev
from types import MappingProxyType
from typing import Any

from scipy.special import stdtrit

from scheduler.search.rules import Rules
from workbench.simulation.runs.comparison import with_common_warm_up
from workbench.simulation.runs.job import Outcome, SimulationJob
from workbench.simulation.runs.paired import PairedSums
from workbench.simulation.runs.summary import summary, timings
from workbench.simulation.scenario import Scenario
from workbench.simulation.workloads.paper import GAPS_MS, PAPER_SETTINGS, SETTINGS, Load, Paper
from workbench.simulation.workloads.parameters import Workload

SHIPPED = "warm"
ESG = "esg"
AS_IS = "as it is"
RESIZED = "shares change from run to run"
RunKey = tuple[str, str, str, int]
"""Variant, policy, setting and seed."""

RESIZED_POLICIES = ("exact", ESG, "orion", "oracle")  # compared with changing shares, too


@dataclass(frozen=True, slots=True, kw_only=True)
class Variant:
    """Changes to the scenario's defaults.

    Attributes:
        name: name in tables.
        policy: policy of the run.
        changes: changed fields of the scenario.
        rules: changed fields of the scenario's rules.
    """

    name: str
    policy: str = ESG
    changes: Mapping[str, Any] = field(default_factory=dict)
    rules: Mapping[str, Any] = field(default_factory=dict)

    def of(self, scenario: Scenario) -> Scenario:
        """Return a scenario with the changes."""
        rules: Rules = replace(scenario.rules, **self.rules)
        return scenario.model_copy(update={"rules": rules, **self.changes})


_GROUP_SIZES, _KS = (1, 2, 3, 4, 5), (1, 2, 5, 10, 20)
_DEFAULT = Scenario()


def _resized(name: str, **about: Any) -> Variant:
    changes = {"resizable": True} | about.pop("changes", {})
    return Variant(name=name, changes=changes, **about)


ABLATION: tuple[Variant, ...] = (
    _resized(RESIZED),
    Variant(name="containers keep the share they began with"),
    _resized("all stages in one search (`exact`)", policy="exact"),
    _resized("no re-planning", changes={"replan": False}),
    _resized("no GPU sharing", changes={"sharing": "whole"}),
    _resized("GPUs in sevenths, as MIG", changes={"sharing": "sevenths"}),
    _resized("no batching", changes={"batching": False}),
    _resized("no margin", changes={"margin_ratio": 0.0}),
    _resized("a lost SLO is served as fast as can be", rules={"on_lost_slo": "fastest"}),
    _resized("an empty cluster at the start", changes={"warm_containers": 0}),
    _resized(
        "an empty cluster at the start, no pre-warming",
        changes={"warm_containers": 0, "prewarm": False},
    ),
    *(
        _resized(f"groups of {size}", rules={"group_size": size})
        for size in _GROUP_SIZES
        if size != _DEFAULT.rules.group_size
    ),
    *(_resized(f"K = {k}", changes={"candidates": k}) for k in _KS if k != _DEFAULT.candidates),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """A run of the evaluation, and its part in it."""

    variant: str
    job: SimulationJob

    @property
    def key(self) -> RunKey:
        """Variant, policy, setting and seed."""
        return self.variant, self.job.policy, self.job.setting, self.job.seed


@dataclass(frozen=True, slots=True, kw_only=True)
class Ground:
    """Cluster and arrivals that all policies of an evaluation have in common.

    Attributes:
        scenario: scenario before the changes of a variant.
        workload: function that returns the arrivals of a load for so many minutes.
        ends: true if the workload ends by itself after these minutes.
        slo_ratio: SLOs over those of the paper's settings.
    """

    scenario: Scenario = _DEFAULT
    workload: Callable[[Load, float], Workload] = lambda load, _: Paper(load=load)
    ends: bool = False
    slo_ratio: float = 1.0


GENERATED = Ground()


@dataclass(frozen=True, slots=True, kw_only=True)
class EvaluationSize:
    """Size of an evaluation.

    Attributes:
        minutes: simulated time of the arrivals of a run.
        seeds: number of runs of each policy under each setting.
        settings: names of the paper's settings.
        ablation: true to run the variants of ESG too.
        resized: true to run policies with shares that change, too.
        ground: cluster and arrivals.
        pooled: true to run the pods of `warm` in slices of a pool.
    """

    minutes: float
    seeds: int
    settings: Sequence[str] = tuple(SETTINGS)
    ablation: bool = True
    resized: bool = True
    ground: Ground = GENERATED
    pooled: bool = True

    @property
    def pooled_text(self) -> str:
        """Sentence about the pods of `warm`."""
        if self.pooled:
            return " `warm` has pooled pods: slices of GPUs are set aside for all of them together."
        return " `warm` has reserved pods: each holds its share while it is idle."

    @property
    def seeds_text(self) -> str:
        """The seeds as a page names them."""
        return "seed 0" if self.seeds == 1 else f"seeds 0 to {self.seeds - 1}"


def orders(policies: Sequence[str], size: EvaluationSize) -> list[Order]:
    """Return all runs, each once; an interrupted evaluation has complete seeds first."""
    plain = [Variant(name=AS_IS, policy=policy) for policy in policies]
    if size.resized:
        plain += [_resized(RESIZED, policy=name) for name in RESIZED_POLICIES if name in policies]
    parts = [(variant, setting) for setting in size.settings for variant in plain]
    if size.ablation:
        reported = [setting for setting in PAPER_SETTINGS if setting in size.settings]
        parts += [(variant, setting) for setting in reported for variant in ABLATION]
    unique = {
        order.key: order
        for seed in range(size.seeds)
        for variant, setting in parts
        for order in [order_of(variant, setting, size, seed)]
    }
    return list(unique.values())


def order_of(variant: Variant, name: str, size: EvaluationSize, seed: int) -> Order:
    """Return one run of a variant under a setting."""
    setting = SETTINGS[name]
    ground = size.ground
    changes = {
        "slo_factor": setting.slo_factor * ground.slo_ratio,
        "pool": size.pooled and variant.policy == SHIPPED,
    }
    requests = None
    if not ground.ends:
        requests = max(round(60_000 * size.minutes / mean_gap_ms(setting.load)), 1)
    job = SimulationJob(
        policy=variant.policy,
        setting=name,
        seed=seed,
        scenario=variant.of(ground.scenario.model_copy(update=changes)),
        workload=ground.workload(setting.load, size.minutes),
        requests=requests,
    )
    return Order(variant=variant.name, job=job)


def mean_gap_ms(load: Load) -> float:
    """Return the mean time between two requests of a load of the paper."""
    return sum(GAPS_MS[load]) / 2


# -- statistics


@dataclass(frozen=True, slots=True)
class Estimate:
    """Mean over seeds, and half of its 95 % confidence interval (Student's t).

    Attributes:
        half_width: half of the interval, in the unit of the mean; None with one seed.
        seeds: number of values.
    """

    mean: float
    half_width: float | None
    seeds: int

    @classmethod
    def of(cls, values: Sequence[float]) -> "Estimate":
        """Estimate from one value per seed; at least one."""
        count = len(values)
        if count == 1:
            return cls(values[0], None, 1)
        t_quantile = float(stdtrit(count - 1, 0.975))
        return cls(fmean(values), t_quantile * stdev(values) / sqrt(count), count)


Summary = Mapping[str, Any]
_NONE: Mapping[int, Summary] = MappingProxyType({})
_RESULT = "result"  # in a summary
_HITS = "hit_rate"
_PAIRED = (_HITS, "cost_per_1000")


@dataclass(frozen=True, slots=True)
class Findings:
    """Summaries of all runs, by the key of their orders.

    Hits and costs of two policies are compared on the same requests, where the summaries have the
    results, and else seed by seed.
    """

    by_key: Mapping[RunKey, Summary]

    @classmethod
    def of(cls, outcomes: Mapping[RunKey, Outcome]) -> "Findings":
        """Summarise complete runs, without the same warm-up under a setting and seed."""
        equal = with_common_warm_up(list(outcomes.values()))
        return cls(
            {
                key: {**timings(outcome), **summary(outcome), _RESULT: outcome.result}
                for key, outcome in zip(outcomes, equal, strict=True)
            }
        )

    def estimate(
        self, name: str, policy: str, setting: str, variant: str = AS_IS
    ) -> Estimate | None:
        """Estimate a number; None without a run, or where a run has none."""
        values = self.values(name, policy, setting, variant)
        return Estimate.of(values) if values and None not in values else None

    def against(  # noqa: PLR0913 - both sides of a comparison
        self,
        name: str,
        policy: str,
        setting: str,
        variant: str = AS_IS,
        *,
        to: str = SHIPPED,
        base: str = AS_IS,
        inverse: bool = False,
    ) -> Estimate | None:
        """Estimate the relative excess of a number over that of ``to``; 0.5 is 50 % more.

        With ``inverse`` the excess of ``to``, whose variant is ``base``. None where a seed has no
        base to compare with.
        """
        runs, bases = self._by_seed(variant, policy, setting), self._by_seed(base, to, setting)
        if inverse:
            runs, bases = bases, runs
        pairs = _pairs(runs, bases)
        if not pairs or any(base[name] <= 0 for _, base in pairs):
            return None
        if name in _PAIRED and (sums := _sums(pairs)):
            excess = sums.hit_excess() if name == _HITS else sums.cost_excess()
            if excess is not None:
                return Estimate(excess.mean, excess.half_width, len(pairs))
        return Estimate.of([run[name] / base[name] - 1 for run, base in pairs])

    def difference(  # noqa: PLR0913 - both sides of a comparison
        self,
        name: str,
        policy: str,
        setting: str,
        variant: str = AS_IS,
        *,
        to: str = SHIPPED,
        base: str = AS_IS,
    ) -> Estimate | None:
        """Estimate the difference of a number from that of ``to``."""
        pairs = _pairs(self._by_seed(variant, policy, setting), self._by_seed(base, to, setting))
        if name == _HITS and (sums := _sums(pairs)) and (points := sums.hit_points()):
            return Estimate(points.mean, points.half_width, len(pairs))
        return Estimate.of([run[name] - base[name] for run, base in pairs]) if pairs else None

    def total(self, name: str, policy: str) -> float:
        """Sum a number over all runs of a policy as it is."""
        return sum(
            float(figures[name])
            for (variant, of, _, _), figures in self.by_key.items()
            if variant == AS_IS and of == policy
        )

    def values(self, name: str, policy: str, setting: str, variant: str = AS_IS) -> list[Any]:
        """Return a value of each seed."""
        return [run[name] for run in self._by_seed(variant, policy, setting).values()]

    def variants(self, policy: str, setting: str) -> set[str]:
        """Return the variants that a policy has run in under a setting."""
        return {of for of, by, under, _ in self.by_key if (by, under) == (policy, setting)}

    def _by_seed(self, variant: str, policy: str, setting: str) -> Mapping[int, Summary]:
        return {
            seed: figures
            for (of, by, under, seed), figures in self.by_key.items()
            if (of, by, under) == (variant, policy, setting)
        } or _NONE


def _pairs(
    runs: Mapping[int, Summary], bases: Mapping[int, Summary]
) -> list[tuple[Summary, Summary]]:
    """Pair the runs of equal seeds, in the order of the seeds."""
    return [(runs[seed], bases[seed]) for seed in sorted(runs.keys() & bases.keys())]


def _sums(pairs: Sequence[tuple[Summary, Summary]]) -> PairedSums | None:
    """Sum over batches of the same requests; None where a summary has no result."""
    if not pairs or not all(_RESULT in run and _RESULT in base for run, base in pairs):
        return None
    return PairedSums.of((run[_RESULT], base[_RESULT]) for run, base in pairs)
