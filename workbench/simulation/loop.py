"""The loop over events, and the ends of requests: the part that all kinds of policies share."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from heapq import heappop
from math import inf
from typing import Any

from scheduler.dispatch.stage_graph import StageJob
from workbench.simulation.events import EventQueue
from workbench.simulation.policy import Policy
from workbench.simulation.result import RequestRecord, Result, Span
from workbench.simulation.setup import SimulationState
from workbench.simulation.workflow_state import SimulatedRequest, WorkflowState

STALLED_MS = 600_000.0  # after the last arrival and the last run, the rest is dropped
PROGRESS_EVERY = 10_000  # requests

OnRequest = Callable[[RequestRecord], None]
OnSpan = Callable[[Span], None]
Progress = Callable[[int, float], None]
Job = StageJob[SimulatedRequest]


@dataclass(frozen=True, slots=True)
class Observers:
    """Callbacks of a run.

    Attributes:
        on_request: receives every request at its end.
        on_span: receives every run of a container when it begins.
        progress: is called after every 10,000 requests with the requests that have ended and the
            virtual clock, ms.
    """

    on_request: OnRequest | None = None
    on_span: OnSpan | None = None
    progress: Progress | None = None


NO_OBSERVERS = Observers()


class SimulationLoop(ABC):
    """One run: the loop over events; subclasses handle them.

    Attributes:
        setup_s: wall time of the construction of the policy.
    """

    def __init__(
        self, state: SimulationState, policy: Policy, seed: int, observers: Observers
    ) -> None:
        self._workflows = state.workflows
        self._cluster = state.cluster
        self._policy = policy
        self._seed = seed
        self._observers = observers
        self._queue = EventQueue()
        self.setup_s = 0.0
        self._now_ms = 0.0
        self._next_arrival_ms = 0.0  # inf after the last
        self._last_arrival_ms = 0.0
        self._events = 0
        self._open = 0  # requests that have arrived and not ended
        self._ended = 0

    def run(self, arrivals: Iterator[tuple[float, WorkflowState | None]]) -> None:
        """Run until no event can unblock a queued job."""
        heap = self._queue.heap
        handlers = self._handlers()
        self._next_arrival_ms, workflow = next(arrivals)
        while self._open or workflow is not None:
            if heap and heap[0][0] <= self._next_arrival_ms:
                self._now_ms, kind, _, subject = heappop(heap)
                handlers[kind](subject, self._now_ms)
            elif workflow is not None:
                self._now_ms = self._next_arrival_ms
                self._arrive(workflow, self._now_ms)
                self._next_arrival_ms, workflow = next(arrivals)
            else:
                break
            self._events += 1
        self._drop_queued()

    @abstractmethod
    def result(self) -> Result:
        """Return the result of all events so far."""

    @abstractmethod
    def _handlers(self) -> dict[int, Callable[[Any, float], None]]:
        """Return the handlers by kind of event."""

    @abstractmethod
    def _arrive(self, workflow: WorkflowState, now_ms: float) -> None: ...

    @abstractmethod
    def _drop_queued(self) -> None:
        """Drop what no event can help any more."""

    @property
    @abstractmethod
    def _begun_ms(self) -> float:
        """Begin of the last run."""

    def _new_request(self, workflow: WorkflowState, now_ms: float) -> SimulatedRequest:
        request = SimulatedRequest(self._ended + self._open, workflow, now_ms)
        self._open += 1
        self._last_arrival_ms = now_ms
        return request

    def _is_stalled(self, now_ms: float) -> bool:
        last_ms = max(self._begun_ms, self._last_arrival_ms)
        return self._next_arrival_ms == inf and now_ms - last_ms > STALLED_MS

    # -- ends of requests ----------------------------------------------------------------------

    def _end_request(self, job: Job, now_ms: float) -> None:
        request = job.request
        hit = request.workflow.tally.end(job, now_ms - request.arrival_ms)
        self._close(job, now_ms, "hit" if hit else "miss")

    def _drop(self, job: Job, now_ms: float) -> None:
        if not job.request.ended:
            job.queue_ms += now_ms - job.since_ms
            job.request.workflow.tally.dropped += 1
            self._close(job, now_ms, "dropped")

    def _close(self, job: Job, now_ms: float, outcome: str) -> None:
        request = job.request
        request.ended = True
        self._open -= 1
        self._ended += 1
        if self._observers.on_request is not None:
            self._observers.on_request(
                RequestRecord(
                    request.number,
                    request.workflow.index,
                    request.arrival_ms,
                    now_ms,
                    request.workflow.slo_ms,
                    outcome,
                    job.queue_ms,
                    job.start_ms,
                    job.transfer_ms,
                    job.execute_ms,
                    request.cost_dollars,
                )
            )
        if self._observers.progress is not None and self._ended % PROGRESS_EVERY == 0:
            self._observers.progress(self._ended, now_ms)
