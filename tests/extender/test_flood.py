"""A flood of requests from other pods: the extender's event loop serves kube-scheduler alone."""

import os
import subprocess
import sys
import time
from contextlib import ExitStack, contextmanager

import httpx
import psutil
import pytest

from tests.extender.sample_cluster import sample_cluster, until_ready
from workbench.cluster.process import free_port

pytestmark = pytest.mark.slow
BUSY_S = 2.0  # CPU time of the flooded process
FLOODERS = 3
FLOOD = r"""
import socket, sys
address = ("127.0.0.1", int(sys.argv[1]))
print("floods", flush=True)
while True:
    for path in ("metrics", "healthz", "readyz"):
        request = f"GET /{path} HTTP/1.1\r\nHost: h\r\n\r\n".encode()
        try:
            with socket.create_connection(address, timeout=10) as connection:
                connection.sendall(request * 20)
                connection.recv(65536)
        except OSError:
            pass
"""


@pytest.fixture
def extender(tmp_path):
    """A running `esg serve`: its process, its client and its health port."""
    port, health_port = free_port(), free_port()
    command = [sys.executable, "-c", "from scheduler.cli.commands import app; app()", "serve"]
    environment = {"ESG_HEALTH_HOST": "127.0.0.1", "ESG_HEALTH_PORT": str(health_port)}
    environment["no_proxy"] = "127.0.0.1"
    with (
        sample_cluster(tmp_path) as kubeconfig,
        subprocess.Popen(
            [*command, f"--kubeconfig={kubeconfig}", f"--port={port}"],
            env=os.environ | environment,
        ) as process,
        httpx.Client(base_url=f"http://127.0.0.1:{port}", trust_env=False, timeout=60) as client,
    ):
        try:
            until_ready(client)
            yield psutil.Process(process.pid), client, health_port
        finally:
            process.terminate()


def cpu_s(process):
    """CPU time of a process, without its children."""
    times = process.cpu_times()
    return times.user + times.system


@contextmanager
def flooding(port):
    """Clients that send requests as fast as they can, and leave in the middle of responses."""
    command = [sys.executable, "-c", FLOOD, str(port)]
    with ExitStack() as running:
        floods = [
            running.enter_context(subprocess.Popen(command, stdout=subprocess.PIPE))
            for _ in range(FLOODERS)
        ]
        try:
            assert [flood.stdout.readline() for flood in floods] == [b"floods\n"] * FLOODERS
            yield
        finally:
            for flood in floods:
                flood.kill()


def test_connections_to_the_health_port_are_those_of_another_process(extender):
    """The extender's event loop sees none of them, nor their bytes, and has all its files."""
    process, _, health_port = extender
    with httpx.Client(base_url=f"http://127.0.0.1:{health_port}", trust_env=False) as client:
        assert client.get("/metrics").status_code == 200
        [health_process] = process.children()
        owners = [
            owner
            for owner in (process, health_process)
            for connection in owner.net_connections()
            if connection.raddr and connection.laddr.port == health_port
        ]
    assert owners == [health_process]


def test_flood_of_the_health_port_costs_the_extender_nothing(extender):
    """While its health server's process is busy, the extender's own has little to do.

    CPU time, because the flood itself takes the cores of a small machine.
    """
    process, client, health_port = extender
    [health_process] = process.children()
    with flooding(health_port):
        begins_s = cpu_s(process), cpu_s(health_process)
        while cpu_s(health_process) < begins_s[1] + BUSY_S:
            time.sleep(0.05)
        extender_s = cpu_s(process) - begins_s[0]
        assert client.get("/readyz").status_code == 200
    assert extender_s < 0.5 * BUSY_S
