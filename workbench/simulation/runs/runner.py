"""Execution of one job: the simulation, and the files that it writes while it runs."""

from collections.abc import Callable
from contextlib import ExitStack, closing
from time import perf_counter
from typing import TypeVar

from scheduler.model.catalogue import Catalogue, UnknownDocumentError
from scheduler.model.document_reader import DocumentError
from scheduler.model.message_text import os_error_text
from workbench.simulation.engine import simulate
from workbench.simulation.errors import RunError, UnknownPolicyError
from workbench.simulation.loop import Observers, OnRequest, OnSpan
from workbench.simulation.output.chrome_trace import ChromeTrace
from workbench.simulation.output.requests_csv import RequestsCsv
from workbench.simulation.runs.job import Outcome, Progress, SimulationJob
from workbench.simulation.scenario import ScenarioError

REQUESTS_FILE = "requests.csv"
TRACE_FILE = "trace.json"

RecordT = TypeVar("RecordT")


def run(job: SimulationJob, catalogue: Catalogue, *, progress: Progress) -> Outcome:
    """Run a job; an error that a user can cause is part of the outcome.

    Args:
        job: policy, scenario and workload.
        catalogue: workflows, all of which arrive, and profiles.
        progress: function that receives now and then the number of requests that have ended.
    """
    began = perf_counter()
    result, failure = None, ""
    try:
        workflows = tuple(sorted(catalogue.workflows))
        with ExitStack() as files:
            result = simulate(
                job.scenario,
                catalogue,
                job.workload.arrivals(workflows, seed=job.arrivals_seed),
                job.policy,
                seed=job.seed,
                requests=job.requests,
                rates_rps=job.workload.mean_rate_rps(workflows),
                observers=_observers(job, workflows, files, progress),
            )
    except RunError as error:
        result, failure = error.result, str(error)
    except OSError as error:
        failure = os_error_text(error)
    except (UnknownPolicyError, DocumentError, UnknownDocumentError, ScenarioError) as error:
        failure = str(error)
    return Outcome(
        job=job,
        result=result,
        failure=failure,
        wall_s=perf_counter() - began,
    )


def _observers(
    job: SimulationJob, workflows: tuple[tuple[str, str], ...], files: ExitStack, progress: Progress
) -> Observers:
    """Open the files of a run, until ``files`` is closed, and write them by callbacks."""
    on_request: OnRequest | None = None
    on_span: OnSpan | None = None
    if job.folder is not None:
        job.folder.mkdir(parents=True, exist_ok=True)
        names = ["/".join(key) for key in workflows]
        table = files.enter_context(closing(RequestsCsv(job.folder / REQUESTS_FILE, names)))
        on_request, on_span = table.write, table.add_run
        if job.trace_requests:
            path = job.folder / TRACE_FILE
            trace = files.enter_context(closing(ChromeTrace(path, names, job.trace_requests)))
            on_request = _both(table.write, trace.end_request)
            on_span = _both(table.add_run, trace.add_run)
    return Observers(on_request, on_span, lambda ended, _: progress(ended))


def _both(
    first: Callable[[RecordT], None], second: Callable[[RecordT], None]
) -> Callable[[RecordT], None]:
    def write(record: RecordT) -> None:
        first(record)
        second(record)

    return write
