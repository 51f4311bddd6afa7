"""Batches of the dispatcher on their way to model servers and back; each one is a task."""

import asyncio
from collections.abc import Callable

import structlog

from scheduler.dispatch.dispatcher import Dispatcher
from scheduler.dispatch.pods import Run
from scheduler.gateway.calls import CallError, CallMovedError
from scheduler.gateway.model_server import MODEL_FAILED, ModelServerError, NotOwnerError
from scheduler.gateway.serving.call_log import CallLog
from scheduler.gateway.serving.call_trace import TracedRun
from scheduler.gateway.serving.connected_pods import ConnectedPod, ConnectedPods
from scheduler.gateway.serving.recorder import BatchEnded, CallRecorder
from scheduler.gateway.serving.served_call import ServedCall
from scheduler.model.message_text import listed, quoted
from scheduler.oip.batch import RowRange, split
from scheduler.oip.errors import MessageError

log = structlog.get_logger(__name__)
RUN_TIMEOUT_MS = 60_000.0  # a batch that takes longer has failed


class BatchRunner:
    """Runs batches and reports their ends to the dispatcher.

    Attributes:
        on_unreachable: callback with a pod that refuses connections, before its batch has failed.

    Args:
        dispatcher: dispatcher whose payloads are a `ServedCall` for each request; the parts of its
            jobs are of `RowRange`.
        pods: clients of the pods' model servers.
        recorder: receiver of reports for metrics.
        call_log: receiver of the ends of batches.
        on_report: callback after each report to the dispatcher.
    """

    def __init__(
        self,
        dispatcher: Dispatcher,
        pods: ConnectedPods,
        recorder: CallRecorder,
        call_log: CallLog,
        *,
        on_report: Callable[[], None],
    ) -> None:
        self._dispatcher = dispatcher
        self._pods = pods
        self._recorder = recorder
        self._call_log = call_log
        self._on_report = on_report
        self.on_unreachable: Callable[[ConnectedPod], None] = lambda _: None
        self._loop = asyncio.get_running_loop()

    def begin(self, run: Run) -> None:
        """Send a batch to its pod."""
        connected = self._pods.get(run.pod.name)
        if connected is None:  # it is being removed, and the dispatcher will hear of it
            return
        task = self._loop.create_task(self._run(connected, run))
        connected.tasks[run] = task
        task.add_done_callback(lambda _: connected.batch_ended(run))

    def _now_ms(self) -> float:
        return 1000 * self._loop.time()

    async def _run(self, connected: ConnectedPod, run: Run) -> None:
        ranges: list[RowRange] = [job.part for job in run.jobs]
        traced_run = TracedRun(run)
        for job in run.jobs:
            traced_call: ServedCall = job.request.payload
            traced_call.attempts.append((traced_run, job.since_ms, job.late))
        began_ms = self._now_ms()
        try:
            outputs = await connected.server.infer(
                connected.model,
                ranges,
                timeout_ms=RUN_TIMEOUT_MS,
                headers=run.jobs[0].request.payload.call.headers,
            )
            connected.note_answer(ranges[0].request)  # the others have the same form
            for job, part, rows in zip(run.jobs, ranges, split(ranges, outputs), strict=True):
                served_call: ServedCall = job.request.payload
                served_call.batch = max(served_call.batch, run.rows)
                served_call.add_outputs(job.stage, part, rows)
        except (ModelServerError, MessageError) as error:
            log.warning("batch failed", pod=run.pod.name, rows=run.rows, error=str(error))
            if isinstance(error, ModelServerError) and error.is_unreachable:
                self.on_unreachable(connected)
            self._run_failed(connected, run, traced_run, error)
        except Exception as error:  # its calls must not wait forever
            log.exception("batch ended with an error of the gateway", pod=run.pod.name)
            self._run_failed(connected, run, traced_run, error)
        else:
            now_ms = traced_run.ended_ms = self._now_ms()
            self._dispatcher.run_ended(run, now_ms)
            self._report(run, began_ms, now_ms)
        self._on_report()

    def _run_failed(
        self, connected: ConnectedPod, run: Run, traced_run: TracedRun, error: Exception
    ) -> None:
        now_ms = traced_run.ended_ms = self._now_ms()
        is_server_error = isinstance(error, ModelServerError)
        traced_run.error = connected.without_address(error) if is_server_error else str(error)
        is_joined = len(run.jobs) > 1
        lacks = _missing_inputs(connected, run, error)
        is_refusal = isinstance(error, ModelServerError) and (error.is_refusal or bool(lacks))
        for job in run.jobs:
            served_call: ServedCall = job.request.payload
            if isinstance(error, NotOwnerError):
                served_call.error = CallMovedError()
            elif isinstance(error, ModelServerError):
                stage = quoted(served_call.served.names[run.stage])
                text = f"stage {stage}: {connected.without_address(error)}"
                if lacks:
                    text += f"; the request has no input {listed([quoted(name) for name in lacks])}"
                served_call.error = CallError(400 if is_refusal else error.status, text)
            elif isinstance(error, MessageError):
                served_call.error = error
            else:
                text = "an error of the gateway; its log has the cause"
                served_call.error = CallError(500, text)
            if is_refusal and not is_joined:
                # The client's mistake is no miss of the workflow.
                served_call.fail(served_call.error)
                self._dispatcher.cancel(job.request, now_ms)
        # One bad input fails its whole batch, and the others must not share its error.
        retryable = is_joined or (isinstance(error, ModelServerError) and error.retryable)
        retryable = retryable and not isinstance(error, NotOwnerError)
        self._dispatcher.run_failed(run, now_ms, retryable=retryable, alone=is_refusal)

    def _report(self, run: Run, began_ms: float, now_ms: float) -> None:
        served_call: ServedCall = run.jobs[0].request.payload  # the workflow may have changed since
        ended = BatchEnded(
            workflow=run.workflow,
            stage=served_call.served.names[run.stage],
            rows=run.rows,
            single_stage_rows=sum(job.rows for job in run.jobs if job.request.only is not None),
            share=run.pod.share,
            queue_s=tuple((run.begin_ms - job.since_ms) / 1000 for job in run.jobs),
            execute_s=(now_ms - began_ms) / 1000,
            profiled_s=run.profiled_ms / 1000,
        )
        self._recorder.batch_ended(ended)
        self._call_log.batch_ended(ended, now_ms)


def _missing_inputs(connected: ConnectedPod, run: Run, error: Exception) -> list[str]:
    """Return the inputs whose lack may have failed a batch of clients' requests.

    Some model servers answer a request without an input by 500.
    """
    if not isinstance(error, ModelServerError) or error.status != MODEL_FAILED:
        return []
    served_call: ServedCall = run.jobs[0].request.payload
    first, _ = served_call.served.flow.ends(served_call.only)
    part: RowRange = run.jobs[0].part
    return connected.missing_inputs(part.request) if run.stage in first else []
