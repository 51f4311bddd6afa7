"""Results of policies of training clusters, as lines and bars of figures."""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class TrainedBar:
    """Neighbouring GPUs that a job uses for a time; hours since the first submission."""

    first_gpu: int
    end_gpu: int  # the number after the last
    begin_h: float
    end_h: float
    job: int  # number, which chooses the colour
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainedRun:
    """One policy on one workload.

    Attributes:
        name: name of the run, unique on the page.
        jobs: number of jobs.
        mean_jct_h, p50_jct_h, p99_jct_h: job completion times.
        makespan_h: time from the first submission to the last completion, in hours.
        gpu_use_ratio: ratio of GPUs in use, mean over the makespan.
        restarts: number of restarts of all jobs.
        jcts_h: job completion times, ascending.
        gpu_use: (hours, ratio of GPUs in use), at the middle of equal spans.
        bars: bars of the placements.
        gpus: number of GPUs of the cluster.
        node_firsts: number of the first GPU of each node.
    """

    name: str
    jobs: int
    mean_jct_h: float
    p50_jct_h: float
    p99_jct_h: float
    makespan_h: float
    gpu_use_ratio: float
    restarts: int
    jcts_h: Sequence[float]
    gpu_use: Sequence[tuple[float, float]]
    bars: Sequence[TrainedBar]
    gpus: int
    node_firsts: Sequence[int]
