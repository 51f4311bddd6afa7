"""ANDREAS: jobs on unlike GPUs for the least price of energy and delay, greedy or randomised.

At each arrival and end all jobs are placed again, those whose deadline is most at risk first, each
in the cheapest configuration that meets its deadline. The randomised form repeats this in other
orders and with other configurations, and takes the schedule of the least cost until its first job
ends (the project's optimizer, method RG).
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import inf
from random import Random
from typing import Literal, NamedTuple

from pydantic import Field

from studies.training.cluster import TrainingCluster
from studies.training.free_gpus import FreeGpus
from studies.training.job import DeadlineJob, HeterogeneousJob, JobPlacement
from studies.training.policy import JobsState, Placements, RunParameters, TrainingPolicy

_S_PER_H = 3600.0
_WAITING_FACTOR = 100.0  # of the delay of a job that waits
_SWAP_RATIOS = (0.55, 0.45)  # chance to swap neighbours if the earlier weighs more, or not
_BEST_RATIO = 0.05  # of the configurations, among which one is drawn


class PricedJob(DeadlineJob, HeterogeneousJob):
    """Capabilities that the policy reads, in one class."""

    __slots__ = ()


class GpuOption(NamedTuple):
    """GPUs of one model on one node, and the remaining run time on them."""

    gpu_model: str
    gpus: int
    remaining_s: float


@dataclass(slots=True)
class EnergySchedule:
    """Node and option of each placed job.

    Attributes:
        nodes: number of the node, by job.
        options: option, by job.
        free: number of free GPUs of each node.
    """

    free: list[int]
    nodes: dict[str, int] = field(default_factory=dict)
    options: dict[str, GpuOption] = field(default_factory=dict)

    def put(self, name: str, option: GpuOption, node: int) -> None:
        """Place a job."""
        self.nodes[name] = node
        self.options[name] = option
        self.free[node] -= option.gpus


class AndreasParameters(RunParameters):
    """Effort of the search."""

    order: Literal["pressure", "arrival", "deadline"] = Field(
        default="pressure", description="first job; arrival and deadline are FIFO and EDF"
    )
    randomized: bool = Field(default=True, description="repeat in random orders")
    repeats_max: int = Field(default=1000, ge=1, description="schedules that are tried")


class Andreas(TrainingPolicy[PricedJob]):
    """Least price until the next job ends."""

    parameters_type = AndreasParameters
    needs = (DeadlineJob, HeterogeneousJob)

    def __init__(self, parameters: AndreasParameters, seed: int) -> None:
        super().__init__(parameters, seed)
        self._random = Random(seed)  # noqa: S311 - a seeded search

    def decide(self, state: JobsState[PricedJob]) -> Placements:
        """Search a schedule, give leftover GPUs away, and keep the GPUs of unchanged jobs."""
        now_s, jobs, cluster, placements = state
        schedule = self.schedule(now_s, jobs, cluster)
        _give_leftover(schedule, jobs, cluster)
        node_of = cluster.node_of
        decided = {
            name: placement
            for name, placement in placements.items()
            if {node_of[gpu] for gpu in placement.gpus} == {schedule.nodes.get(name)}
            and len(placement.gpus) == schedule.options[name].gpus
        }
        free = FreeGpus(cluster, decided.values())
        for name, node in schedule.nodes.items():
            if name not in decided:
                decided[name] = JobPlacement(free.take(node, schedule.options[name].gpus))
        return decided

    def schedule(
        self, now_s: float, jobs: Sequence[PricedJob], cluster: TrainingCluster
    ) -> EnergySchedule:
        """Return the cheapest of the greedy schedule and, if randomised, of its variations."""
        options = {job.name: _ordered_options(job, now_s, cluster) for job in jobs}

        def rank_s(job: PricedJob) -> float:
            if self.parameters.order == "arrival":
                return job.submit_s
            if self.parameters.order == "deadline":
                return job.deadline_s
            times_s = (option.remaining_s for option in options[job.name])
            return job.deadline_s - now_s - min(times_s, default=0.0)

        ordered = sorted(jobs, key=rank_s)
        best = _greedy(ordered, options, cluster, [0] * len(jobs))
        if not self.parameters.randomized:
            return best
        best_cost = schedule_dollars(best, now_s, jobs, options, cluster)
        repeats = min(self.parameters.repeats_max, len(cluster.nodes) * len(jobs) * cluster.gpus)
        for repeat in range(repeats):
            # Swaps of neighbours do not reach all orders, so every other one is drawn freely.
            drawn = self._random.sample(ordered, len(ordered)) if repeat % 2 else ordered
            varied = self._swapped(drawn)
            firsts = [
                self._random.randrange(max(round(_BEST_RATIO * len(options[job.name])), 1))
                for job in varied
            ]
            candidate = _greedy(varied, options, cluster, firsts)
            cost = schedule_dollars(candidate, now_s, jobs, options, cluster)
            if cost < best_cost:
                best, best_cost = candidate, cost
        return best

    def _swapped(self, ordered: Sequence[PricedJob]) -> list[PricedJob]:
        jobs = list(ordered)
        for i in range(len(jobs) - 1):
            heavier = jobs[i].late_cost_per_s > jobs[i + 1].late_cost_per_s
            if self._random.random() < _SWAP_RATIOS[not heavier]:
                jobs[i], jobs[i + 1] = jobs[i + 1], jobs[i]
        return jobs


def schedule_dollars(
    schedule: EnergySchedule,
    now_s: float,
    jobs: Sequence[PricedJob],
    options: dict[str, list[GpuOption]],
    cluster: TrainingCluster,
) -> float:
    """Return the price until the first job ends: energy, delay, and the risk of those that wait."""
    span_s = min((option.remaining_s for option in schedule.options.values()), default=0.0)
    nodes = cluster.nodes
    power_cost_per_h = sum(
        nodes[node].gpu_cost_per_h * schedule.options[name].gpus
        for name, node in schedule.nodes.items()
    ) + sum(nodes[node].cost_per_h for node in set(schedule.nodes.values()))
    cost = power_cost_per_h * span_s / _S_PER_H
    for job in jobs:
        if job.name in schedule.nodes:
            cost += job.late_cost_per_s * max(now_s + span_s - job.deadline_s, 0.0)
        else:
            longest_s = max((option.remaining_s for option in options[job.name]), default=0.0)
            late_s = max(now_s + longest_s - job.deadline_s, 0.0)
            cost += _WAITING_FACTOR * job.late_cost_per_s * late_s
    return cost


def _ordered_options(job: PricedJob, now_s: float, cluster: TrainingCluster) -> list[GpuOption]:
    """Return options in time by their price, then the others by their run time."""
    largest: dict[str, int] = {}
    prices: dict[str, float] = {}
    for node in cluster.nodes:
        largest[node.gpu_model] = max(node.gpus, largest.get(node.gpu_model, 0))
        prices[node.gpu_model] = node.gpu_cost_per_h
    options = [
        GpuOption(model, gpus, job.remaining_on_s(model, gpus))
        for model in largest
        for gpus in job.options(model)
        if gpus <= largest[model]
    ]

    def rank(option: GpuOption) -> tuple[bool, float]:
        late = now_s + option.remaining_s > job.deadline_s
        price = prices[option.gpu_model] * option.gpus * option.remaining_s
        return late, option.remaining_s if late else price

    return sorted(options, key=rank)


def _greedy(
    ordered: Sequence[PricedJob],
    options: dict[str, list[GpuOption]],
    cluster: TrainingCluster,
    firsts: Sequence[int],
) -> EnergySchedule:
    """Place jobs in order; ``firsts`` are the indices of the options that are tried first."""
    schedule = EnergySchedule([node.gpus for node in cluster.nodes])
    for job, first in zip(ordered, firsts, strict=True):
        job_options = options[job.name]
        for option in [*job_options[first : first + 1], *job_options]:
            node = _best_fit(option, schedule.free, cluster)
            if node is not None:
                schedule.put(job.name, option, node)
                break
    return schedule


def _best_fit(option: GpuOption, free: Sequence[int], cluster: TrainingCluster) -> int | None:
    """Return the node of the model with the fewest free GPUs that suffice."""
    best, best_free = None, inf
    for number, node in enumerate(cluster.nodes):
        if node.gpu_model == option.gpu_model and option.gpus <= free[number] < best_free:
            best, best_free = number, free[number]
    return best


def _give_leftover(
    schedule: EnergySchedule, jobs: Sequence[PricedJob], cluster: TrainingCluster
) -> None:
    """Give the free GPUs of each node in use to the job on it that gains most time."""
    by_name = {job.name: job for job in jobs}
    for node in sorted(set(schedule.nodes.values())):
        model = cluster.nodes[node].gpu_model
        gains_s: dict[tuple[str, int], float] = {}
        for name, placed in schedule.nodes.items():
            option = schedule.options[name]
            for gpus in by_name[name].options(model) if placed == node else ():
                if option.gpus < gpus <= option.gpus + schedule.free[node]:
                    gains_s[name, gpus] = option.remaining_s - by_name[name].remaining_on_s(
                        model, gpus
                    )
        if gains_s and max(gains_s.values()) > 0:
            name, gpus = max(gains_s, key=gains_s.__getitem__)
            schedule.free[node] += schedule.options[name].gpus
            schedule.put(
                name, GpuOption(model, gpus, by_name[name].remaining_on_s(model, gpus)), node
            )
