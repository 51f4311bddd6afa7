"""The agent's server, and the errors of its command."""

import asyncio
import os
import socket
import subprocess
import sys
import time
from contextlib import asynccontextmanager
from pathlib import Path

import httpx
import pytest
from typer.testing import CliRunner

from scheduler.agent.app import health_source
from scheduler.agent.service import Agent
from scheduler.cli.commands import app
from scheduler.server.health_server import HealthServer
from tests.agent.factories import settings
from tests.agent.fakes import DRIVER_EXCHANGED, DRIVER_NOT_LOADED, Clock

ESG = str(Path(sys.executable).with_name("esg"))
STARTS_PROGRAMS_BESIDE_GRPC = """
import asyncio
from grpc import aio
from scheduler.agent import app
from scheduler.cli.agent import run_agent

async def serve(_agent, _settings):
    server = aio.server()
    server.add_insecure_port("127.0.0.1:0")
    await server.start()
    for _ in range(5):
        program = await asyncio.create_subprocess_exec("true")
        assert await program.wait() == 0
    await server.stop(None)

app.serve = serve
run_agent("n", None)
"""


class SilentNode:
    """A node of a cluster that reports nothing."""

    async def run(self):
        await asyncio.Event().wait()

    def record_event(self, **_event):
        """Drop the event."""


@asynccontextmanager
async def connected(*_handlers):
    yield SilentNode()


@asynccontextmanager
async def client_of(agent):
    """A client of the agent's health server."""
    health = HealthServer(health_source(agent), ("127.0.0.1", 0), lambda _: None)
    url = f"http://127.0.0.1:{health.port}"
    async with health.running(), httpx.AsyncClient(base_url=url, timeout=30) as http:
        yield http


@asynccontextmanager
async def running_agent(
    clock=time.monotonic,
):
    """Run an agent, and connect a client to it."""
    agent = Agent(settings(read_every_s=0.1), "n", connect=connected, clock=clock)
    stop = asyncio.Event()
    running = asyncio.create_task(agent.run(stop))
    try:
        async with client_of(agent) as http:
            yield http
    finally:
        stop.set()
        await running


async def until_answer(http, expected, *, path="/readyz"):
    """Wait until the answer contains the text."""
    async with asyncio.timeout(60):
        while expected not in (await http.get(path)).text:  # noqa: ASYNC110 - a poll
            await asyncio.sleep(0.01)


async def test_not_ready_before_the_first_reading():
    """Nothing is published yet; but it is healthy, and has its metrics."""
    agent = Agent(settings(), "n", connect=connected)
    async with client_of(agent) as http:
        ready, health, metrics = [await http.get(f"/{p}") for p in ("readyz", "healthz", "metrics")]
    assert ready.status_code == httpx.codes.SERVICE_UNAVAILABLE
    assert ready.json() == {"detail": "no GPU has been read yet"}
    assert health.json() == {"status": "ok"}
    assert 'esg_agent_nvml_up{node="n"} 0.0' in metrics.text
    assert "# TYPE esg_gpu_xid_errors_total counter" in metrics.text


@pytest.mark.slow
async def test_unregistered_node(own_gpus):
    """The GPUs are known; the reason names the missing node."""
    async with running_agent() as http:
        await until_answer(http, "not in the cluster")
        assert f'gpu="{own_gpus.uuids[1]}"' in (await http.get("/metrics")).text


@pytest.mark.slow
@pytest.mark.parametrize(
    ("code", "healthy"), [(DRIVER_NOT_LOADED, True), (DRIVER_EXCHANGED, False)]
)
async def test_exchanged_driver_needs_a_new_process(own_gpus, code, healthy):
    """For a missing driver the agent waits for a while."""
    own_gpus.set_all(init=code)
    async with running_agent() as http:
        await until_answer(http, "driver")
        assert (await http.get("/healthz")).is_success is healthy


@pytest.mark.slow
async def test_container_without_nvml_is_replaced(own_gpus):
    """It may be older than the driver; once NVML works it is healthy."""
    own_gpus.set_all(init=DRIVER_NOT_LOADED)
    clock = Clock()
    async with running_agent(clock) as http:
        await until_answer(http, "not loaded")
        clock.now_s += settings().nvml_restart_after_s + 1
        await until_answer(http, "restart the container", path="/healthz")
        assert "NVIDIA's driver is not loaded" in (await http.get("/healthz")).text
        own_gpus.set_all(init=0)
        await until_answer(http, "ok", path="/healthz")


@pytest.mark.slow
async def test_hanging_call_needs_no_new_container(own_gpus):
    """It would hang there too, and this one may not be killable."""
    clock = Clock()
    async with running_agent(clock) as http:
        await until_answer(http, "not in the cluster")
        own_gpus.set_all(hang=1)
        async with asyncio.timeout(60):
            while "hangs" not in (await http.get("/readyz")).text:
                clock.now_s += settings().nvml_restart_after_s + 1
                await asyncio.sleep(0.05)
        assert (await http.get("/healthz")).is_success
        own_gpus.set_all(hang=0)


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({}, ["--node", "NODE_NAME"]),
        (
            {"NODE_NAME": "n", "ESG_AGENT_XIDS_IGNORED": "13;31"},
            ["ESG_AGENT_XIDS_IGNORED", "13;31"],
        ),
    ],
)
def test_invalid_arguments_are_named(monkeypatch, environment, expected):
    """The node's name, and an invalid setting, are checked before anything starts."""
    monkeypatch.delenv("NODE_NAME", raising=False)
    result = CliRunner().invoke(app, ["agent"], env=environment)
    assert result.exit_code == 2
    assert all(text in result.output for text in expected)


@pytest.mark.parametrize("port_in_use", [True, False])
@pytest.mark.slow
def test_failed_start_has_a_message(port_in_use):
    """Its port is in use, or no API server is configured."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1] if port_in_use else 0
        ended = subprocess.run(
            [ESG, "agent", "--node=n", "--kubeconfig=/nowhere/kubeconfig"],
            env=os.environ | {"ESG_AGENT_HOST": "127.0.0.1", "ESG_AGENT_PORT": str(port)},
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
    assert ended.returncode == 1
    expected = f"cannot listen on 127.0.0.1 port {port}" if port_in_use else "/nowhere/kubeconfig"
    assert expected in ended.stderr
    assert "Traceback" not in ended.stderr


def test_grpc_has_no_part_in_the_programs_that_are_started():
    """After a fork it restarts itself in the child, which may crash, or logs that it cannot."""
    forks = {"GRPC_ENABLE_FORK_SUPPORT": "1"}  # gRPC's default
    ended = subprocess.run(
        [sys.executable, "-c", STARTS_PROGRAMS_BESIDE_GRPC],
        env=os.environ | forks,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert (ended.returncode, ended.stderr) == (0, "")
