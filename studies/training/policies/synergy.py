"""Synergy: CPUs and memory by what each job needs of them, on GPUs that another order chose.

Source: Mohan et al., "Looking Beyond GPUs for DNN Scheduling", OSDI 2022, in the form of the public
simulator. Every decision places all jobs again: in the chosen order, jobs take GPUs while there are
enough. In mode ``fair`` each has the proportional share of CPUs and memory, in mode ``greedy`` its
full demand or no GPU, and in mode ``tune`` its full demand where a node has it, otherwise the
proportional share, for which neighbours give up what exceeds theirs.
"""

from typing import Literal

from pydantic import Field

from studies.training.job import DemandingJob
from studies.training.node_shares import GpuShare, NodeShares
from studies.training.ordered import fitting_jobs
from studies.training.policy import JobsState, Placements, RunParameters, TrainingPolicy


class SynergyParameters(RunParameters):
    """Order of the jobs, and division of CPUs and memory."""

    order: Literal["fifo", "las", "srtf", "ftf"] = Field(
        default="srtf",
        description="arrival, attained service, remaining time, or finish-time fairness",
    )
    mode: Literal["fair", "greedy", "tune"] = Field(
        default="tune", description="proportional, full demand, or full demand where it fits"
    )


class Synergy(TrainingPolicy[DemandingJob]):
    """GPUs in an order, then CPUs and memory by demand."""

    parameters_type = SynergyParameters
    needs = (DemandingJob,)

    def decide(self, state: JobsState[DemandingJob]) -> Placements:
        """Choose jobs by the number of GPUs, and place them with their shares."""
        now_s, jobs, cluster = state.now_s, state.jobs, state.cluster
        ordered = sorted(jobs, key=lambda job: self._rank_s(job, now_s))
        fitting = fitting_jobs(ordered, cluster.gpus)
        mode = self.parameters.mode
        if mode == "tune":
            fitting.sort(key=lambda job: -job.gpus)
        nodes = NodeShares(cluster)
        for job in fitting:
            demand = GpuShare(job.cpus_per_gpu, job.memory_gib_per_gpu)
            if mode != "fair" and nodes.take(job.name, job.gpus, demand):
                continue
            if mode != "greedy" and not nodes.take(job.name, job.gpus, nodes.fair):
                nodes.take_from_neighbours(job.name, job.gpus)
        return nodes.placements()

    def _rank_s(self, job: DemandingJob, now_s: float) -> float:
        match self.parameters.order:
            case "las":
                return job.service_gpu_s
            case "srtf":
                fair = self.parameters.mode == "fair"
                return job.remaining_s / (1.0 if fair else job.demand_speed_ratio)
            case "ftf":
                return (now_s - job.submit_s + job.remaining_s) / job.ideal_s
        return job.submit_s
