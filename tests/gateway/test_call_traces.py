"""Traces of late calls: each cause is read from the report of a call that has it."""

import tracemalloc

import pytest
from opentelemetry.proto.trace.v1.trace_pb2 import Span as SpanMessage

from scheduler.dispatch.pods import Pod, Run, Share
from scheduler.dispatch.requests import Request
from scheduler.dispatch.stage_graph import StageGraph
from scheduler.gateway import call_report
from scheduler.gateway.call_spans import sending_spans
from scheduler.gateway.serving.call_trace import CallTrace, TracedRun, TraceRing, Wait
from tests.gateway import runtime_bed
from tests.gateway.late_calls import SCENES, failed, held, no_pod, plan, report_of, retries
from tests.gateway.otlp_receiver import otlp_receiver
from tests.gateway.ready_pods import MODEL
from tests.gateway.runtime_bed import bed, rows

CAUSES = tuple(call_report.CAUSES)
TRACE_ID = "0af7651916cd43dd8448eb211c80319c"


def assert_adds_up(report):
    """The parts of a call's time add up to it."""
    assert sum(report["parts_ms"].values()) == pytest.approx(report["latency_ms"], abs=0.02)


def sending(running, url, unix_offset_ms=lambda: 0.0):
    """Send the spans of calls while inside; at the end all have been sent."""
    return sending_spans(url, running.runtime.traces, unix_offset_ms=unix_offset_ms)


@pytest.mark.parametrize("scene", SCENES, ids=lambda scene: scene.__name__)
async def test_cause_is_in_report_and_span(scene):
    """Each cause is read from the report, whose parts add up, and from the span of the call."""
    with otlp_receiver() as (url, spans):
        async with bed() as running:
            async with sending(running, url):
                await scene(running)
            report = report_of(running)
    [call] = [span for span in spans if span.attributes.get("esg.request.id") == report["id"]]
    assert (report["cause"], call.attributes["esg.cause"]) == (scene.__name__,) * 2
    assert report["result"] == ("dropped" if scene in {no_pod, failed} else "miss")
    assert_adds_up(report)
    if scene not in {plan, failed}:  # those without an extra part
        assert max(CAUSES, key=lambda name: report["parts_ms"].get(name, 0.0)) == scene.__name__


async def test_attempts_have_their_errors():
    """The first batch failed, and the second one answered."""
    async with bed() as running:
        await retries(running)
        first, second = report_of(running)["stages"]
    assert "the connection was reset" in first["error"]
    assert second["error"] == ""


async def test_spans_are_children_of_the_clients():
    """A call that its client traces has spans, though it was in time: call, stages, parts."""
    header = (b"traceparent", f"00-{TRACE_ID}-b7ad6b7169203331-01".encode())
    with otlp_receiver() as (url, spans):
        async with bed() as running:
            running.serve("w", {"a": (), "b": ("a",)})
            async with sending(running, url, unix_offset_ms=lambda: 1e12):
                await running.call("w", rows(1), headers=(header,))
                await running.call("w", rows(1))
    by_id = {span.span_id: span for span in spans}
    assert {span.trace_id for span in spans} == {TRACE_ID}
    [call] = [span for span in spans if span.parent_id == "b7ad6b7169203331"]
    assert (call.name, call.kind) == ("infer w", SpanMessage.SPAN_KIND_SERVER)
    stages = [span for span in spans if span.parent_id == call.span_id]
    assert [span.name for span in stages] == ["a", "b"]
    assert stages[0].attributes["k8s.pod.name"] == "a-0"
    assert stages[0].attributes["esg.batch.rows"] == 1
    runs = [span for span in spans if span.name == "run"]
    assert [by_id[span.parent_id].name for span in runs] == ["a", "b"]
    assert {span.kind for span in runs} == {SpanMessage.SPAN_KIND_CLIENT}
    for span in spans:
        parent = by_id.get(span.parent_id, span)
        assert 1e18 <= parent.begin_ns <= span.begin_ns <= span.end_ns <= parent.end_ns


async def test_spans_follow_a_clock_that_is_set():
    """A node whose clock is set after its start would send all spans with wrong times."""
    with otlp_receiver() as (url, spans):
        async with bed() as running:
            running.serve("w", {"a": ()}, slo_ms=20.0)
            async with sending(running, url, iter((1e12, 2e12)).__next__):
                for _ in range(2):
                    await running.call("w", rows(1), age_ms=30.0)
    calls = [span for span in spans if span.kind == SpanMessage.SPAN_KIND_SERVER]
    assert [round(span.begin_ns / 1e18) for span in calls] == [1, 2]


async def test_a_late_call_without_a_clients_trace_has_one_of_its_own():
    """The identifier in its report is that of its spans."""
    with otlp_receiver() as (url, spans):
        async with bed() as running:
            running.serve("w", {"a": ()}, slo_ms=20.0)
            async with sending(running, url):
                await running.call("w", rows(1), age_ms=30.0)
                await running.call("w", rows(1), age_ms=30.0)
                ids = [trace.trace_id for trace in running.runtime.traces.newest_first()]
    assert len(set(ids)) == len(ids) == 2
    assert {span.trace_id for span in spans} == set(ids)
    assert [trace_id for _, trace_id in running.records.late] == ids[::-1]


async def test_critical_path_has_the_slower_branch():
    """The path goes through the one of two parallel stages that ended last."""
    async with bed() as running:
        running.serve("w", {"a": (), "b": ("a",), "c": ("a",), "d": ("b", "c")}, slo_ms=20.0)
        running.model("c").gate.clear()
        await held(running, running.model("c"))
        report = report_of(running)
    critical = {stage["stage"]: stage["critical"] for stage in report["stages"]}
    assert critical == {"a": True, "b": False, "c": True, "d": True}
    assert_adds_up(report)


async def test_critical_path_follows_the_stages_where_times_are_equal():
    """The clock has milliseconds: a branch may end in the one in which its sibling begins."""
    async with bed() as running:
        running.serve("w", {"a": (), "b": ("a",), "c": ("a",), "d": ("b", "c")}, slo_ms=20.0)
        running.model("c").gate.clear()
        await held(running, running.model("c"))
        trace = next(running.runtime.traces.newest_first())
        runs = {run.stage: run for run, _, _ in trace.attempts}
        [c_since_ms] = [since_ms for run, since_ms, _ in trace.attempts if run.stage == 2]
        runs[0].ended_ms = runs[1].ended_ms = c_since_ms
        report = report_of(running)
    critical = {stage["stage"]: stage["critical"] for stage in report["stages"]}
    assert critical == {"a": True, "b": False, "c": True, "d": True}


async def test_calls_are_found_by_their_identifiers():
    """That of the trace, of the client, and of the client's trace."""
    headers = ((b"traceparent", f"00-{TRACE_ID}-b7ad6b7169203331-01".encode()),)
    async with bed() as running:
        running.serve("w", {"a": ()}, slo_ms=20.0)
        await running.call("w", rows(1), age_ms=30.0, client_id="mine", headers=headers)
        await running.call("w", rows(1), age_ms=30.0)
        own_id = report_of(running)["id"]
        assert report_of(running, "mine")["trace_id"] == TRACE_ID
        assert report_of(running, TRACE_ID)["client_id"] == "mine"
        assert report_of(running, own_id)["client_id"] is None
        assert running.runtime.traces.find("another") is None


async def test_calls_in_time_are_sampled():
    """One of a hundred; every late one."""
    async with bed() as running:
        running.serve("w", {"a": ()})
        for _ in range(200):
            await running.call("w", rows(1))
        results = [trace.result for trace in running.runtime.traces.newest_first()]
    assert results == ["hit", "hit"]


def late_trace(number):
    """Return a late call of three stages, which shares no object with another one."""
    workflow = runtime_bed.workflow("w", {"a": (), "b": ("a",), "c": ("b",)})
    graph = StageGraph(workflow.spec.stages)
    at_ms = 1e6 * number + 0.5
    request = Request(
        workflow.key, graph, None, arrival_ms=at_ms, deadline_ms=at_ms + 1.0, only=None
    )
    attempts = []
    for stage in range(3):
        pod = Pod(f"default/pod-{number}-{stage}", ("default", "a"), Share(MODEL, 1, 50, 1000))
        run = Run(
            pod=pod, workflow=workflow.key, stage=stage, jobs=[], batch=1, latency_ms=at_ms + 2.0,
            profiled_ms=at_ms + 3.0, begin_ms=at_ms + 4.0, execute_ms=at_ms + 5.0,
        )  # fmt: skip
        attempts.append((TracedRun(run), at_ms + 6.0, True))
    return CallTrace(
        request,
        ("a", "b", "c"),
        f"{number:0100}",
        (),
        result="miss",
        error=f"{number:050}",
        ended_ms=at_ms + 7.0,
        attempts=attempts,
        waits=[Wait(2, at_ms + 8.0, "queue")],
    )


@pytest.mark.slow
def test_ring_is_bounded_in_bytes():
    """Its estimate is no less than what the traces take."""
    late_trace(0)
    tracemalloc.start()
    try:
        ring = TraceRing(bytes_max=200_000)
        before = tracemalloc.get_traced_memory()[0]
        for number in range(500):
            ring.add(late_trace(number))
        used_bytes = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
    assert used_bytes <= ring.size_bytes <= 200_000
    assert ring.find(f"{499:0100}") is not None
    assert ring.find(f"{0:0100}") is None
