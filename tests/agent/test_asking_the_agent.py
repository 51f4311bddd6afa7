"""What probes and people get from the agent's port, and from its command when it cannot start."""

import asyncio
import os
import socket
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import httpx
import pytest
from typer.testing import CliRunner

from scheduler.agent.app import create_app
from scheduler.agent.service import Agent
from scheduler.cli import app
from tests.agent.gpus import DRIVER_EXCHANGED, DRIVER_NOT_LOADED, FakeGpus
from tests.agent.readings import Clock, settings

ESG = str(Path(sys.executable).with_name("esg"))


class Silence:
    """A cluster of which nothing is heard."""

    async def run(self):
        await asyncio.Event().wait()

    def record_event(self, **_event):
        """Nobody looks."""


@asynccontextmanager
async def connected(*_handlers) -> AsyncIterator[Silence]:
    yield Silence()


@asynccontextmanager
async def asking(
    clock: Callable[[], float] = time.monotonic,
) -> AsyncIterator[httpx.AsyncClient]:
    """An agent that runs, and a client of it."""
    agent = Agent(settings(read_every_s=0.1), "n", connect=connected, clock=clock)
    stop = asyncio.Event()
    running = asyncio.create_task(agent.run(stop))
    transport = httpx.ASGITransport(create_app(agent))
    try:
        async with httpx.AsyncClient(transport=transport, base_url="http://agent") as http:
            yield http
    finally:
        stop.set()
        await running


async def until_told(http: httpx.AsyncClient, what: str, *, path: str = "/readyz") -> None:
    """Wait until it says that, which is why the agent is not ready."""
    async with asyncio.timeout(60):
        while what not in (await http.get(path)).text:  # noqa: ASYNC110 - nothing tells
            await asyncio.sleep(0.01)


async def test_it_is_not_ready_before_anything_is_known():
    """Nothing is on the node yet; but it lives, and has its metrics."""
    agent = Agent(settings(), "n", connect=connected)
    transport = httpx.ASGITransport(create_app(agent))
    async with httpx.AsyncClient(transport=transport, base_url="http://agent") as http:
        ready, health, told = [await http.get(f"/{p}") for p in ("readyz", "healthz", "metrics")]
    assert ready.status_code == httpx.codes.SERVICE_UNAVAILABLE
    assert ready.json() == {"detail": "nothing is known of the GPUs yet"}
    assert health.json() == {"status": "ok"}
    assert 'esg_agent_nvml_up{node="n"} 0.0' in told.text
    assert "# TYPE esg_gpu_xid_errors_total counter" in told.text


async def test_it_waits_for_a_node_that_is_not_registered(own_gpus: FakeGpus):
    """The GPUs are known by then; what is missing is told."""
    async with asking() as http:
        await until_told(http, "not in the cluster")
        assert f'gpu="{own_gpus.uuids[1]}"' in (await http.get("/metrics")).text


@pytest.mark.parametrize(("code", "lives"), [(DRIVER_NOT_LOADED, True), (DRIVER_EXCHANGED, False)])
async def test_only_a_driver_that_was_exchanged_wants_a_new_process(own_gpus, code, lives):
    """For one that is merely missing the agent waits; for a while."""
    own_gpus.set_all(init=code)
    async with asking() as http:
        await until_told(http, "driver")
        assert (await http.get("/healthz")).is_success is lives


async def test_a_container_to_which_nvml_tells_nothing_is_to_be_replaced(own_gpus: FakeGpus):
    """It may have been made before the driver was there; one that is told is not."""
    own_gpus.set_all(init=DRIVER_NOT_LOADED)
    clock = Clock()
    async with asking(clock) as http:
        await until_told(http, "not loaded")
        clock.now += settings().nvml_restart_after_s + 1
        await until_told(http, "a new container", path="/healthz")
        assert "NVIDIA's driver is not loaded" in (await http.get("/healthz")).text
        own_gpus.set_all(init=0)
        await until_told(http, "ok", path="/healthz")


async def test_a_hanging_call_wants_no_new_container(own_gpus: FakeGpus):
    """It would hang there too, and this one may not be killed."""
    clock = Clock()
    async with asking(clock) as http:
        await until_told(http, "not in the cluster")
        own_gpus.set_all(hang=1)
        async with asyncio.timeout(60):
            while "hangs" not in (await http.get("/readyz")).text:
                clock.now += settings().nvml_restart_after_s + 1
                await asyncio.sleep(0.05)
        assert (await http.get("/healthz")).is_success
        own_gpus.set_all(hang=0)


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({}, ["--node", "NODE_NAME"]),
        (
            {"NODE_NAME": "n", "ESG_AGENT_XIDS_IGNORED": "13;31"},
            ["ESG_AGENT_XIDS_IGNORED", "13;31"],
        ),
    ],
)
def test_what_is_missing_or_wrong_is_named(monkeypatch: pytest.MonkeyPatch, given, says):
    """The node's name, and a setting that cannot be read, before anything is begun."""
    monkeypatch.delenv("NODE_NAME", raising=False)
    result = CliRunner().invoke(app, ["agent"], env=given)
    assert result.exit_code == 2
    assert all(each in result.output for each in says)


@pytest.mark.parametrize("taken", [True, False])
def test_an_agent_that_cannot_start_says_why(taken: bool):
    """Its port is taken, or there is no API server to ask."""
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1] if taken else 0
        ended = subprocess.run(
            [ESG, "agent", "--node=n", "--kubeconfig=/nowhere/kubeconfig"],
            env=os.environ | {"ESG_AGENT_HOST": "127.0.0.1", "ESG_AGENT_PORT": str(port)},
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
    assert ended.returncode == 1
    expected = f"cannot listen on 127.0.0.1 port {port}" if taken else "/nowhere/kubeconfig"
    assert expected in ended.stderr
    assert "Traceback" not in ended.stderr
