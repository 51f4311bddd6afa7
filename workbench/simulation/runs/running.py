"""A job done: the simulation, and the files that it fills while it goes on."""

import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from math import inf
from time import perf_counter

from scheduler.model.catalogue import Catalogue, UnknownDocumentError
from scheduler.model.reading import DocumentError
from workbench.simulation.arrival_stream import arriving
from workbench.simulation.engine import Observers, OnRequest, OnSpan, Simulation
from workbench.simulation.errors import PolicyError, UnknownPolicyError, WorkloadError
from workbench.simulation.output.chrome_trace import ChromeTrace
from workbench.simulation.output.requests_csv import RequestsCsv
from workbench.simulation.policy import Policy
from workbench.simulation.result import RequestRecord
from workbench.simulation.runs.job import Job, Outcome
from workbench.simulation.scenario import ScenarioError
from workbench.simulation.setup import SimulationState, assemble, policy_for
from workbench.simulation.workflow_state import WorkflowState
from workbench.simulation.workload import Arrivals

REQUESTS_FILE = "requests.csv"
TRACE_FILE = "trace.json"
STOPPED = "stopped before all requests had arrived"
_LOOK_EVERY = 256  # arrivals between two looks at whether to stop

Stop = Callable[[], bool]
Progress = Callable[[int], None]


def run(job: Job, catalogue: Catalogue, *, stop: Stop, progress: Progress) -> Outcome:
    """Do a job; what a user can cause is told in the outcome.

    Args:
        job: what is ordered.
        catalogue: workflows, all of which arrive, and profiles.
        stop: says when no more requests are to arrive; those that have arrived still end.
        progress: is told now and then how many requests have ended.
    """
    began = perf_counter()
    result, failure, stopped, setup_s = None, "", False, 0.0
    simulation: Simulation | None = None
    try:
        workflows = tuple(sorted(catalogue.workflows))
        arrivals = job.workload.arrivals(workflows, seed=job.arrivals_seed)
        assembled = assemble(job.scenario, catalogue, arrivals.workflows, job.seed)
        assembled_s = perf_counter()
        policy = _policy(job, assembled, arrivals)
        setup_s = perf_counter() - assembled_s
        with ExitStack() as files:
            observers = _observers(job, workflows, files, progress)
            simulation = Simulation(assembled, policy, job.seed, observers)
            coming = arriving(arrivals, assembled.flows, job.requests or sys.maxsize)
            simulation.run(_until(stop, coming))
    except (
        PolicyError,
        UnknownPolicyError,
        DocumentError,
        UnknownDocumentError,
        WorkloadError,
        ScenarioError,
        OSError,
    ) as error:
        failure = str(error)
    if simulation is not None:
        result = simulation.result()
        if not failure and stop() and result.requests != job.requests:
            failure, stopped = STOPPED, True
    return Outcome(
        job=job,
        result=result,
        failure=failure,
        stopped=stopped,
        wall_s=perf_counter() - began,
        setup_s=setup_s,
    )


def _policy(job: Job, assembled: SimulationState, arrivals: Arrivals) -> Policy:
    try:
        rates_rps = job.workload.mean_rate_rps(arrivals.workflows)
        return policy_for(assembled, job.policy, rates_rps)
    except UnknownPolicyError:
        raise
    except Exception as error:
        raise PolicyError(
            f"policy {job.policy}, made for its run: {type(error).__name__}: {error}"
        ) from error


def _observers(
    job: Job, workflows: tuple[tuple[str, str], ...], files: ExitStack, progress: Progress
) -> Observers:
    """Whoever writes this run's files, open until ``files`` is."""
    on_request: OnRequest | None = None
    on_span: OnSpan | None = None
    if job.folder is not None:
        job.folder.mkdir(parents=True, exist_ok=True)
        names = ["/".join(key) for key in workflows]
        table = files.enter_context(RequestsCsv(job.folder / REQUESTS_FILE, names))
        on_request = table.write
        if job.trace_requests:
            path = job.folder / TRACE_FILE
            trace = files.enter_context(ChromeTrace(path, names, job.trace_requests))
            on_request, on_span = _both(table.write, trace.request_ended), trace.run_began
    return Observers(on_request, on_span, lambda ended, _: progress(ended))


def _both(first: OnRequest, second: OnRequest) -> OnRequest:
    def told(record: RequestRecord) -> None:
        first(record)
        second(record)

    return told


def _until(
    stop: Stop, coming: Iterator[tuple[float, WorkflowState | None]]
) -> Iterator[tuple[float, WorkflowState | None]]:
    """The arrivals until they are stopped; then, as at their end, (inf, None) for ever."""
    for count, arrival in enumerate(coming):
        if count % _LOOK_EVERY == 0 and stop():
            break
        yield arrival
    while True:
        yield inf, None
