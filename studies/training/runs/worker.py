"""Execution of runs, and the files that they write."""

from time import perf_counter

from scheduler.model.document_reader import DocumentError
from scheduler.model.message_text import os_error_text
from studies.training.engine import simulate_jobs
from studies.training.errors import JobsError
from studies.training.output.jobs_csv import write_jobs_csv
from studies.training.output.placement_trace import write_placement_trace
from studies.training.runs.setup import JobsOutcome, JobsSetup, load
from workbench.series.runs import RunProgress, SeriesWorker

JOBS_FILE = "jobs.csv"
TRACE_FILE = "trace.json"


class JobsWorker(SeriesWorker[JobsSetup, JobsOutcome]):
    """Runs training clusters; the progress counts jobs that have ended."""

    def run(self, job: JobsSetup, progress: RunProgress) -> JobsOutcome:
        """Run a setup, and write its files if it has a folder."""
        try:
            environment, policy = load(job)
            began_s = perf_counter()
            result = simulate_jobs(environment, policy, job.policy, progress=progress)
            wall_s = perf_counter() - began_s
            if job.folder is not None:
                job.folder.mkdir(parents=True, exist_ok=True)
                write_jobs_csv(job.folder / JOBS_FILE, result)
                write_placement_trace(job.folder / TRACE_FILE, result)
        except OSError as error:
            return JobsOutcome(setup=job, failure=os_error_text(error))
        except (JobsError, DocumentError) as error:
            return JobsOutcome(setup=job, failure=str(error))
        return JobsOutcome(setup=job, result=result, wall_s=wall_s)

    def lost(self, job: JobsSetup, reason: str) -> JobsOutcome:
        """Return a failure without a result."""
        return JobsOutcome(setup=job, failure=reason)
