"""Stages of calls: of all late ones and a sample of the others, in a ring of bounded memory.

A batch is recorded once, and each of its calls refers to it. `scheduler.gateway.call_report` says
what a trace means.
"""

import math
import re
import secrets
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Final, Literal, NamedTuple

from scheduler.dispatch.pods import Run
from scheduler.dispatch.requests import Request, WorkflowKey
from scheduler.dispatch.share_classes import Pool
from scheduler.gateway.calls import Headers
from scheduler.gateway.serving.recorder import CallResult

BYTES_MAX: Final = 4 * 2**20
SAMPLE_EVERY: Final = 100  # calls in time, of which one is kept
ERROR_CHARACTERS_MAX: Final = 500
ID_CHARACTERS_MAX: Final = 200  # a client's id may be as long as its body
_TRACE_BYTES: Final = 1024  # of an object with its numbers and texts, without what is counted below
_ATTEMPT_BYTES: Final = 768  # with the batch, as if no other call shared it
_WAIT_BYTES: Final = 160
_TRACEPARENT: Final = b"traceparent"
_SAMPLED: Final = b"-01"
_TRACE_ID: Final = re.compile(r"(?!0{32})[0-9a-f]{32}")

Missing = Literal["no_pod", "cold_start", "share", "queue"]


class TracedRun:
    """One batch, without its data.

    Attributes:
        stage: index of the stage.
        pod, node: place of the batch.
        share: resources of the pod.
        pooled: true if it took tokens of a slice.
        rows: number of rows; ``batch`` is that of the profiled configuration of its plan.
        begin_ms, execute_ms, predicted_end_ms: times of `Run`.
        pod_idle_ms, is_first: history of the pod, as in `Run`.
        profiled_ms: run time of the profile.
        ended_ms: end of the batch; inf while it runs.
        error: why it failed; empty if it did not.
    """

    __slots__ = (
        "batch",
        "begin_ms",
        "ended_ms",
        "error",
        "execute_ms",
        "is_first",
        "node",
        "pod",
        "pod_idle_ms",
        "pooled",
        "predicted_end_ms",
        "profiled_ms",
        "rows",
        "share",
        "stage",
    )

    def __init__(self, run: Run) -> None:
        pod = run.pod
        self.stage = run.stage
        self.pod = pod.name
        self.node = pod.node
        self.share = pod.share
        self.pooled = pod.pooled
        self.rows = run.rows
        self.batch = run.batch
        self.begin_ms = run.begin_ms
        self.execute_ms = run.execute_ms
        self.predicted_end_ms = run.end_ms
        self.pod_idle_ms = run.pod_idle_ms
        self.is_first = run.is_first
        self.profiled_ms = run.profiled_ms
        self.ended_ms = math.inf
        self.error = ""


Attempt = tuple[TracedRun, float, bool]
"""A batch of a call, when the call joined the queue, and true if it was served as late."""


class Wait(NamedTuple):
    """A queue that a call was in at its end.

    Attributes:
        stage: index of the stage.
        since_ms: time at which the call joined the queue.
        missing: resource that the stage lacked.
    """

    stage: int
    since_ms: float
    missing: Missing


def missing_resource(pool: Pool) -> Missing:
    """Return what a row that waits for the pods of a function lacks."""
    is_served = False
    for share_class in pool.classes.values():
        for pod in share_class.idle:
            if pod.pooled and not pod.is_open:
                return "share"
            is_served = True
        for pod in share_class.busy:
            is_served = is_served or bool(pod.runs)
    if is_served:
        return "queue"
    return "cold_start" if pool.pods else "no_pod"


class CallTrace:
    """Stages of one call.

    Attributes:
        id: identifier among all traces; the ring sets it.
        client_id: identifier that the client gave the call, or None.
        traceparent: header of the client's trace; empty without one.
        trace_id: identifier of that trace; without one, of its own, which the ring sets where a
            receiver gets its spans; else empty.
        workflow: key of the workflow; ``stages`` are the names of its stages.
        successors: stages that follow on each stage.
        only: index of the only stage that was run; None: all of them.
        arrival_ms, deadline_ms, ended_ms: arrival at the gateway or a proxy, deadline, end.
        result: outcome: in time, late, or without an answer; ``error`` is then the reason.
        attempts: batches that it was part of, in the order in which they began.
        waits: queues that it was in at its end.
    """

    __slots__ = (
        "arrival_ms",
        "attempts",
        "client_id",
        "deadline_ms",
        "ended_ms",
        "error",
        "id",
        "only",
        "result",
        "stages",
        "successors",
        "trace_id",
        "traceparent",
        "waits",
        "workflow",
    )

    def __init__(  # noqa: PLR0913 - each by its name
        self,
        request: Request,
        stages: Sequence[str],
        client_id: str | None,
        headers: Headers,
        *,
        result: CallResult,
        error: str,
        ended_ms: float,
        attempts: Sequence[Attempt],
        waits: Sequence[Wait],
    ) -> None:
        self.id = ""
        self.client_id = None if client_id is None else client_id[:ID_CHARACTERS_MAX]
        self.traceparent = ""
        for name, value in headers:
            if name == _TRACEPARENT:
                self.traceparent = value.decode("latin-1")[:ID_CHARACTERS_MAX]
        client_trace_id = "".join(self.traceparent.split("-")[1:2])
        self.trace_id = client_trace_id if _TRACE_ID.fullmatch(client_trace_id) else ""
        self.workflow: WorkflowKey = request.workflow
        self.stages = stages
        self.successors = request.graph.successors
        self.only = request.only
        self.arrival_ms = request.arrival_ms
        self.deadline_ms = request.deadline_ms
        self.ended_ms = ended_ms
        self.result: CallResult = result
        self.error = error[:ERROR_CHARACTERS_MAX]
        self.attempts = tuple(attempts)
        self.waits = tuple(waits)

    @property
    def size_bytes(self) -> int:
        """Memory that it may take."""
        texts = len(self.error) + len(self.client_id or "") + len(self.traceparent)
        return (
            _TRACE_BYTES
            + 4 * texts
            + _ATTEMPT_BYTES * len(self.attempts)
            + _WAIT_BYTES * len(self.waits)
        )


class TraceRing:
    """The last traces, within a bound of memory.

    Args:
        bytes_max: memory of all traces.
        sample_every: number of calls in time of which one is kept; 0: none.

    Attributes:
        size_bytes: memory that the traces may take.
        on_added: callback with each trace.
    """

    def __init__(self, bytes_max: int = BYTES_MAX, sample_every: int = SAMPLE_EVERY) -> None:
        self._bytes_max = bytes_max
        self._sample_every = sample_every
        self._in_time = 0
        self._added = 0
        self._process = secrets.token_hex(4)  # identifiers differ among replicas and restarts
        self._traces: deque[CallTrace] = deque()
        self.size_bytes = 0
        self.on_added: Callable[[CallTrace], None] | None = None

    def takes(self, result: CallResult, headers: Headers) -> bool:
        """Return true if a call is to be kept.

        With a receiver of spans, a call that its client traces is.
        """
        if result != "hit":
            return True
        if self.on_added is not None:
            for name, value in headers:
                if name == _TRACEPARENT and value.endswith(_SAMPLED):
                    return True
        if not self._sample_every:
            return False
        self._in_time += 1
        if self._in_time < self._sample_every:
            return False
        self._in_time = 0
        return True

    def add(self, trace: CallTrace) -> None:
        """Add a trace; the oldest ones leave."""
        self._added += 1
        trace.id = f"{self._process}-{self._added}"
        self._traces.append(trace)
        self.size_bytes += trace.size_bytes
        while self.size_bytes > self._bytes_max and len(self._traces) > 1:
            self.size_bytes -= self._traces.popleft().size_bytes
        if self.on_added is not None:
            trace.trace_id = trace.trace_id or secrets.token_hex(16)
            self.on_added(trace)

    def find(self, identifier: str) -> CallTrace | None:
        """Return the last trace with an identifier: its own, the client's, or of its trace."""
        for trace in reversed(self._traces):
            if identifier in {trace.id, trace.client_id, trace.trace_id}:
                return trace
        return None

    def newest_first(self) -> Iterator[CallTrace]:
        """Iterate over all traces; they must not change meanwhile."""
        return reversed(self._traces)
