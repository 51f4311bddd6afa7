"""The loop over events, and the ends of requests: the part that all kinds of policies share."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from heapq import heappop
from math import inf
from typing import Any

from workbench.simulation.containers.failures import CapacityChange, Failures
from workbench.simulation.containers.functions import Container
from workbench.simulation.events import CAPACITY_CHANGED, EventQueue
from workbench.simulation.policy import Policy
from workbench.simulation.recorder import TallyWindows
from workbench.simulation.result import RequestRecord, Result, Span
from workbench.simulation.setup import SimulationState
from workbench.simulation.stage_jobs import StageJob
from workbench.simulation.steady_state import judged
from workbench.simulation.windows import DollarsOverTime, RunWindows, RunWorkflow
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
        on_request: function that receives every request at its end.
        on_span: function that receives every run of a container, when it begins or, where its
            end depends on what begins later, when it ends.
        progress: function that receives, after every 10,000 requests, the number of requests that
            have ended and the virtual clock in ms.
    """

    on_request: OnRequest | None = None
    on_span: OnSpan | None = None
    progress: Progress | None = None


NO_OBSERVERS = Observers()


class SimulationLoop(ABC):
    """One run: the loop over events; subclasses handle them.

    Attributes:
        setup_s: wall time of the policy's construction.
    """

    def __init__(
        self, state: SimulationState, policy: Policy, seed: int, observers: Observers
    ) -> None:
        self._workflows = state.workflows
        self._cluster = state.cluster
        self._bounds_dollars = state.bounds_dollars
        self._warmup_ms = state.scenario.warmup_ms
        self._idle_watts = state.scenario.power.gpu_idle_watts * len(state.cluster.gpu_uuids)
        self._tallies = TallyWindows(len(state.workflows))
        self._policy = policy
        self._seed = seed
        self._observers = observers
        self._queue = EventQueue()
        self._failures = Failures(state.scenario, state.cluster, self._queue)
        self.setup_s = 0.0
        self._now_ms = 0.0
        self._next_arrival_ms = 0.0  # inf after the last
        self._last_arrival_ms = 0.0
        self._answered_ms = self._answered_dollars = 0.0
        self._events = 0
        self._open = 0  # requests that have arrived and not ended
        self._ended = 0

    def run(self, arrivals: Iterator[tuple[float, WorkflowState | None]]) -> None:
        """Run until no event can unblock a queued job."""
        heap = self._queue.heap
        handlers = {**self._handlers(), CAPACITY_CHANGED: self._change_capacity}
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

    def _change_capacity(self, change: CapacityChange, now_ms: float) -> None:
        self._failures.apply(change, lambda container: self._lose(container, now_ms))
        self._capacity_changed(now_ms)

    @abstractmethod
    def _lose(self, container: Container, now_ms: float) -> None:
        """End a container whose GPU has failed; its jobs wait again."""

    @abstractmethod
    def _capacity_changed(self, now_ms: float) -> None:
        """Schedule what waits, after GPUs have failed or come back."""

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

    # -- result --------------------------------------------------------------------------------

    def _measured(self) -> dict[str, Any]:
        """Return the fields of the result that follow from the tallies and the held cost."""
        windows = self._run_windows()
        over_time = windows.over_time()
        steady_state = judged(over_time, self._warmup_ms)
        utilisation = self._cluster.utilisation
        return {
            **windows.since(steady_state.warmup_ms),
            "policy": self._policy.name,
            "seed": self._seed,
            "arrived": sum(over_time.requests),
            "simulated_ms": self._now_ms,
            "steady_state": steady_state,
            "over_time": over_time,
            "windows": windows,
            "gpu_utilisation": utilisation.until(self._now_ms),
            "gpu_utilisation_bucket_ms": utilisation.bucket_ms,
            "events": self._events,
            "setup_s": self.setup_s,
        }

    def _run_windows(self) -> RunWindows:
        tallies, width_ms = self._tallies.all(), self._tallies.width_ms
        cluster = self._cluster
        end_ms = max(self._answered_ms, self._last_arrival_ms)
        edges_ms = [i * width_ms for i in range(len(tallies) + 1)]
        held = cluster.held_cost.until(edges_ms, end_ms)
        if self._last_arrival_ms <= self._answered_ms:
            held = held._replace(end=self._answered_dollars)
        return RunWindows(
            width_ms=width_ms,
            workflows=tuple(
                RunWorkflow(*workflow.key, workflow.slo_ms, self._bounds_dollars[workflow.key])
                for workflow in self._workflows
            ),
            tallies=tallies,
            held=held,
            starting=cluster.start_cost.until(edges_ms, end_ms),
            rented=self._rented(edges_ms, end_ms),
            end_ms=end_ms,
            idle_watts=self._idle_watts,
        )

    def _rented(self, edges_ms: list[float], end_ms: float) -> DollarsOverTime | None:
        """Return the cost of whole nodes; None where all that is paid are nodes."""
        return self._cluster.node_cost.until(edges_ms, end_ms)

    # -- ends of requests ----------------------------------------------------------------------

    def _end_request(self, job: Job, now_ms: float) -> None:
        request = job.request
        workflow = request.workflow
        ratio = (now_ms - request.arrival_ms) / workflow.slo_ms
        hit = self._tallies.at(workflow.index, request.arrival_ms).end(job, ratio)
        self._answered_ms = now_ms
        self._answered_dollars = self._cluster.held_cost.total_dollars(now_ms)
        self._close(job, now_ms, "hit" if hit else "miss")

    def _drop(self, job: Job, now_ms: float) -> None:
        request = job.request
        if not request.ended:
            job.queue_ms += now_ms - job.since_ms
            self._tallies.at(request.workflow.index, request.arrival_ms).dropped += 1
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
