"""CSV of the jobs of a run, in the order of the workload."""

import csv
from math import inf
from pathlib import Path

from studies.training.result import JobsResult

COLUMNS = (
    "job", "model", "submit_s", "start_s", "end_s", "jct_s", "gpus", "gpu_s", "restarts",
    "deadline_s",
)  # fmt: skip


def write_jobs_csv(path: Path, result: JobsResult) -> None:
    """Write a row for each job; times are of the virtual clock; no deadline: empty."""
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(COLUMNS)
        for job in result.jobs:
            times_s = (job.submit_s, job.start_s, job.end_s, job.jct_s)
            writer.writerow(
                [
                    job.name,
                    job.model,
                    *(f"{time_s:.12g}" for time_s in times_s),
                    job.gpus,
                    f"{job.service_gpu_s:.12g}",
                    job.restarts,
                    "" if job.deadline_s == inf else f"{job.deadline_s:.12g}",
                ]
            )
