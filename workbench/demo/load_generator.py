"""Process of the demo's client: requests of workflows on schedule, by HTTP with binary tensors.

    python -m workbench.demo.load_generator

It reads one line of JSON, the fields of a `LoadPlan`, from its standard input. It writes lines of
JSON: first the time at which the arrivals begin, by the machine's monotonic clock; then several
times a second the number of requests sent so far, with the `RequestOutcome`s since the last line;
and null at the end.

The loop is open: a request is sent at its time, however many are not answered yet, and its latency
counts from that time. So the latencies contain the delays of this process, which are reported too.
"""

import asyncio
import json
import struct
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Literal, NamedTuple

import uvloop

from scheduler.gateway.http.exchange import HttpResponse
from scheduler.gateway.http.pool import HttpPool
from scheduler.gateway.model_server import ModelServerError
from workbench.cluster.model_player import INPUT, ROW_VALUES
from workbench.cluster.process import read_lines
from workbench.simulation.workloads.arrivals import Extent
from workbench.simulation.workloads.paper import Paper

_LEAD_S = 0.2
_REPORT_S = 0.2
_DRAIN_S = 60.0  # late requests wait for others, and some wait half a minute
_VALUE_MAX = 1000  # with a factor of two for each stage, whole numbers stay exact in FP32
_OK = 200


class LoadWorkflow(NamedTuple):
    """A workflow that is requested.

    Attributes:
        factor: ratio of the values of a right answer to those of the request.
    """

    namespace: str
    name: str
    factor: float


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadPlan:
    """Requests to send.

    Attributes:
        host, port: address of the gateway.
    """

    host: str
    port: int
    workflows: Sequence[LoadWorkflow]
    load: Literal["light", "normal", "heavy"]
    seconds: float
    seed: int


class RequestOutcome(NamedTuple):
    """Outcome of one request.

    Attributes:
        number: position in the order of arrivals, from 1 on.
        workflow: index of the workflow.
        arrival_ms: scheduled time, from the begin of the arrivals.
        status: status of the HTTP answer; 0: there was no answer.
        is_right: true if the answer has the right values.
        late_ms: time from the scheduled arrival until it was sent.
        latency_ms: time from the scheduled arrival until its answer.
        rows: number of rows of the largest batch that it was in, as the answer says.
    """

    number: int
    workflow: int
    arrival_ms: float
    status: int
    is_right: bool
    late_ms: float
    latency_ms: float
    rows: int = 0


class LoadGenerator:
    """Sends the requests of a plan."""

    def __init__(self, plan: LoadPlan) -> None:
        self._plan = plan
        self._pool = HttpPool(plan.host, plan.port)
        self._outcomes: list[RequestOutcome] = []
        self._sent = 0

    async def run(self) -> None:
        """Send all requests, and report until they are answered or given up."""
        plan = self._plan
        keys = [(workflow.namespace, workflow.name) for workflow in plan.workflows]
        extent = Extent(duration_ms=1000 * plan.seconds)
        arrivals = Paper(load=plan.load).arrivals(keys, seed=plan.seed, extent=extent)
        begin_s = time.monotonic() + _LEAD_S
        _print(begin_s)
        reports = asyncio.create_task(self._report())
        requests = set()
        for times_ms, indices in arrivals.chunks():
            for arrival_ms, index in zip(times_ms.tolist(), indices.tolist(), strict=True):
                arrival_s = begin_s + arrival_ms / 1000
                if (wait_s := arrival_s - time.monotonic()) > 0:
                    await asyncio.sleep(wait_s)
                self._sent += 1
                work = self._request(self._sent, index, begin_s, arrival_ms)
                requests.add(asyncio.create_task(work))
        if requests:
            _, unanswered = await asyncio.wait(requests, timeout=_DRAIN_S)
            for request in unanswered:
                request.cancel()
            await asyncio.wait(requests)
        reports.cancel()
        _print((self._sent, self._outcomes))
        _print(None)

    async def _request(self, number: int, index: int, begin_s: float, arrival_ms: float) -> None:
        workflow, arrival_s = self._plan.workflows[index], begin_s + arrival_ms / 1000
        value = float(number % _VALUE_MAX)
        sent_s = time.monotonic()
        answer = None
        try:
            with suppress(ModelServerError, asyncio.CancelledError):
                answer = await self._pool.send([_message(workflow, value, arrival_s)], None)
        finally:
            now_s = time.monotonic()
            self._outcomes.append(
                RequestOutcome(
                    number,
                    index,
                    arrival_ms,
                    answer.status if answer else 0,
                    answer is not None and _value(answer) == value * workflow.factor,
                    late_ms=1000 * (sent_s - arrival_s),
                    latency_ms=1000 * (now_s - arrival_s),
                    rows=int(answer.headers.get(b"esg-batch", 0)) if answer else 0,
                )
            )

    async def _report(self) -> None:
        while True:
            await asyncio.sleep(_REPORT_S)
            outcomes, self._outcomes = self._outcomes, []
            _print((self._sent, outcomes))


def _message(workflow: LoadWorkflow, value: float, arrival_s: float) -> bytes:
    tensor = struct.pack("<f", value) * ROW_VALUES
    header = json.dumps(
        {
            "inputs": [
                {
                    "name": INPUT,
                    "shape": [1, ROW_VALUES],
                    "datatype": "FP32",
                    "parameters": {"binary_data_size": len(tensor)},
                }
            ],
            "parameters": {"binary_data_output": True},
        }
    ).encode()
    arrival_unix_s = time.time() - (time.monotonic() - arrival_s)
    head = (
        f"POST /{workflow.namespace}/v2/models/{workflow.name}/infer HTTP/1.1\r\n"
        f"Host: gateway\r\nEsg-Arrival-Ms: {1000 * arrival_unix_s:.3f}\r\n"
        f"Inference-Header-Content-Length: {len(header)}\r\n"
        f"Content-Length: {len(header) + len(tensor)}\r\n\r\n"
    )
    return head.encode() + header + tensor


def _value(answer: HttpResponse) -> float | None:
    """Return the first value of an answer's binary data."""
    offset = int(answer.headers.get(b"inference-header-content-length", len(answer.body)))
    if answer.status != _OK or len(answer.body) < offset + 4:
        return None
    value: float = struct.unpack_from("<f", answer.body, offset)[0]
    return value


def _print(line: object) -> None:
    print(json.dumps(line), flush=True)  # noqa: T201 - the process's output


async def _main() -> None:
    async for line in read_lines(sys.stdin.buffer):
        fields = json.loads(line)
        workflows = [LoadWorkflow(*workflow) for workflow in fields["workflows"]]
        await LoadGenerator(LoadPlan(**{**fields, "workflows": workflows})).run()
        return


if __name__ == "__main__":
    uvloop.run(_main())
