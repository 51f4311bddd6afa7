"""Runs of the ESG paper's evaluation, and statistics over them.

All policies under the nine settings, then ESG with one mechanism after another switched off or
changed, under the three settings that the paper reports. Comparisons are seed by seed: every policy
serves the same requests.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import sqrt
from statistics import fmean, stdev
from types import MappingProxyType
from typing import Any

from scipy.stats import t as student_t

from scheduler.search.rules import Rules
from workbench.simulation.runs.job import SimulationJob
from workbench.simulation.scenario import Scenario
from workbench.simulation.workloads.paper import PAPER_SETTINGS, SETTINGS, Paper

Quantity = float  # in the unit of the number that is estimated
ESG = "esg"
AS_IS = "as it is"


@dataclass(frozen=True, slots=True, kw_only=True)
class Variant:
    """Changes to the scenario's defaults.

    Attributes:
        name: for people.
        policy: the policy of the run.
        changes: fields of the scenario.
        rules: fields of its rules.
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

ABLATION: tuple[Variant, ...] = (
    Variant(name=AS_IS),
    Variant(name="all stages in one search (`exact`)", policy="exact"),
    Variant(name="no re-planning", changes={"replan": False}),
    Variant(name="no GPU sharing", changes={"sharing": "whole"}),
    Variant(name="GPUs in sevenths, as MIG", changes={"sharing": "sevenths"}),
    Variant(name="no batching", changes={"batching": False}),
    Variant(name="no margin", changes={"margin_ratio": 0.0}),
    Variant(name="a lost SLO is served as fast as can be", rules={"on_lost_slo": "fastest"}),
    Variant(name="containers keep the share they began with", changes={"resizable": False}),
    Variant(name="an empty cluster at the start", changes={"warm_containers": 0}),
    Variant(
        name="an empty cluster at the start, no pre-warming",
        changes={"warm_containers": 0, "prewarm": False},
    ),
    *(
        Variant(name=f"groups of {size}", rules={"group_size": size})
        for size in _GROUP_SIZES
        if size != _DEFAULT.rules.group_size
    ),
    *(Variant(name=f"K = {k}", changes={"candidates": k}) for k in _KS if k != _DEFAULT.candidates),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """A run of the evaluation, and its part in it."""

    variant: str
    job: SimulationJob

    @property
    def key(self) -> tuple[str, str, str, int]:
        """Variant, policy, setting and seed."""
        return self.variant, self.job.policy, self.job.setting, self.job.seed


def orders(policies: Sequence[str], *, requests: int, seeds: int) -> list[Order]:
    """Return all runs, each once; an interrupted evaluation has complete seeds first."""
    plain = [Variant(name=AS_IS, policy=policy) for policy in policies]
    parts = [(variant, setting) for setting in SETTINGS for variant in plain]
    parts += [(variant, setting) for setting in PAPER_SETTINGS for variant in ABLATION]
    unique = {
        order.key: order
        for seed in range(seeds)
        for variant, setting in parts
        for order in [_order(variant, setting, requests, seed)]
    }
    return list(unique.values())


def _order(variant: Variant, name: str, requests: int, seed: int) -> Order:
    setting = SETTINGS[name]
    job = SimulationJob(
        policy=variant.policy,
        setting=name,
        seed=seed,
        scenario=variant.of(_DEFAULT.model_copy(update={"slo_factor": setting.slo_factor})),
        workload=Paper(load=setting.load),
        requests=requests,
    )
    return Order(variant=variant.name, job=job)


# -- statistics


@dataclass(frozen=True, slots=True)
class Estimate:
    """Mean over seeds, and half of its 95 % confidence interval (Student's t).

    Attributes:
        half_width: in the unit of the mean; None with one seed, which gives no interval.
        seeds: number of values.
    """

    mean: Quantity
    half_width: Quantity | None
    seeds: int

    @classmethod
    def of(cls, values: Sequence[float]) -> "Estimate":
        """Estimate from one value per seed; at least one."""
        count = len(values)
        if count == 1:
            return cls(values[0], None, 1)
        t_quantile = float(student_t.ppf(0.975, count - 1))
        return cls(fmean(values), t_quantile * stdev(values) / sqrt(count), count)


Summary = Mapping[str, float]
_NONE: Mapping[int, Summary] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Findings:
    """Summaries of all runs, by the key of their orders."""

    by_key: Mapping[tuple[str, str, str, int], Summary]

    def estimate(
        self, name: str, policy: str, setting: str, variant: str = AS_IS
    ) -> Estimate | None:
        """Estimate a number; None without a run."""
        runs = self._by_seed(variant, policy, setting)
        return Estimate.of([run[name] for run in runs.values()]) if runs else None

    def against(  # noqa: PLR0913 - both sides of a comparison
        self,
        name: str,
        policy: str,
        setting: str,
        variant: str = AS_IS,
        *,
        to: str = ESG,
        inverse: bool = False,
    ) -> Estimate | None:
        """Estimate the relative excess of a number over ``to`` as it is; 0.5 is 50 % more.

        With ``inverse`` the excess of ``to``. None where a seed has no base to compare with.
        """
        runs, bases = self._by_seed(variant, policy, setting), self._by_seed(AS_IS, to, setting)
        pairs = [(runs[seed][name], bases[seed][name]) for seed in runs.keys() & bases.keys()]
        if inverse:
            pairs = [(base, run) for run, base in pairs]
        if not pairs or any(base <= 0 for _, base in pairs):
            return None
        return Estimate.of([run / base - 1 for run, base in pairs])

    def difference(
        self, name: str, policy: str, setting: str, variant: str, *, to: str = ESG
    ) -> Estimate | None:
        """Estimate the difference of a number from that of ``to`` as it is, seed by seed."""
        runs, bases = self._by_seed(variant, policy, setting), self._by_seed(AS_IS, to, setting)
        pairs = [(runs[seed][name], bases[seed][name]) for seed in runs.keys() & bases.keys()]
        return Estimate.of([run - base for run, base in pairs]) if pairs else None

    def total(self, name: str, policy: str) -> Quantity:
        """Sum a number over all runs of a policy as it is."""
        return sum(
            figures[name]
            for (variant, of, _, _), figures in self.by_key.items()
            if variant == AS_IS and of == policy
        )

    def _by_seed(self, variant: str, policy: str, setting: str) -> Mapping[int, Summary]:
        return {
            seed: figures
            for (of, by, under, seed), figures in self.by_key.items()
            if (of, by, under) == (variant, policy, setting)
        } or _NONE
