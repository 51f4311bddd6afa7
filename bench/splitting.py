"""The questions of `bench.policies`: workflows under three SLOs, planned by every policy.

The four sample workflows, and random ones with generated noisy profiles, each from its entry to its
end.
"""

import random
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import product
from math import inf

from scheduler.model.catalogue import Catalogue
from scheduler.model.documents import FunctionProfile, Workflow
from scheduler.search.completion import complete
from scheduler.search.planner import Planner, PlanRequest
from scheduler.search.rules import Rules
from workbench.profiles.generated import FUNCTIONS, generated_profile, generated_workflow

FACTORS = (0.8, 1.0, 1.2)
ENOUGH = 100_000  # states of a search, so that the split alone makes a plan dearer
TOLERANCE = 1e-9
POLICIES = {
    "exact": Rules(expansions_max=ENOUGH),
    "groups of 1": Rules(policy="esg", group_size=1, expansions_max=ENOUGH),
    "groups of 3": Rules(policy="esg", group_size=3, expansions_max=ENOUGH),
    "groups of 5": Rules(policy="esg", group_size=5, expansions_max=ENOUGH),
    "exact, as shipped": Rules(),
    "groups of 3, as shipped": Rules(policy="esg", group_size=3),
}

STAGES = (3, 12)
BATCHES, CPUS, GPU_PERCENTS = (1, 2, 4, 8), (1, 2, 4, 8), (14, 28, 57, 100)
NOISE = 0.05  # standard deviation of the logarithm of a time


@dataclass(frozen=True, slots=True)
class SplittingCase:
    """A workflow, and its longest path with every stage at its minimum configuration."""

    workflow: Workflow
    profiles: tuple[FunctionProfile, ...]
    longest_ms: float

    def with_slo(self, factor: float) -> Workflow:
        """The workflow under so many times that path."""
        spec = self.workflow.spec
        slo = spec.slo.model_copy(update={"latency_ms": factor * self.longest_ms})
        return self.workflow.model_copy(update={"spec": spec.model_copy(update={"slo": slo})})


@dataclass(frozen=True, slots=True)
class SplittingOutcome:
    """One workflow under one SLO.

    Attributes:
        workflow: its name.
        series_parallel: whether what follows its entry is.
        factor: the SLO in L.
        slo_ms: the same in ms.
        costs: dollars per request by policy; inf where the plan ends late.
        used: the part of the SLO that the plan takes, by policy.
        exact: whether nothing is cheaper than what ``exact`` found.
    """

    workflow: str
    series_parallel: bool
    factor: float
    slo_ms: float
    costs: Mapping[str, float]
    used: Mapping[str, float]
    exact: bool

    def dearer(self, policy: str) -> float:
        """By how much the policy costs more than exact, relatively."""
        return self.costs[policy] / self.costs["exact"] - 1


def sample(name: str) -> SplittingCase:
    """One of the four workflows of the paper's evaluation; a chain."""
    workflow = generated_workflow(name)
    functions = {stage.function for stage in workflow.spec.stages}
    profiles = tuple(generated_profile(f) for f in FUNCTIONS if f.name in functions)
    return SplittingCase(workflow, profiles, workflow.spec.slo.latency_ms)


def random_case(seed: int, number: int) -> SplittingCase:
    """A DAG with one entry, each later stage after one to three earlier ones."""
    chance = random.Random(f"{seed}/{number}")
    count = chance.randint(*STAGES)
    after = [
        sorted(chance.sample(range(v), min(v, chance.choice((1, 1, 2, 2, 3)))))
        for v in range(count)
    ]
    profiles = [random_profile(f"f{v}", chance) for v in range(count)]
    stages = [
        {"name": f"s{v}", "function": f"f{v}", "after": [f"s{p}" for p in before]}
        for v, before in enumerate(after)
    ]
    ends_ms: list[float] = []
    for profile, before in zip(profiles, after, strict=True):
        minimum = profile.spec.gpus[0].configurations[0]
        ends_ms.append(max((ends_ms[p] for p in before), default=0.0) + minimum.latency_ms)
    document = {
        "metadata": {"name": f"random-{number}", "namespace": "default"},
        "spec": {"slo": {"latencyMs": max(ends_ms)}, "stages": stages},
    }
    return SplittingCase(Workflow.model_validate(document), tuple(profiles), max(ends_ms))


def random_profile(name: str, chance: random.Random) -> FunctionProfile:
    """64 configurations, the minimum first; noisy, so that more is not always faster."""
    t0_ms = 50 * 20 ** chance.random()
    phi, alpha = chance.uniform(0.1, 0.3), chance.uniform(0.5, 0.8)
    beta, gamma = chance.uniform(0.5, 0.7), chance.uniform(0.3, 0.8)
    rows = [
        {
            "batch": batch,
            "cpu": cpu,
            "gpuPercent": percent,
            "memoryMib": 1000,
            "latencyMs": t0_ms
            * (
                phi * batch / cpu**alpha
                + (1 - phi) * batch**beta / (percent / GPU_PERCENTS[0]) ** gamma
            )
            * chance.lognormvariate(0, NOISE),
        }
        for batch, cpu, percent in product(BATCHES, CPUS, GPU_PERCENTS)
    ]
    spec = {"gpus": [{"model": "gpu", "configurations": rows}]}
    return FunctionProfile.model_validate({"metadata": {"name": name}, "spec": spec})


def outcomes(case: SplittingCase) -> list[SplittingOutcome]:
    """The workflow under each SLO, by every policy."""
    return [outcome(case, factor) for factor in FACTORS]


def outcome(case: SplittingCase, factor: float) -> SplittingOutcome:
    """The workflow under one SLO, by every policy."""
    workflow = case.with_slo(factor)
    catalogue = Catalogue.of([workflow, *case.profiles])
    planners = {policy: Planner(catalogue, rules) for policy, rules in POLICIES.items()}
    slo_ms = workflow.spec.slo.latency_ms
    namespace, name = workflow.key
    request = PlanRequest(
        namespace=namespace,
        workflow=name,
        stage=next(stage.name for stage in workflow.spec.stages if not stage.after),
        slack_ms=slo_ms,
        k=1,
    )
    costs, used = {}, {}
    for policy, planner in planners.items():
        completion = complete(planner, request)
        in_time = completion.path_ms <= slo_ms * (1 + TOLERANCE)
        costs[policy] = completion.cost_dollars if in_time else inf
        used[policy] = completion.path_ms / slo_ms
    exact = planners["exact"]
    options = exact.stage(request).options
    series_parallel = all(option.tail.graph is None for option in options)
    exactly = exact.plan(request).exact
    return SplittingOutcome(name, series_parallel, factor, slo_ms, costs, used, exactly)


def random_outcomes(seed: int, number: int) -> list[SplittingOutcome]:
    """Of one random workflow: what a process of its own works out."""
    return outcomes(random_case(seed, number))
