"""OASiS: jobs are admitted by their utility less the price of the GPUs and CPUs that they need.

Source: Bao, Peng, Wu, Li, "Online Job Scheduling in Distributed Machine Learning Clusters", INFOCOM
2018. A reconstruction from its abstract and what is known of its algorithm: when a job arrives, a
dynamic programme finds, for each slot in which it might end, the schedule of workers and parameter
servers that is cheapest at the current prices. The job gets the one with the largest pay-off, or is
refused if none is positive. Reservations raise the prices for later jobs. An admitted job keeps its
schedule, in which the number of workers differs from slot to slot; a refused one never runs.
"""

from itertools import chain

import numpy as np
from pydantic import Field

from studies.training.free_gpus import FreeGpus
from studies.training.job import JobPlacement, ParameterServerJob
from studies.training.policies.oasis_schedule import (
    LOW_PRICE_RATIO,
    CheapestSchedules,
    PricedSlots,
    SlotPlan,
)
from studies.training.policy import JobsState, Placements, RunParameters, TrainingPolicy

Schedule = dict[int, SlotPlan]
"""Reservations of a job by slot; none: it is refused."""


class OasisParameters(RunParameters):
    """Time slots, and the price of what is idle."""

    slot_s: float = Field(default=300.0, gt=0, description="length of a time slot")
    slots: int = Field(default=100, ge=1, le=10_000, description="slots until the end")
    low_price_ratio: float = Field(
        default=LOW_PRICE_RATIO,
        gt=0,
        description="price of the idle cluster over the least utility of a job",
    )


class Oasis(TrainingPolicy[ParameterServerJob]):
    """Admission and schedule at arrival."""

    parameters_type = OasisParameters
    needs = (ParameterServerJob,)

    def __init__(self, parameters: OasisParameters, seed: int) -> None:
        super().__init__(parameters, seed)
        self._priced: PricedSlots | None = None
        self._schedules: dict[str, Schedule] = {}

    def decide(self, state: JobsState[ParameterServerJob]) -> Placements:
        """Admit or refuse the jobs that have arrived, and place the workers of this slot."""
        now_s, jobs, cluster, _ = state
        slot_s: float = self.parameters.slot_s
        if self._priced is None:
            node_gpus = [node.gpus for node in cluster.nodes]
            cpus = sum(node.cpus for node in cluster.nodes)
            self._priced = PricedSlots(
                self.parameters.slots, slot_s, node_gpus, cpus, self.parameters.low_price_ratio
            )
        slot = round(now_s / slot_s)
        for job in jobs:
            if job.name not in self._schedules:
                self._schedules[job.name] = schedule(job, self._priced, slot, slot_s)
        free = FreeGpus(cluster)
        decided = {}
        for job in jobs:
            plan = self._schedules[job.name].get(slot)
            if plan is not None:
                by_node = [free.take(node, workers) for node, workers in enumerate(plan.workers)]
                decided[job.name] = JobPlacement(tuple(chain.from_iterable(by_node)))
        return decided


def schedule(job: ParameterServerJob, priced: PricedSlots, first: int, slot_s: float) -> Schedule:
    """Reserve the schedule with the largest pay-off, if it is positive.

    Args:
        job: job that has arrived.
        priced: reservations of earlier jobs, to which its own are added.
        first: first slot of a schedule.
        slot_s: length of a slot.
    """
    slots = range(first, priced.count)
    if not slots or not priced.add_job(job):
        return {}
    cheapest = CheapestSchedules(
        [priced.chunk_costs(job, slot) for slot in slots], job.epochs * job.chunks
    )
    utilities = np.array([job.utility((slot + 1) * slot_s - job.submit_s) for slot in slots])
    payoffs = utilities - cheapest.costs
    last = int(payoffs.argmax())
    if payoffs[last] <= 0:
        return {}
    return {
        slot: priced.reserve(job, slot, chunks)
        for slot, chunks in zip(slots, cheapest.chunks_by_slot(last), strict=False)
        if chunks
    }
