"""The ESG paper's evaluation again: which runs it takes, and what they say.

All policies under the nine settings, then ESG with one thing after another switched off or set
otherwise, under the three settings that the paper reports. What is compared is compared seed by
seed: every policy is asked for the same requests.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import sqrt
from statistics import fmean, stdev
from types import MappingProxyType
from typing import Any

from scheduler.search.rules import Rules
from workbench.simulation.runs.job import Job
from workbench.simulation.scenario import Scenario
from workbench.simulation.workloads.paper import PAPER_SETTINGS, SETTINGS, Paper

ESG = "esg"
AS_IS = "as it is"

# Student's t, two-sided 95 %, by degrees of freedom; beyond the table that of the last is a little
# too wide.
_T_95 = (12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228)


@dataclass(frozen=True, slots=True, kw_only=True)
class Variant:
    """Something set otherwise than in the scenario's defaults.

    Attributes:
        name: what people read.
        policy: which one it is of.
        changes: fields of the scenario.
        rules: fields of its rules.
    """

    name: str
    policy: str = ESG
    changes: Mapping[str, Any] = field(default_factory=dict)
    rules: Mapping[str, Any] = field(default_factory=dict)

    def of(self, scenario: Scenario) -> Scenario:
        """The scenario with it."""
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
    """A run of the evaluation: what is ordered, and as which part of it."""

    variant: str
    job: Job

    @property
    def key(self) -> tuple[str, str, str, int]:
        """Variant, policy, setting and seed."""
        return self.variant, self.job.policy, self.job.setting, self.job.seed


def orders(policies: Sequence[str], *, requests: int, seeds: int) -> list[Order]:
    """All runs, none of them twice; a broken evaluation has whole seeds first."""
    plain = [Variant(name=AS_IS, policy=policy) for policy in policies]
    wanted = [(variant, setting) for setting in SETTINGS for variant in plain]
    wanted += [(variant, setting) for setting in PAPER_SETTINGS for variant in ABLATION]
    made = {
        order.key: order
        for seed in range(seeds)
        for variant, setting in wanted
        for order in [_order(variant, setting, requests, seed)]
    }
    return list(made.values())


def _order(variant: Variant, name: str, requests: int, seed: int) -> Order:
    setting = SETTINGS[name]
    job = Job(
        policy=variant.policy,
        setting=name,
        seed=seed,
        scenario=variant.of(_DEFAULT.model_copy(update={"slo_factor": setting.slo_factor})),
        workload=Paper(load=setting.load),
        requests=requests,
    )
    return Order(variant=variant.name, job=job)


# -- what the runs say


@dataclass(frozen=True, slots=True)
class Estimate:
    """A mean over seeds, and half of its 95 % confidence interval (Student's t).

    Attributes:
        seeds: how many; with one there is no interval, and ``half`` is None.
    """

    mean: float
    half: float | None
    seeds: int

    @classmethod
    def of(cls, values: Sequence[float]) -> "Estimate":
        """Out of one value a seed; at least one."""
        count = len(values)
        if count == 1:
            return cls(values[0], None, 1)
        t = _T_95[min(count - 1, len(_T_95)) - 1]
        return cls(fmean(values), t * stdev(values) / sqrt(count), count)


Figures = Mapping[str, float]
_NONE: Mapping[int, Figures] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Findings:
    """The figures of all runs, by the key of their orders."""

    by_key: Mapping[tuple[str, str, str, int], Figures]

    def estimate(
        self, name: str, policy: str, setting: str, variant: str = AS_IS
    ) -> Estimate | None:
        """Of a figure; None where there is no run."""
        found = self._by_seed(variant, policy, setting)
        return Estimate.of([each[name] for each in found.values()]) if found else None

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
        """How much more of a figure than ``to`` as it is has, seed by seed; 0.5 is 50 % more.

        With ``inverse`` how much more ``to`` has. None where a seed has nothing of it to compare
        with.
        """
        ones, others = self._by_seed(variant, policy, setting), self._by_seed(AS_IS, to, setting)
        pairs = [(ones[seed][name], others[seed][name]) for seed in ones.keys() & others.keys()]
        if inverse:
            pairs = [(other, one) for one, other in pairs]
        if not pairs or any(other <= 0 for _, other in pairs):
            return None
        return Estimate.of([one / other - 1 for one, other in pairs])

    def difference(
        self, name: str, policy: str, setting: str, variant: str, *, to: str = ESG
    ) -> Estimate | None:
        """A figure less that of ``to`` as it is, seed by seed."""
        ones, others = self._by_seed(variant, policy, setting), self._by_seed(AS_IS, to, setting)
        pairs = [(ones[seed][name], others[seed][name]) for seed in ones.keys() & others.keys()]
        return Estimate.of([one - other for one, other in pairs]) if pairs else None

    def total(self, name: str, policy: str) -> float:
        """Of a figure over all runs of a policy as it is."""
        return sum(
            figures[name]
            for (variant, of, _, _), figures in self.by_key.items()
            if variant == AS_IS and of == policy
        )

    def _by_seed(self, variant: str, policy: str, setting: str) -> Mapping[int, Figures]:
        return {
            seed: figures
            for (of, by, under, seed), figures in self.by_key.items()
            if (of, by, under) == (variant, policy, setting)
        } or _NONE
