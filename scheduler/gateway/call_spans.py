"""OpenTelemetry spans of traced calls, sent to an OTLP receiver by a thread of its own.

A call's span is a child of the client's (`traceparent`). Below it each stage has one for each
batch that the call was part of, with the parts of its wait and its run. Names of attributes are
those of the semantic conventions, or begin with ``esg.``.
"""

import asyncio
import queue
import threading
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Final

import structlog
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter
from opentelemetry.sdk.trace.id_generator import RandomIdGenerator
from opentelemetry.sdk.trace.sampling import ALWAYS_ON
from opentelemetry.trace import Span, SpanKind, Status, StatusCode, set_span_in_context
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from scheduler import __version__
from scheduler.gateway import call_report
from scheduler.gateway.serving.call_trace import Attempt, CallTrace, TraceRing

log = structlog.get_logger(__name__)
QUEUE_MAX: Final = 1_000  # calls whose spans are not yet created; others are left out
_NS_PER_MS: Final = 1_000_000
_Attributes = Mapping[str, str | int | float | bool]


class _TraceIds(RandomIdGenerator):
    """Identifiers of spans; a trace without a parent gets the one that is set."""

    next_trace_id: int

    def generate_trace_id(self) -> int:
        return self.next_trace_id


class CallSpans:
    """Sends the spans of calls.

    Args:
        exporter: receiver of the spans.
        unix_offset_ms: returns Unix time at zero of the clock of the traces, ms; it changes when
            the machine's clock is set.
    """

    def __init__(self, exporter: SpanExporter, *, unix_offset_ms: Callable[[], float]) -> None:
        resource = Resource.create({"service.name": "esg-gateway", "service.version": __version__})
        self._ids = _TraceIds()
        self._provider = TracerProvider(
            resource=resource, sampler=ALWAYS_ON, id_generator=self._ids
        )
        self._provider.add_span_processor(BatchSpanProcessor(exporter))
        self._tracer = self._provider.get_tracer("esg-scheduler", __version__)
        self._read_offset_ms = unix_offset_ms
        self._offset_ms = 0.0  # for one call, so that its spans fit together
        self._traces: queue.Queue[CallTrace | None] = queue.Queue(QUEUE_MAX)
        self._thread = threading.Thread(target=self._run, name="call-spans", daemon=True)
        self._thread.start()

    def add(self, trace: CallTrace) -> None:
        """Send the spans of a call later, unless too many wait."""
        try:
            self._traces.put_nowait(trace)
        except queue.Full:
            log.debug("spans of a call are left out")

    def close(self) -> None:
        """Send what is left, and end."""
        self._traces.put(None)
        self._thread.join()
        self._provider.shutdown()

    def _run(self) -> None:
        while (trace := self._traces.get()) is not None:
            try:
                self._send(trace)
            except Exception:
                log.exception("spans of a call cannot be created")

    def _send(self, trace: CallTrace) -> None:
        self._offset_ms = self._read_offset_ms()
        parent = TraceContextTextMapPropagator().extract({"traceparent": trace.traceparent})
        cause = call_report.cause(trace, call_report.parts_ms(trace))
        self._ids.next_trace_id = int(trace.trace_id, 16)
        call = self._tracer.start_span(
            f"infer {trace.workflow[1]}",
            context=parent,
            kind=SpanKind.SERVER,
            start_time=self._ns(trace.arrival_ms),
            attributes={
                "k8s.namespace.name": trace.workflow[0],
                "esg.workflow": trace.workflow[1],
                "esg.request.id": trace.id,
                "esg.result": trace.result,
                "esg.allowed_ms": trace.deadline_ms - trace.arrival_ms,
                **({} if cause is None else {"esg.cause": cause}),
                **({"error.type": "dropped"} if trace.result == "dropped" else {}),
            },
        )
        if trace.result == "dropped":
            call.set_status(Status(StatusCode.ERROR, trace.error))
        critical = set(map(id, call_report.critical_path(trace)))
        for attempt in trace.attempts:
            self._send_attempt(call, trace, attempt, is_critical=id(attempt) in critical)
        for wait in trace.waits:
            attributes = {"esg.missing": wait.missing}
            span = self._child(call, trace.stages[wait.stage], wait.since_ms, attributes)
            span.end(self._ns(trace.ended_ms))
        call.end(self._ns(trace.ended_ms))

    def _send_attempt(
        self, call: Span, trace: CallTrace, attempt: Attempt, *, is_critical: bool
    ) -> None:
        run, since_ms, is_late = attempt
        ended_ms = min(run.ended_ms, trace.ended_ms)
        attributes: _Attributes = {
            "k8s.pod.name": run.pod.rpartition("/")[2],
            "k8s.node.name": run.node,
            "esg.gpu.model": run.share.gpu_model,
            "esg.gpu.percent": run.share.gpu_percent,
            "esg.cpu": run.share.cpu,
            "esg.batch.rows": run.rows,
            "esg.batch.planned": run.batch,
            "esg.run.profiled_ms": run.profiled_ms,
            "esg.slack_ms": trace.deadline_ms - run.begin_ms,
            "esg.served_as_late": is_late,
            "esg.critical": is_critical,
        }
        stage = self._child(call, trace.stages[run.stage], since_ms, attributes)
        times = call_report.stage_times(attempt, trace.ended_ms)
        waits = (
            ("cold start", times.cold_start),
            ("queue", times.queue),
            ("share", times.share),
        )
        at_ms = since_ms
        for name, part_ms in waits:
            if part_ms:
                self._child(stage, name, at_ms).end(self._ns(at_ms + part_ms))
                at_ms += part_ms
        work = self._child(stage, "run", ended_ms - times.run, kind=SpanKind.CLIENT)
        if run.error:
            for span in (work, stage):
                span.set_status(Status(StatusCode.ERROR, run.error))
        work.end(self._ns(ended_ms))
        stage.end(self._ns(ended_ms))

    def _child(
        self,
        parent: Span,
        name: str,
        start_ms: float,
        attributes: _Attributes | None = None,
        kind: SpanKind = SpanKind.INTERNAL,
    ) -> Span:
        return self._tracer.start_span(
            name,
            context=set_span_in_context(parent),
            kind=kind,
            start_time=self._ns(start_ms),
            attributes=attributes,
        )

    def _ns(self, time_ms: float) -> int:
        return round((time_ms + self._offset_ms) * _NS_PER_MS)


@asynccontextmanager
async def sending_spans(
    url: str, traces: TraceRing, *, unix_offset_ms: Callable[[], float]
) -> AsyncIterator[None]:
    """Send spans of new traces to an OTLP receiver over HTTP while inside; at the end all are sent.

    The environment variables ``OTEL_EXPORTER_OTLP_…`` set headers, timeouts and certificates.
    """
    spans = CallSpans(OTLPSpanExporter(endpoint=url), unix_offset_ms=unix_offset_ms)
    traces.on_added = spans.add
    try:
        yield
    finally:
        await asyncio.to_thread(spans.close)
