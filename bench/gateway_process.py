"""The gateway's HTTP data path as a process of its own, for the benchmark.

    python -m bench.gateway_process PORT SERVER_PORT [TIMES FILE]

Front, runtime, metrics and the client of one model server, with one workflow of one stage: what a
replica runs, without Kubernetes. With TIMES and FILE, calls and batches are recorded so many times
more in every second slice of time, and FILE gets a line of JSON for each slice: further records of
each call, calls, seconds of CPU time.
"""

import asyncio
import gc
import itertools
import json
import signal
import sys
import time
from pathlib import Path

import uvloop

from scheduler.cli.logs import configure_logging
from scheduler.dispatch.pods import Run
from scheduler.dispatch.requests import WorkflowKey
from scheduler.gateway.body_memory import BodyMemory
from scheduler.gateway.http.front import HttpFront
from scheduler.gateway.http.limits import HttpLimits
from scheduler.gateway.http.server import serving_http
from scheduler.gateway.metrics import GatewayMetrics
from scheduler.gateway.model_servers import model_server
from scheduler.gateway.pod_demand import PodDemand
from scheduler.gateway.serving.call_trace import CallTrace, TracedRun
from scheduler.gateway.serving.recorder import BatchEnded, CallResult
from scheduler.gateway.serving.runtime import Runtime
from scheduler.gateway.serving.served_call import ServedCall
from scheduler.search.rules import Rules
from scheduler.server.sockets import listen
from tests.gateway import ready_pods
from tests.gateway.ready_pods import MODEL
from workbench.profiles import builders as documents

FUNCTION = "m"
BATCHES = (1, 2, 4, 8)
SLOTS = 2
LATENCY_MS = 1.0
SLO_MS = 60_000.0
SLICE_S = 0.25


class RepeatedRecording:
    """Receiver of the runtime's reports that can record each call and batch several times more.

    The records are those of a batch that runs meanwhile, and go where the runtime's own go.

    Attributes:
        times: number of further records of each call and batch.
        calls: number of calls that have ended.
        backend: runtime that reports; set after its creation.
    """

    def __init__(self, metrics: GatewayMetrics) -> None:
        self._metrics = metrics
        self._run: Run | None = None
        self.times = self.calls = 0
        self.backend: Runtime

    def call_ended(
        self,
        workflow: WorkflowKey,
        result: CallResult,
        duration_s: float | None,
        *,
        cold_start: bool = False,
    ) -> None:
        """Count a call, and record it again."""
        self._metrics.call_ended(workflow, result, duration_s, cold_start=cold_start)
        self.calls += 1
        if not self.times or self._run is None:
            return
        backend, request = self.backend, self._run.jobs[0].request
        call: ServedCall = request.payload
        # The loop has the records alone: what else is interpreted would be counted with them.
        ended_ms, headers = backend.now_ms(), call.call.headers
        log, takes = backend.call_log.call_ended, backend.traces.takes
        for _ in range(self.times):
            log(request, result, ended_ms, cold_start=cold_start)
            if takes(result, headers):
                backend.traces.add(
                    CallTrace(
                        request,
                        call.served.names,
                        call.call.request.id,
                        headers,
                        result=result,
                        error="",
                        ended_ms=ended_ms,
                        attempts=call.attempts,
                        waits=call.waits,
                    )
                )

    def late_call_traced(
        self, workflow: WorkflowKey, duration_s: float, *, request_id: str, trace_id: str
    ) -> None:
        """Pass a late call on."""
        self._metrics.late_call_traced(
            workflow, duration_s, request_id=request_id, trace_id=trace_id
        )

    def call_refused(self, workflow: WorkflowKey, status: int) -> None:
        """Pass a refused call on."""
        self._metrics.call_refused(workflow, status)

    def batch_ended(self, batch: BatchEnded) -> None:
        """Count a batch, and record it again."""
        self._metrics.batch_ended(batch)
        if not self.times:
            return
        for pod in self.backend.dispatcher.pods:
            if pod.runs:
                self._run = pod.runs[-1]
        run = self._run
        if run is None:
            return
        ended_ms, log = self.backend.now_ms(), self.backend.call_log.batch_ended
        jobs = [(job.since_ms, job.late) for job in run.jobs]
        for _ in range(self.times):
            traced_run = TracedRun(run)
            for since_ms, late in jobs:
                _ = [(traced_run, since_ms, late)]
            traced_run.ended_ms = ended_ms
            log(batch, ended_ms)


def runtime(server_port: int) -> tuple[Runtime, RepeatedRecording]:
    """Return a runtime with one ready pod, and the receiver of its reports."""
    profile = documents.profile(FUNCTION, {MODEL: [(b, 1, 100, LATENCY_MS) for b in BATCHES]})
    workflow = documents.graph({FUNCTION: [FUNCTION]}, name=FUNCTION, slo_ms=SLO_MS)
    server = ready_pods.server(FUNCTION, slots=SLOTS)
    rules = Rules()
    metrics = GatewayMetrics(rules.prices, PodDemand(time.monotonic))
    metrics.workflow_changed(None, workflow)
    recording = RepeatedRecording(metrics)
    backend = recording.backend = Runtime(
        rules,
        recording,
        lambda pod: model_server("http-binary", pod.host, server_port),
        rows_max=100_000,
    )
    backend.set_profile(profile)
    backend.set_workflow(workflow)
    backend.set_server(server, profile)
    backend.add_pod(ready_pods.ready_pod(0, server))
    return backend, recording


async def alternate(recording: RepeatedRecording, times: int, file: Path) -> None:
    """Record several times more in every second slice; write the CPU time of each slice's calls.

    The order within pairs alternates, so that a drift is in neither.
    """
    with file.open("w", buffering=1, encoding="utf-8") as lines:
        for recording.times in itertools.cycle((0, times, times, 0)):
            began_s, calls = time.process_time(), recording.calls
            await asyncio.sleep(SLICE_S)
            spent_s = time.process_time() - began_s
            slice_ = recording.times, recording.calls - calls, spent_s
            lines.write(json.dumps(slice_) + "\n")


async def serve(port: int, server_port: int, times: int, slices: Path | None) -> None:
    """Serve until SIGTERM."""
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    backend, recording = runtime(server_port)
    serving = serving_http(
        HttpFront(backend),
        listen(("127.0.0.1", port), "PORT"),
        memory=BodyMemory(2**30),
        limits=HttpLimits(),
    )
    async with serving, asyncio.TaskGroup() as group:
        if slices is not None:
            alternating = group.create_task(alternate(recording, times, slices))
        await stop.wait()
        if slices is not None:
            alternating.cancel()
    await backend.close()


if __name__ == "__main__":
    configure_logging("info", as_json=False)
    gc.freeze()
    PORT, SERVER_PORT = map(int, sys.argv[1:3])
    TIMES, FILE = (int(sys.argv[3]), Path(sys.argv[4])) if sys.argv[3:] else (0, None)
    uvloop.run(serve(PORT, SERVER_PORT, TIMES, FILE))
