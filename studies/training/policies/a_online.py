"""A_online, a reconstruction: batches at doubling times, each with a plan for the next window.

At 0, 1, 2, 4, 8 … intervals, an integer program chooses among all waiting jobs those of the largest
total weight that can run within the next window, whose length is the time passed so far, and gives
each a node, a number of GPUs and a start. Jobs are elastic only at their start and run to the end.
"""

from collections import defaultdict
from collections.abc import Sequence
from math import ceil, inf, log2
from typing import NamedTuple

import numpy as np
from pydantic import Field
from scipy.optimize import Bounds, LinearConstraint, milp
from scipy.sparse import coo_array

from studies.training.cluster import TrainingCluster
from studies.training.free_gpus import FreeGpus
from studies.training.job import HeterogeneousJob, JobPlacement
from studies.training.policy import JobsState, Placements, RunParameters, TrainingPolicy

_BINARY_LIMIT = 0.5  # a binary variable of the solver is 1 above
_ROUNDING = 1e-9
_EARLY_RATIO = 1e-3  # of a weight: what the end of the window costs, so that jobs start early


class PlannedStart(NamedTuple):
    """Start of a job on GPUs of one node."""

    start_s: float
    node: int
    gpus: int


class AOnlineParameters(RunParameters):
    """First interval, and size of the integer program."""

    interval_s: float = Field(default=300.0, gt=0, description="first window")
    slots: int = Field(default=8, ge=1, le=1000, description="starts within a window")
    jobs_max: int = Field(default=40, ge=1, description="jobs of a batch, first those that waited")
    milp_nodes: int = Field(default=1000, ge=1, description="branches of the integer program")


class AOnline(TrainingPolicy[HeterogeneousJob]):
    """Plans for doubling windows."""

    parameters_type = AOnlineParameters
    needs = (HeterogeneousJob,)

    def __init__(self, parameters: AOnlineParameters, seed: int) -> None:
        super().__init__(parameters, seed)
        self._plan: dict[str, PlannedStart] = {}

    def decide(self, state: JobsState[HeterogeneousJob]) -> Placements:
        """Plan at the start of a window, and start what is due."""
        now_s, jobs, cluster, placements = state
        if self._starts_window(now_s):
            waiting = [job for job in jobs if not job.running and job.name not in self._plan]
            batch = sorted(waiting, key=lambda job: job.submit_s)[: self.parameters.jobs_max]
            window_s = max(now_s, self.parameters.interval_s)
            self._plan |= self.planned(batch, cluster, now_s, window_s)
        decided = dict(placements)
        free = FreeGpus(cluster, decided.values())
        for name, planned in sorted(self._plan.items(), key=lambda item: item[1].start_s):
            if planned.start_s <= now_s + _ROUNDING and free.of_node(planned.node) >= planned.gpus:
                decided[name] = JobPlacement(free.take(planned.node, planned.gpus))
                del self._plan[name]
        return decided

    def wake_s(self, now_s: float) -> float:
        """Return the next planned start or the start of the next window."""
        starts_s = (p.start_s for p in self._plan.values() if p.start_s > now_s)
        interval_s: float = self.parameters.interval_s
        windows = max(now_s / interval_s, 0.5)
        next_s = interval_s * 2.0 ** (int(np.floor(log2(windows) + _ROUNDING)) + 1)
        return min(next_s, min(starts_s, default=inf))

    def planned(
        self,
        jobs: Sequence[HeterogeneousJob],
        cluster: TrainingCluster,
        begin_s: float,
        window_s: float,
    ) -> dict[str, PlannedStart]:
        """Return the starts of the jobs with the largest total weight that end in the window."""
        slots: int = self.parameters.slots
        slot_s = window_s / slots
        starts: list[tuple[int, PlannedStart]] = []
        costs: list[float] = []
        rows: list[int] = []
        columns: list[int] = []
        factors: list[float] = []
        uses: dict[tuple[int, int], list[tuple[int, int]]] = defaultdict(list)
        for row, job in enumerate(jobs):
            for number, node in enumerate(cluster.nodes):
                for gpus in job.options(node.gpu_model):
                    length = max(
                        ceil(job.remaining_on_s(node.gpu_model, gpus) / slot_s - _ROUNDING), 1
                    )
                    for first in range(slots - length + 1 if gpus <= node.gpus else 0):
                        column = len(starts)
                        early = _EARLY_RATIO * (first + length) / slots
                        starts.append((row, PlannedStart(begin_s + first * slot_s, number, gpus)))
                        costs.append(-job.late_cost_per_s * (1 - early))
                        rows.append(row)
                        columns.append(column)
                        factors.append(1.0)
                        for slot in range(first, first + length):
                            uses[number, slot].append((column, gpus))
        if not starts:
            return {}
        upper = [1.0] * len(jobs)
        for (number, _), users in uses.items():
            rows += [len(upper)] * len(users)
            columns += [column for column, _ in users]
            factors += [float(gpus) for _, gpus in users]
            upper.append(float(cluster.nodes[number].gpus))
        matrix = coo_array((factors, (rows, columns)), shape=(len(upper), len(starts))).tocsr()
        answer = milp(
            np.array(costs),
            integrality=np.ones(len(starts)),
            bounds=Bounds(0.0, 1.0),
            constraints=LinearConstraint(matrix, -np.inf, upper),
            options={"node_limit": self.parameters.milp_nodes},
        )
        if answer.x is None:
            return {}
        return {
            jobs[starts[i][0]].name: starts[i][1] for i in np.flatnonzero(answer.x > _BINARY_LIMIT)
        }

    def _starts_window(self, now_s: float) -> bool:
        windows = now_s / self.parameters.interval_s
        if windows < _ROUNDING:
            return True
        exponent = log2(windows)
        return exponent > -_ROUNDING and abs(exponent - round(exponent)) < _ROUNDING
