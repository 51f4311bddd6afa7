"""Traces of late calls: each cause is read from the report of a call that has it."""

import asyncio
import copy
import tracemalloc
from types import SimpleNamespace

import pytest

from scheduler.gateway import call_report
from scheduler.gateway.model_server import ModelServerError
from scheduler.gateway.serving.call_trace import CallTrace, TraceRing
from tests.gateway.runtime_bed import bed, rows

GONE = ModelServerError(502, "the connection was reset", retryable=True)


def report_of(running, identifier=None):
    """Return the report of a call, or of the last one."""
    ring = running.runtime.traces
    trace = next(ring.newest_first()) if identifier is None else ring.find(identifier)
    return call_report.report(trace, unix_offset_s=0.0)


def assert_adds_up(report):
    """The parts of a call's time add up to it."""
    assert sum(report["parts_ms"].values()) == pytest.approx(report["latency_ms"], abs=0.02)


async def hold(running, name, model, after_s):
    """Call; let the model answer after a time, when the deadline of the call is over."""
    call = running.call(name, rows(1))
    await asyncio.sleep(after_s)
    model.gate.set()
    return await call


def _copy(trace, client_id):
    """Return another call with the same stages, which shares no object with it."""
    attempts = []
    for run, since_ms, is_late in trace.attempts:
        other = copy.copy(run)
        other.begin_ms, other.execute_ms = run.begin_ms + 1.0, run.execute_ms + 1.0
        attempts.append((other, since_ms + 1.0, is_late))
    return CallTrace(
        SimpleNamespace(
            workflow=trace.workflow,
            arrival_ms=trace.arrival_ms + 1.0,
            deadline_ms=trace.deadline_ms + 1.0,
            only=None,
        ),
        trace.stages,
        client_id,
        (),
        result="miss",
        error="",
        ended_ms=trace.ended_ms + 1.0,
        attempts=attempts,
        waits=(),
    )


async def test_long_run_is_named():
    """A batch that runs for longer than its profile."""
    async with bed() as running:
        running.serve("w", {"a": ()}, slo_ms=20.0, latency_ms=1.0)
        model = running.model("a")
        model.gate.clear()
        await hold(running, "w", model, 0.025)
        report = report_of(running)
    assert (report["result"], report["cause"]) == ("miss", "over_profile")
    [stage] = report["stages"]
    assert stage["profiled_ms"] == 1.0
    assert stage["over_profile_ms"] >= 20.0
    assert report["late_ms"] > 0.0
    assert_adds_up(report)


async def test_wait_behind_others_is_named():
    """A call that waits until the only pod has ended the batch of others."""
    async with bed() as running:
        running.serve("w", {"a": ()}, slo_ms=20.0)
        model, first = await running.busy("w")
        await hold(running, "w", model, 0.025)
        await first
        report = report_of(running)
    assert (report["result"], report["cause"]) == ("miss", "queue")
    assert report["stages"][0]["queue_ms"] >= 20.0
    assert_adds_up(report)


async def test_start_of_a_pod_is_named():
    """A call that waits until its pod is ready."""
    async with bed() as running:
        running.serve("w", {"a": ()}, pods=0, slo_ms=20.0)
        running.add_pod("a", ready=False)
        call = running.call("w", rows(1))
        await asyncio.sleep(0.025)
        running.runtime.pod_ready("default/a-0")
        await call
        report = report_of(running)
    assert (report["result"], report["cause"]) == ("miss", "cold_start")
    assert report["stages"][0]["cold_start_ms"] >= 20.0
    assert_adds_up(report)


async def test_wait_for_a_share_is_named():
    """A pooled pod that is idle, in a slice without free tokens."""
    async with bed() as running:
        running.serve("w", {"a": ()}, pods=0, slo_ms=20.0)
        running.add_pod("a", pooled=True)
        call = running.call("w", rows(1), timeout_ms=30.0)
        with pytest.raises(Exception, match="no answer within"):
            await call
        report = report_of(running)
    assert (report["result"], report["cause"]) == ("dropped", "share")
    [wait] = report["waits"]
    assert (wait["stage"], wait["missing"]) == ("a", "share")
    assert_adds_up(report)


async def test_missing_pod_is_named():
    """A function without any pod."""
    async with bed() as running:
        running.serve("w", {"a": ()}, pods=0, slo_ms=20.0)
        with pytest.raises(Exception, match="no answer within"):
            await running.call("w", rows(1), timeout_ms=5.0)
        report = report_of(running)
    assert (report["result"], report["cause"]) == ("dropped", "no_pod")
    assert_adds_up(report)


async def test_retries_are_named():
    """A batch that fails late, and runs again at once."""
    async with bed() as running:
        running.serve("w", {"a": ()}, slo_ms=20.0)
        model = running.model("a")
        model.faults = [GONE]
        model.gate.clear()
        await hold(running, "w", model, 0.025)
        report = report_of(running)
    assert (report["result"], report["cause"]) == ("miss", "retries")
    assert [bool(stage["error"]) for stage in report["stages"]] == [True, False]
    assert "the connection was reset" in report["stages"][0]["error"]
    assert_adds_up(report)


async def test_slow_body_is_named():
    """A call whose arrival is long before its body."""
    async with bed() as running:
        running.serve("w", {"a": ()}, slo_ms=20.0)
        await running.call("w", rows(1), age_ms=30.0)
        report = report_of(running)
    assert (report["result"], report["cause"]) == ("miss", "receive")
    assert report["parts_ms"]["receive"] >= 30.0
    assert_adds_up(report)


async def test_plan_without_room_is_named():
    """A workflow whose profiles alone take longer than its SLO."""
    async with bed() as running:
        running.serve("w", {"a": ()}, slo_ms=5.0, latency_ms=60_000.0)
        model = running.model("a")
        model.gate.clear()
        await hold(running, "w", model, 0.010)
        report = report_of(running)
    assert (report["result"], report["cause"]) == ("miss", "plan")
    assert_adds_up(report)


async def test_critical_path_has_the_slower_branch():
    """Of two parallel stages, the one that ended last counts."""
    async with bed() as running:
        running.serve("w", {"a": (), "b": ("a",), "c": ("a",), "d": ("b", "c")}, slo_ms=20.0)
        model = running.model("c")
        model.gate.clear()
        await hold(running, "w", model, 0.025)
        report = report_of(running)
    critical = {stage["stage"]: stage["critical"] for stage in report["stages"]}
    assert critical == {"a": True, "b": False, "c": True, "d": True}
    assert_adds_up(report)


async def test_calls_are_found_by_their_identifiers():
    """That of the trace, of the client, and of the client's trace."""
    trace_id = "0af7651916cd43dd8448eb211c80319c"
    headers = ((b"traceparent", f"00-{trace_id}-b7ad6b7169203331-01".encode()),)
    async with bed() as running:
        running.serve("w", {"a": ()}, slo_ms=20.0)
        await running.call("w", rows(1), age_ms=30.0, client_id="mine", headers=headers)
        await running.call("w", rows(1), age_ms=30.0)
        own_id = report_of(running)["id"]
        assert report_of(running, "mine")["trace_id"] == trace_id
        assert report_of(running, trace_id)["client_id"] == "mine"
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


async def test_ring_is_bounded_in_bytes():
    """Its estimate is no less than what the traces take."""
    async with bed() as running:
        running.serve("w", {"a": ()})
        running.runtime.traces = TraceRing(bytes_max=200_000, sample_every=1)
        await running.call("w", rows(1), client_id="x" * 100)
        [trace] = running.runtime.traces.newest_first()
    ring = TraceRing(bytes_max=200_000)
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        for number in range(1_000):
            ring.add(_copy(trace, f"{number:0100}"))
        used_bytes = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
    assert ring.size_bytes <= 200_000
    assert used_bytes <= ring.size_bytes
    assert ring.find(f"{999:0100}") is not None
    assert ring.find(f"{0:0100}") is None
