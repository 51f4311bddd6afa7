"""The gateway in front of model servers whose recipes docs/gateway.md has.

They are not installed by the project. Each test needs the Python of an environment that has them:

    uv venv --python 3.11 /tmp/kserve && uv pip install --python /tmp/kserve kserve
    uv venv --python 3.11 /tmp/ray && uv pip install --python /tmp/ray 'ray[serve]'
    export ESG_TEST_KSERVE=/tmp/kserve/bin/python ESG_TEST_RAY=/tmp/ray/bin/python
    pytest tests/gateway/test_recipes.py
"""

import asyncio
import os
from contextlib import asynccontextmanager, contextmanager
from http.client import HTTPException
from urllib.error import URLError
from urllib.request import urlopen

import numpy as np
import pytest
import tritonclient.http.aio as triton

from scheduler.gateway.body_memory import BodyMemory
from scheduler.gateway.http_front import HttpFront
from scheduler.gateway.http_limits import HttpLimits
from scheduler.gateway.http_server import serving_http
from scheduler.gateway.model_servers import model_server
from scheduler.gateway.runtime import Runtime
from scheduler.gateway.server_pods import ServerPod
from scheduler.search.rules import Rules
from scheduler.server.sockets import listen
from tests.gateway import runtime_bed
from tests.testbed import REPOSITORY
from tests.testbed.processes import Process, free_port
from workbench.cluster.guard import Guard

pytestmark = pytest.mark.slow
FOLDER = REPOSITORY / "tests" / "testbed" / "recipes"
MODEL = "doubling"
START_S = 180.0


def python_of(name):
    """Return the interpreter that an environment variable names, or skip the test."""
    path = os.environ.get(name)
    if not path:
        pytest.skip(f"{name} does not name a Python with the model server; see the module's text")
    return path


@contextmanager
def server(command, folder, http_port):
    guard = Guard()
    process = Process("model-server", command, log_folder=folder, guard=guard)
    process.start()
    try:
        process.wait_ready(lambda: is_ready(http_port), timeout_s=START_S)
        yield
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
    records = runtime_bed.Records()
    connect = lambda pod: model_server(pod.server.protocol, pod.host, pod.server.port)  # noqa: E731
    runtime = Runtime(Rules(), records, connect, rows_max=10_000)
    runtime.set_profile(runtime_bed.profile(MODEL))
    runtime.set_workflow(runtime_bed.workflow("vision", {MODEL: ()}))
    document = runtime_bed.server(MODEL, protocol, port=port)
    runtime.set_server(document, runtime_bed.profile(MODEL))
    runtime.add_pod(
        ServerPod(
            name=f"{runtime_bed.NAMESPACE}/{MODEL}-0",
            uid="0",
            function=(runtime_bed.NAMESPACE, MODEL),
            server=document.spec,
            host="127.0.0.1",
            gpu_model=runtime_bed.MODEL,
            cpu=1,
            gpu_percent=100,
            memory_mib=1000,
            gpu="GPU-0",
            node="node",
            ready=True,
            draining=False,
        )
    )
    listener = listen(("127.0.0.1", 0), "ESG_TEST")
    address = f"127.0.0.1:{listener.getsockname()[1]}"
    limits = HttpLimits(drain_s=0.0)
    front = HttpFront(runtime)
    async with (
        serving_http(front, listener, memory=BodyMemory(2**26), limits=limits),
        triton.InferenceServerClient(address) as client,
    ):
        yield client, records
    await runtime.close()


async def check_answers(protocol, port):
    """Check that 24 clients at once get twice their own rows, in batches of at most 8."""
    rows = [np.full((1 + i % 3, 4), i, np.float32) for i in range(24)]

    def inputs(x):
        return [triton.InferInput("x", x.shape, "FP32").set_data_from_numpy(x)]

    async with gateway_over(protocol, port) as (client, records):
        answers = await asyncio.gather(*(client.infer("vision", inputs(x)) for x in rows))
    for x, answer in zip(rows, answers, strict=True):
        np.testing.assert_array_equal(answer.as_numpy("y"), 2 * x)
    batches = [batch.rows for batch in records.batches]
    assert sum(batches) == sum(len(x) for x in rows)
    assert len(batches) < len(rows)
    assert max(batches) <= 8


@pytest.mark.parametrize("protocol", ["grpc", "http-json"])
async def test_kserve_python_server(tmp_path, protocol):
    """KServe's Python server answers joined batches over gRPC, and over HTTP as JSON."""
    python = python_of("ESG_TEST_KSERVE")
    http_port, grpc_port = free_port(), free_port()
    command = [python, str(FOLDER / "kserve_server.py"), str(http_port), str(grpc_port)]
    with server(command, tmp_path, http_port):
        await check_answers(protocol, grpc_port if protocol == "grpc" else http_port)


async def test_ray_serve(tmp_path):
    """A Ray Serve deployment with the recipe's ingress answers joined batches as JSON."""
    python, port = python_of("ESG_TEST_RAY"), free_port()
    with server([python, str(FOLDER / "ray_server.py"), str(port)], tmp_path, port):
        await check_answers("http-json", port)
