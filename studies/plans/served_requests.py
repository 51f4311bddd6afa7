"""Cases of `studies.plans.objective`: stages take random times, and each is planned again.

Every stage of a request is planned when its predecessors have ended, with the time that is left and
the progress of the stages that run in parallel, and then takes its profiled time times a log-normal
factor with mean 1. There is no cluster: no request waits for a GPU, and batches are full. Times are
rounded to steps, to the disadvantage of the plan, so that plans repeat.
"""

import heapq
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import ceil, floor, log, sqrt

import numpy as np

from scheduler.model.catalogue import Catalogue
from scheduler.model.documents import FunctionProfile, Workflow
from scheduler.model.progress import InstanceProgress
from scheduler.search.dag import members, numbered
from scheduler.search.frontiers.arrays import Floats
from scheduler.search.margin import P95_Z, quantile_ratio
from scheduler.search.planner import Planner, PlanRequest
from scheduler.search.rules import Rules
from studies.plans.splitting import SplittingCase, random_profile, sample
from workbench.profiles.builders import chain, workflow
from workbench.profiles.generated import FUNCTIONS, WORKFLOWS, generated_profile

STAGES = (1, 8)
SLO_STEPS = 1000
OBJECTIVES = (0.9, 0.99, 0.999)
SPREADS = (0.05, 0.1, 0.2)
CONSTANT_MARGIN = 0.1
DERIVED = ("exact", "esg")
# Direct predecessors of each stage. The last stage of the second one runs on whole GPUs only.
FORK = ((), *((0,) for _ in range(8)), tuple(range(1, 9)))
SHAPES = {
    "fork of 8, join": FORK,
    "fork of 8, join on whole GPUs": FORK,
    "two entries, two joins": ((), (), (0, 1), (0, 1), (2, 3)),
    "N": ((), (0,), (0,), (1, 2), (2,)),
    "four ends": ((), (0,), (0,), (0,), (0,)),
}
ON_WHOLE_GPUS = "fork of 8, join on whole GPUs"
DAG_GROUPS = ("sample DAGs", "random DAGs")


@dataclass(frozen=True, slots=True)
class Served:
    """Requests of one workflow under one rule.

    Attributes:
        group, number: place of the workflow, as in `ServedCase`.
        rule: ``none``, ``constant``, or the policy that plans with the derived margin.
        spread_ratio: standard deviation over mean of the run times.
        objective_ratio: objective of the workflow.
        requests: number of requests.
        hit_ratio: ratio of them within the SLO.
        cost_dollars: mean cost of a request.
    """

    group: str
    number: int
    rule: str
    spread_ratio: float
    objective_ratio: float
    requests: int
    hit_ratio: float
    cost_dollars: float

    @property
    def misses(self) -> bool:
        """Return true if the hits are below the objective by more than two standard errors."""
        ratio = self.objective_ratio
        return self.hit_ratio < ratio - 2.0 * sqrt(ratio * (1.0 - ratio) / self.requests)


@dataclass(frozen=True, slots=True)
class ServedCase:
    """A workflow in a group.

    Attributes:
        group: ``samples`` or ``random``: sequences with the sample functions, and with random
            profiles; ``sample DAGs`` or ``random DAGs``: SHAPES with the same.
        number: number of the workflow within the group.
    """

    group: str
    number: int

    def splitting_case(self, seed: int) -> SplittingCase:
        """Return the workflow and its profiles."""
        if self.group == "samples":
            return sample(sorted(WORKFLOWS)[self.number])
        if self.group == "random":
            return random_chain(seed, self.number)
        shape = list(SHAPES)[self.number]
        if self.group == "sample DAGs":
            profiles = [generated_profile(function) for function in FUNCTIONS]
            return _shaped(shape, [profiles[v % len(profiles)] for v in range(len(SHAPES[shape]))])
        rng = random.Random(f"{seed}/{shape}")
        return _shaped(shape, [random_profile(f"f{v}", rng) for v in range(len(SHAPES[shape]))])


def _shaped(shape: str, profiles: list[FunctionProfile]) -> SplittingCase:
    """Create a workflow of a shape with a profile for each stage."""
    if shape == ON_WHOLE_GPUS:
        profiles[-1] = _on_whole_gpus(profiles[-1])
    after = SHAPES[shape]
    ends_ms: list[float] = []
    for profile, before in zip(profiles, after, strict=True):
        minimum_ms = profile.spec.gpus[0].configurations[0].latency_ms
        ends_ms.append(max((ends_ms[p] for p in before), default=0.0) + minimum_ms)
    functions = [profile.metadata.name for profile in profiles]
    name = shape.replace(",", "").replace(" ", "-").lower()
    dag = workflow(after, name=name, slo_ms=max(ends_ms), functions=functions)
    return SplittingCase(dag, tuple(profiles), max(ends_ms))


def _on_whole_gpus(profile: FunctionProfile) -> FunctionProfile:
    gpus = tuple(
        gpu.model_copy(
            update={"configurations": tuple(c for c in gpu.configurations if c.gpu_percent == 100)}
        )
        for gpu in profile.spec.gpus
    )
    metadata = profile.metadata.model_copy(update={"name": f"whole-{profile.metadata.name}"})
    spec = profile.spec.model_copy(update={"gpus": gpus})
    return profile.model_copy(update={"metadata": metadata, "spec": spec})


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
    sequences = samples + [ServedCase("random", i) for i in range(random_count)]
    return sequences + [ServedCase(group, i) for group in DAG_GROUPS for i in range(len(SHAPES))]


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
                ratios = spread_ratio, objective_ratio
                yield Served(case.group, case.number, rule, *ratios, requests, hit_ratio, cost)


_Running = tuple[tuple[int, int], ...]  # stages that run, and steps until their planned end


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
        by_name = {profile.metadata.name: profile for profile in splitting.profiles}
        profiles = [_with_p95(profile, spread_ratio) for profile in by_name.values()]
        rules = Rules(policy="esg" if policy == "esg" else "exact")
        self._planner = Planner(Catalogue.of([workflow, *profiles]), rules)
        self._key = workflow.key
        self._slo_ms = workflow.spec.slo.latency_ms
        self._margin_ratio = margin_ratio
        self._names, dag = numbered(workflow)
        self._before = dag.before
        # Policy esg plans a group of stages, whatever the others do.
        self._sees_progress = policy == "exact"
        self._planned: dict[tuple[int, int, int, _Running], tuple[float, float]] = {}

    def serve(self, factors: Floats) -> tuple[float, float]:
        """Return the ratio of hits and the mean cost of requests with these run times, (n, m)."""
        ends_ms, costs = np.array([self._serve(row) for row in factors.tolist()]).T
        return float(np.mean(ends_ms <= self._slo_ms)), float(costs.mean())

    def _serve(self, factors: Sequence[float]) -> tuple[float, float]:
        """Return the end and the cost of one request, whose stages take times by these factors."""
        step_ms = self._slo_ms / SLO_STEPS
        now_ms, cost, ended = 0.0, 0.0, 0
        planned_end_ms: dict[int, float] = {}  # of running stages
        ends: list[tuple[float, int]] = []
        waiting = list(range(len(factors)))
        while True:
            for v in [v for v in waiting if not self._before[v] & ~ended]:
                waiting.remove(v)
                step = max(floor((self._slo_ms - now_ms) / step_ms), -1)
                running = tuple(
                    (w, max(ceil((end_ms - now_ms) / step_ms), 0))
                    for w, end_ms in planned_end_ms.items()
                )
                stage_ms, stage_cost = self._plan(v, step, ended, running, step_ms)
                planned_end_ms[v] = now_ms + stage_ms
                heapq.heappush(ends, (now_ms + stage_ms * factors[v], v))
                cost += stage_cost * factors[v]
            if not ends:
                return now_ms, cost
            now_ms, v = heapq.heappop(ends)
            ended |= 1 << v
            del planned_end_ms[v]

    def _plan(
        self, v: int, step: int, ended: int, running: _Running, step_ms: float
    ) -> tuple[float, float]:
        """Return the mean time and the cost of the best configuration."""
        key = (v, step, ended, running) if self._sees_progress else (v, step, 0, ())
        planned = self._planned.get(key)
        if planned is None:
            progress = InstanceProgress(
                frozenset(self._names[w] for w in members(ended)),
                {self._names[w]: steps * step_ms for w, steps in running},
            )
            request = PlanRequest(
                namespace=self._key[0],
                workflow=self._key[1],
                stage=self._names[v],
                slack_ms=step * step_ms,
                margin_ratio=self._margin_ratio,
                progress=progress,
                k=1,
            )
            best = self._planner.plan(request).candidates[0]
            c, prices = best.configuration, self._planner.rules.prices
            planned = self._planned[key] = (
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
