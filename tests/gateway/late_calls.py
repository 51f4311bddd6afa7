"""Late calls of a gateway's runtime, one of each cause."""

import asyncio
import math

import pytest

from scheduler.dispatch.slices import Slice
from scheduler.gateway import call_report
from scheduler.gateway.calls import CallError
from scheduler.gateway.model_server import ModelServerError
from tests.gateway.ready_pods import MODEL
from tests.gateway.runtime_bed import rows

LATE_S = 0.1  # far above a pause of a busy machine, which would be another cause
GONE = ModelServerError(502, "the connection was reset", retryable=True)


def report_of(running, identifier=None):
    """Return the report of a call, or of the last one."""
    ring = running.runtime.traces
    trace = next(ring.newest_first()) if identifier is None else ring.find(identifier)
    return call_report.report(trace, unix_offset_ms=0.0)


async def held(running, model):
    """Call; let the model answer when the deadline of the call is over."""
    call = running.call("w", rows(1))
    await asyncio.sleep(LATE_S)
    model.gate.set()
    await call


async def over_profile(running):
    """Play a batch that runs for longer than its profile."""
    running.serve("w", {"a": ()}, slo_ms=20.0)
    running.model("a").gate.clear()
    await held(running, running.model("a"))


async def queue(running):
    """Play a wait until the only pod has ended the batch of others."""
    running.serve("w", {"a": ()}, slo_ms=20.0)
    model, first = await running.busy("w")
    await held(running, model)
    await first


async def cold_start(running):
    """Play a wait for a pod that becomes ready."""
    running.serve("w", {"a": ()}, pods=0, slo_ms=20.0)
    running.add_pod("a", ready=False)
    call = running.call("w", rows(1))
    await asyncio.sleep(LATE_S)
    running.runtime.pod_ready("default/a-0")
    await call


async def share(running):
    """Play an idle pod whose slice has no tokens until the deadline is over."""
    running.serve("w", {"a": ()}, pods=0, slo_ms=20.0)
    running.add_pod("a", pooled=True)
    call = running.call("w", rows(1))
    await asyncio.sleep(LATE_S)
    running.fence.set_end(("default", "GPU-0"), math.inf)
    running.runtime.set_slice(Slice("default", "GPU-0", "node", 100, 4, gpu_model=MODEL))
    await call


async def no_pod(running):
    """Play a function without any pod."""
    running.serve("w", {"a": ()}, pods=0, slo_ms=20.0)
    with pytest.raises(CallError, match="no answer within"):
        await running.call("w", rows(1), timeout_ms=5.0)


async def retries(running):
    """Play a batch that fails late, and runs again at once."""
    running.serve("w", {"a": ()}, slo_ms=20.0)
    model = running.model("a")
    model.faults = [GONE]
    model.gate.clear()
    await held(running, model)


async def failed(running):
    """Play a batch that fails within the SLO, and cannot run again."""
    running.serve("w", {"a": ()}, slo_ms=60_000.0)
    running.model("a").faults = [ModelServerError(500, "no such tensor", retryable=False)]
    with pytest.raises(CallError, match="no such tensor"):
        await running.call("w", rows(1))


async def receive(running):
    """Play an arrival that is long before the end of the body."""
    running.serve("w", {"a": ()}, slo_ms=20.0)
    await running.call("w", rows(1), age_ms=1000 * LATE_S)


async def plan(running):
    """Play a workflow whose profiles alone take longer than its SLO."""
    running.serve("w", {"a": ()}, slo_ms=5.0, latency_ms=60_000.0)
    running.model("a").gate.clear()
    await held(running, running.model("a"))


SCENES = (over_profile, queue, cold_start, share, no_pod, retries, failed, receive, plan)
