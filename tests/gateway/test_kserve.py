"""KServe's Python server behind the gateway."""

import asyncio
from contextlib import asynccontextmanager, contextmanager
from http.client import HTTPException
from pathlib import Path
from urllib.error import URLError
from urllib.request import urlopen

import numpy as np
import pytest
import tritonclient.http.aio as triton

from scheduler.gateway.body_memory import BodyMemory
from scheduler.gateway.http_front import HttpFront
from scheduler.gateway.http_limits import HttpLimits
from scheduler.gateway.http_server import serving_http
from scheduler.server.sockets import listen
from tests.gateway import runtime_bed
from tests.require import needing
from tests.testbed import REPOSITORY
from tests.testbed.processes import Process
from workbench.cluster.guard import Guard
from workbench.cluster.process import free_port

PYTHON = REPOSITORY / "build" / "kserve" / "bin" / "python"
PROGRAM = Path(__file__).with_name("kserve_server.py")
MODEL = "doubling"
START_S = 180.0
needs_kserve = needing(
    PYTHON.exists(), "KServe is not installed: run `make build/kserve/.installed`"
)


@contextmanager
def kserve(folder):
    """A server that doubles its input; yields its ports of HTTP and gRPC."""
    http_port, grpc_port = free_port(), free_port()
    command = [str(PYTHON), str(PROGRAM), str(http_port), str(grpc_port)]
    guard = Guard()
    process = Process("kserve", command, log_folder=folder, guard=guard)
    process.start()
    try:
        process.wait_ready(lambda: is_ready(http_port), timeout_s=START_S)
        yield http_port, grpc_port
    finally:
        process.stop()
        guard.close()


def is_ready(port):
    try:
        with urlopen(f"http://127.0.0.1:{port}/v2/models/{MODEL}/ready", timeout=5) as answer:
            return answer.status == 200
    except (URLError, HTTPException, OSError):
        return False


@asynccontextmanager
async def gateway_over(protocol, port):
    """A gateway with one pod; yields a client and the runtime's reports."""
    bed = runtime_bed.ProcessBed(MODEL)
    bed.add_pod(protocol, port)
    listener = listen(("127.0.0.1", 0), "ESG_TEST")
    address = f"127.0.0.1:{listener.getsockname()[1]}"
    limits = HttpLimits(drain_s=0.0)
    front = HttpFront(bed.runtime)
    async with (
        serving_http(front, listener, memory=BodyMemory(2**26), limits=limits),
        triton.InferenceServerClient(address) as client,
    ):
        yield client, bed.records
    await bed.runtime.close()


@needs_kserve
@pytest.mark.slow
@pytest.mark.parametrize("protocol", ["grpc", "http-json"])
async def test_joined_batches_are_answered(tmp_path, protocol):
    """24 clients at once get twice their own rows, in batches of at most 8."""
    rows = [np.full((1 + i % 3, 4), i, np.float32) for i in range(24)]

    def inputs(x):
        return [triton.InferInput("x", x.shape, "FP32").set_data_from_numpy(x)]

    with kserve(tmp_path) as (http_port, grpc_port):
        port = grpc_port if protocol == "grpc" else http_port
        async with gateway_over(protocol, port) as (client, records):
            answers = await asyncio.gather(*(client.infer("vision", inputs(x)) for x in rows))
    for x, answer in zip(rows, answers, strict=True):
        np.testing.assert_array_equal(answer.as_numpy("y"), 2 * x)
    batches = [batch.rows for batch in records.batches]
    assert sum(batches) == sum(len(x) for x in rows)
    assert len(batches) < len(rows)
    assert max(batches) <= 8
