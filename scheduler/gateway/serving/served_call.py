"""One call on its way through the stages: its tensors, its answer, and what it took."""

from asyncio import Future
from collections.abc import Iterable, Mapping, Sequence

from scheduler.dispatch.pods import FunctionKey
from scheduler.dispatch.requests import Job, Request
from scheduler.dispatch.workflow_queues import FunctionState
from scheduler.gateway.calls import RETRY_AFTER_S, CallError, CallMovedError, InferAnswer, InferCall
from scheduler.gateway.serving.call_log import CallLog
from scheduler.gateway.serving.call_trace import (
    Attempt,
    CallTrace,
    TraceRing,
    Wait,
    missing_resource,
)
from scheduler.gateway.serving.recorder import CallRecorder, CallResult
from scheduler.gateway.serving.served_workflow import ServedWorkflow
from scheduler.oip.batch import RowRange, reunite, row_ranges
from scheduler.oip.errors import MessageError
from scheduler.oip.infer_request import InferRequest
from scheduler.oip.tensor import Tensor

_INVALID = (400, 413)  # statuses of a request that no model server could answer


class ServedCall:
    """A call between its arrival and its answer.

    Attributes:
        call: call of the client.
        served: workflow of the call, as it was at the arrival.
        only: index of the only stage that is run; None: all stages are run.
        answer: future of the answer, for which the front waits.
        outputs: outputs of the stages that have ended, by stage.
        error: error of the call's last batch; None before.
        batch: rows of the largest batch that the call was part of.
        attempts: batches that the call was part of, for its trace.
        waits: stages whose queue it was in at its end, for its trace.
    """

    __slots__ = (
        "_answered_parts",
        "answer",
        "attempts",
        "batch",
        "call",
        "error",
        "only",
        "outputs",
        "served",
        "waits",
    )

    def __init__(
        self,
        call: InferCall,
        served: ServedWorkflow,
        only: int | None,
        answer: "Future[InferAnswer]",
    ) -> None:
        self.call = call
        self.served = served
        self.only = only
        self.answer = answer
        self.outputs: dict[int, Sequence[Tensor]] = {}
        self.error: Exception | None = None
        self.batch = 0
        self.attempts: list[Attempt] = []
        self.waits: list[Wait] = []
        self._answered_parts: dict[int, dict[int, Sequence[Tensor]]] = {}

    def enter(self, stage: int, rows_max: int, *, binary: bool) -> list[RowRange]:
        """Return the rows with which it enters a stage, in ranges of at most ``rows_max``.

        Raises:
            MessageError: the inputs are missing, or cannot be sent in the server's form.
        """
        request = self.served.flow.request_at(
            stage, self.call.request, self.outputs, only=self.only is not None
        )
        return row_ranges(request.in_form(binary=binary), rows_max)

    def add_outputs(self, stage: int, part: RowRange, outputs: Sequence[Tensor]) -> None:
        """Store a model server's answer for some rows.

        Raises:
            MessageError: the answers for two ranges of rows differ in more than their rows.
        """
        request: InferRequest = part.request
        if part.rows == request.rows:
            self.outputs[stage] = outputs
            return
        parts = self._answered_parts.setdefault(stage, {})
        parts[part.first] = outputs
        if sum(tensors[0].rows for tensors in parts.values()) == request.rows:
            self.outputs[stage] = reunite([parts[first] for first in sorted(parts)])

    def succeed(self, job: Job) -> None:
        """Answer the client; ``job`` was its last.

        Raises:
            MessageError: an output that the client requests is missing.
        """
        outputs = self.served.flow.answer(self.call.request, self.outputs, self.only)
        if not self.answer.done():
            self.answer.set_result(
                InferAnswer(outputs, job.queue_ms, job.execute_ms, self.batch, job.start_ms > 0)
            )

    def record(
        self,
        recorder: CallRecorder,
        traces: TraceRing,
        call_log: CallLog,
        request: Request,
        ended_ms: float,
    ) -> None:
        """Report the end of the call, unless another replica answers it."""
        result = self._report(recorder, ended_ms - request.arrival_ms)
        if result is None:
            return
        cold_start = result != "dropped" and self.answer.result().cold_start
        call_log.call_ended(request, result, ended_ms, cold_start=cold_start)
        if traces.takes(result, self.call.headers):
            trace = self._trace(request, result, ended_ms)
            traces.add(trace)
            if result == "miss" and self.only is None:
                recorder.late_call_traced(
                    self.served.key,
                    (ended_ms - request.arrival_ms) / 1000,
                    request_id=trace.id,
                    trace_id=trace.trace_id,
                )

    def _report(self, recorder: CallRecorder, latency_ms: float) -> CallResult | None:
        """Return the result of a call; None: it was invalid, or another replica answers it."""
        answer, workflow = self.answer, self.served.key
        error = None if answer.cancelled() else answer.exception()
        if isinstance(error, CallError | MessageError) and error.status in _INVALID:
            recorder.call_refused(workflow, error.status)
            return None
        if isinstance(error, CallMovedError):
            return None
        if answer.cancelled() or error is not None:
            result: CallResult = "dropped"
            if self.only is None:
                recorder.call_ended(workflow, result, None)
            return result
        result = "hit" if latency_ms <= self.served.slo_ms else "miss"
        if self.only is None:
            cold_start = answer.result().cold_start
            recorder.call_ended(workflow, result, latency_ms / 1000, cold_start=cold_start)
        return result

    def add_waits(
        self, jobs: Iterable[Job], functions: Mapping[FunctionKey, FunctionState]
    ) -> None:
        """Note the queues that it is in at its end, and what their stages lack."""
        for job in jobs:
            missing = missing_resource(functions[self.served.functions[job.stage]].pool)
            self.waits.append(Wait(job.stage, job.since_ms, missing))

    def _trace(self, request: Request, result: CallResult, ended_ms: float) -> CallTrace:
        """Return its stages, after its end."""
        if self.answer.cancelled():
            error = "the client closed the connection"
        else:
            error = str(self.answer.exception() or "")
        return CallTrace(
            request,
            self.served.names,
            self.call.request.id,
            self.call.headers,
            result=result,
            error=error,
            ended_ms=ended_ms,
            attempts=self.attempts,
            waits=self.waits,
        )

    def fail(self, error: Exception) -> None:
        """Refuse the client's call, unless it was answered or given up."""
        if not self.answer.done():
            self.answer.set_exception(error)

    def drop(self, job: Job, reason: str, age_ms: float) -> None:
        """Refuse the call after its dispatcher has given it up at a job."""
        key = "/".join(self.served.key)
        if reason == "failed" and self.error is not None:
            error = self.error
        elif reason == "late":
            error = CallError(
                504 if job.execute_ms else 503,
                f"{age_ms:.0f} ms after its arrival, the request to {key} cannot be in time any "
                "more; send fewer requests, or add pods",
                RETRY_AFTER_S,
            )
        else:
            error = CallError(503, f"workflow {key} has changed; send the request again", 0.0)
        self.fail(error)

    def time_out(self, timeout_ms: float) -> None:
        """Refuse the call when its own limit is over."""
        self.fail(
            CallError(
                504,
                f"no answer within the request's limit of {timeout_ms:.0f} ms; allow more time, or "
                "send fewer requests",
            )
        )
