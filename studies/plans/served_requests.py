"""Cases of `studies.plans.objective`: stages take random times, and each is planned again.

The workflows are sequences: a plan then depends on the time that is left alone, so the plans of
some thousand requests are few. Every stage of a request is planned when its predecessor has ended,
and then takes its profiled time times a log-normal factor with mean 1. There is no cluster: no
request waits for a GPU, and batches are full.
"""

import random
from collections.abc import Iterator
from dataclasses import dataclass
from math import log, sqrt

import numpy as np

from scheduler.model.catalogue import Catalogue
from scheduler.model.documents import FunctionProfile, Workflow
from scheduler.search.dag import numbered
from scheduler.search.frontiers.arrays import Floats
from scheduler.search.margin import P95_Z, quantile_ratio
from scheduler.search.planner import Planner, PlanRequest
from scheduler.search.rules import Rules
from studies.plans.splitting import SplittingCase, random_profile, sample
from workbench.profiles.builders import chain, workflow
from workbench.profiles.generated import WORKFLOWS

STAGES = (1, 8)
SLO_STEPS = 1000  # slacks are rounded down to whole steps, so that plans repeat
OBJECTIVES = (0.9, 0.99, 0.999)
SPREADS = (0.05, 0.1, 0.2)
CONSTANT_MARGIN = 0.1
DERIVED = ("exact", "esg")


@dataclass(frozen=True, slots=True)
class Served:
    """Requests of one workflow under one rule.

    Attributes:
        group: group of the workflow, as in `ServedCase`.
        rule: ``none``, ``constant``, or the policy that plans with the derived margin.
        spread_ratio: standard deviation over mean of the run times.
        objective_ratio: objective of the workflow.
        hit_ratio: ratio of requests within the SLO.
        cost_dollars: mean cost of a request.
    """

    group: str
    rule: str
    spread_ratio: float
    objective_ratio: float
    hit_ratio: float
    cost_dollars: float


@dataclass(frozen=True, slots=True)
class ServedCase:
    """A workflow in a group.

    Attributes:
        group: ``samples`` or ``random``.
        number: number of the workflow within the group.
    """

    group: str
    number: int

    def splitting_case(self, seed: int) -> SplittingCase:
        """Return the workflow and its profiles."""
        if self.group == "samples":
            return sample(sorted(WORKFLOWS)[self.number])
        return random_chain(seed, self.number)


def random_chain(seed: int, number: int) -> SplittingCase:
    """Create a sequence of stages with generated noisy profiles."""
    rng = random.Random(f"{seed}/{number}")
    profiles = [random_profile(f"f{v}", rng) for v in range(rng.randint(*STAGES))]
    longest_ms = sum(profile.spec.gpus[0].configurations[0].latency_ms for profile in profiles)
    sequence = workflow(chain(len(profiles)), name=f"random-{number}", slo_ms=longest_ms)
    return SplittingCase(sequence, tuple(profiles), longest_ms)


def cases(random_count: int) -> list[ServedCase]:
    """List all workflows."""
    samples = [ServedCase("samples", i) for i in range(len(WORKFLOWS))]
    return samples + [ServedCase("random", i) for i in range(random_count)]


def served(seed: int, requests: int, case: ServedCase) -> list[Served]:
    """Serve requests of one workflow under each rule, spread and objective."""
    return list(_served(case, case.splitting_case(seed), seed, requests))


def _served(
    case: ServedCase, splitting: SplittingCase, seed: int, requests: int
) -> Iterator[Served]:
    constants = {
        "none": _Server(splitting, 0.05, 0.9, "exact", 0.0),
        "constant": _Server(splitting, 0.05, 0.9, "exact", CONSTANT_MARGIN),
    }
    for spread_ratio in SPREADS:
        sigma = sqrt(log(1.0 + spread_ratio**2))
        generator = np.random.default_rng([seed, case.number])
        shape = requests, len(splitting.workflow.spec.stages)
        factors = np.exp(generator.normal(-(sigma**2) / 2, sigma, shape))
        unplanned = {rule: server.serve(factors) for rule, server in constants.items()}
        for objective_ratio in OBJECTIVES:
            derived = {
                policy: _Server(splitting, spread_ratio, objective_ratio, policy, None).serve(
                    factors
                )
                for policy in DERIVED
            }
            for rule, (hit_ratio, cost) in (unplanned | derived).items():
                yield Served(case.group, rule, spread_ratio, objective_ratio, hit_ratio, cost)


class _Server:
    """One workflow, planned by one rule."""

    def __init__(
        self,
        splitting: SplittingCase,
        spread_ratio: float,
        objective_ratio: float,
        policy: str,
        margin_ratio: float | None,
    ) -> None:
        workflow = _with_objective(splitting.with_slo(1.0), objective_ratio)
        profiles = [_with_p95(profile, spread_ratio) for profile in splitting.profiles]
        rules = Rules(policy="esg" if policy == "esg" else "exact")
        self._planner = Planner(Catalogue.of([workflow, *profiles]), rules)
        self._key = workflow.key
        self._slo_ms = workflow.spec.slo.latency_ms
        self._margin_ratio = margin_ratio
        self._names, _ = numbered(workflow)
        self._planned: dict[tuple[int, int], tuple[float, float]] = {}

    def serve(self, factors: Floats) -> tuple[float, float]:
        """Return the ratio of hits and the mean cost of requests with these run times, (n, m)."""
        ends_ms, costs = np.zeros((2, len(factors)))
        step_ms = self._slo_ms / SLO_STEPS
        for v in range(factors.shape[1]):
            steps = np.floor((self._slo_ms - ends_ms) / step_ms).astype(np.int64)
            distinct, at = np.unique(np.maximum(steps, -1), return_inverse=True)
            planned = np.array([self._plan(v, step, step_ms) for step in distinct.tolist()])[at]
            ends_ms += planned[:, 0] * factors[:, v]
            costs += planned[:, 1] * factors[:, v]
        return float(np.mean(ends_ms <= self._slo_ms)), float(costs.mean())

    def _plan(self, v: int, step: int, step_ms: float) -> tuple[float, float]:
        """Return the mean time and the cost of the best configuration."""
        planned = self._planned.get((v, step))
        if planned is None:
            request = PlanRequest(
                namespace=self._key[0],
                workflow=self._key[1],
                stage=self._names[v],
                slack_ms=step * step_ms,
                margin_ratio=self._margin_ratio,
                k=1,
            )
            best = self._planner.plan(request).candidates[0]
            c, prices = best.configuration, self._planner.rules.prices
            planned = self._planned[v, step] = (
                c.latency_ms,
                prices.request_cost_dollars(
                    c.latency_ms, c.cpu, c.gpu_percent, c.batch, best.gpu_model
                ),
            )
        return planned


def _with_objective(workflow: Workflow, objective_ratio: float) -> Workflow:
    slo = workflow.spec.slo.model_copy(update={"objective": objective_ratio})
    return workflow.model_copy(update={"spec": workflow.spec.model_copy(update={"slo": slo})})


def _with_p95(profile: FunctionProfile, spread_ratio: float) -> FunctionProfile:
    """Return the profile with the 95th percentiles of the run times."""
    ratio = quantile_ratio(P95_Z, sqrt(log(1.0 + spread_ratio**2)))
    gpus = tuple(
        gpu.model_copy(
            update={
                "configurations": tuple(
                    c.model_copy(update={"p95_ms": c.latency_ms * ratio})
                    for c in gpu.configurations
                )
            }
        )
        for gpu in profile.spec.gpus
    )
    spec = profile.spec.model_copy(update={"gpus": gpus})
    return profile.model_copy(update={"spec": spec})
