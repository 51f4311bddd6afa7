"""Cases of `studies.plans.policies`: workflows with three SLOs, planned by every policy.

They are the four sample workflows and random ones with generated noisy profiles, each planned stage
after stage, from its entry to its end, as the service does.
"""

import random
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import product
from math import inf

from scheduler.model.catalogue import Catalogue
from scheduler.model.documents import FunctionProfile, Workflow
from scheduler.search.completion import complete
from scheduler.search.dag import Composition, Dag, decompose, numbered
from scheduler.search.planner import Planner, PlanRequest
from scheduler.search.rules import Rules
from workbench.profiles.builders import workflow
from workbench.profiles.generated import FUNCTIONS, generated_profile, generated_workflow

FACTORS = (0.8, 1.0, 1.2)
ENOUGH = 100_000  # states of a search, so that only the split raises the cost of a plan
TOLERANCE = 1e-9
POLICIES = {
    "exact": Rules(),
    "groups of 1": Rules(policy="esg", group_size=1, expansions_max=ENOUGH),
    "groups of 3": Rules(policy="esg", group_size=3, expansions_max=ENOUGH),
    "groups of 5": Rules(policy="esg", group_size=5, expansions_max=ENOUGH),
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
        """Return the workflow with an SLO of a multiple of that path."""
        spec = self.workflow.spec
        slo = spec.slo.model_copy(update={"latency_ms": factor * self.longest_ms})
        return self.workflow.model_copy(update={"spec": spec.model_copy(update={"slo": slo})})


@dataclass(frozen=True, slots=True)
class SplittingOutcome:
    """One workflow with one SLO.

    Attributes:
        workflow: name of the workflow.
        series_parallel: true if the order of its stages is series-parallel.
        factor: SLO as a multiple of L.
        slo_ms: SLO in ms.
        costs: dollars per request by policy; inf if the plan ends late.
        used: ratio of the plan's time to the SLO, by policy.
        exact: true if no plan is cheaper than that of policy ``exact`` for the entry.
        served_ratio: cost of all stages, each planned at its turn by policy ``exact``, over the
            cost that its plan for the entry stated.
    """

    workflow: str
    series_parallel: bool
    factor: float
    slo_ms: float
    costs: Mapping[str, float]
    used: Mapping[str, float]
    exact: bool
    served_ratio: float

    def excess_ratio(self, policy: str) -> float:
        """Return the cost of a policy over that of exact, minus 1."""
        return self.costs[policy] / self.costs["exact"] - 1


def sample(name: str) -> SplittingCase:
    """Return one of the four workflows of the paper's evaluation; a chain."""
    workflow = generated_workflow(name)
    functions = {stage.function for stage in workflow.spec.stages}
    profiles = tuple(generated_profile(f) for f in FUNCTIONS if f.name in functions)
    return SplittingCase(workflow, profiles, workflow.spec.slo.latency_ms)


def random_case(seed: int, number: int) -> SplittingCase:
    """Create a DAG with one entry; each later stage follows one to three earlier ones."""
    rng = random.Random(f"{seed}/{number}")
    count = rng.randint(*STAGES)
    after = [
        sorted(rng.sample(range(v), min(v, rng.choice((1, 1, 2, 2, 3))))) for v in range(count)
    ]
    profiles = [random_profile(f"f{v}", rng) for v in range(count)]
    ends_ms: list[float] = []
    for profile, before in zip(profiles, after, strict=True):
        minimum = profile.spec.gpus[0].configurations[0]
        ends_ms.append(max((ends_ms[p] for p in before), default=0.0) + minimum.latency_ms)
    random_dag = workflow(after, name=f"random-{number}", slo_ms=max(ends_ms))
    return SplittingCase(random_dag, tuple(profiles), max(ends_ms))


def random_profile(name: str, rng: random.Random) -> FunctionProfile:
    """Create 64 noisy configurations, the minimum first; more resources are not always faster."""
    t0_ms = 50 * 20 ** rng.random()
    phi, alpha = rng.uniform(0.1, 0.3), rng.uniform(0.5, 0.8)
    beta, gamma = rng.uniform(0.5, 0.7), rng.uniform(0.3, 0.8)
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
            * rng.lognormvariate(0, NOISE),
        }
        for batch, cpu, percent in product(BATCHES, CPUS, GPU_PERCENTS)
    ]
    spec = {"gpus": [{"model": "gpu", "configurations": rows}]}
    return FunctionProfile.model_validate({"metadata": {"name": name}, "spec": spec})


def outcomes(case: SplittingCase) -> list[SplittingOutcome]:
    """Plan a workflow with each SLO by every policy."""
    return [outcome(case, factor) for factor in FACTORS]


def outcome(case: SplittingCase, factor: float) -> SplittingOutcome:
    """Plan a workflow with one SLO by every policy."""
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
    _, dag = numbered(workflow)
    series_parallel = _is_series_parallel(dag, (1 << len(dag.before)) - 1)
    plan = exact.plan(request)
    served_ratio = costs["exact"] / plan.candidates[0].path_cost_dollars
    return SplittingOutcome(
        name, series_parallel, factor, slo_ms, costs, used, plan.exact, served_ratio
    )


def _is_series_parallel(dag: Dag, mask: int) -> bool:
    composition, parts = decompose(dag, mask)
    if composition is Composition.SINGLE:
        return True
    prime = composition is Composition.PRIME
    return not prime and all(_is_series_parallel(dag, part) for part in parts)


def random_outcomes(seed: int, number: int) -> list[SplittingOutcome]:
    """Plan one random workflow, in a process of its own."""
    return outcomes(random_case(seed, number))
