"""A flood of requests from other pods: the extender's event loop serves kube-scheduler alone."""

import os
import statistics
import subprocess
import sys
from contextlib import ExitStack, contextmanager

import httpx
import psutil
import pytest

from scheduler.model import names
from tests.extender.sample_cluster import sample_cluster, until_ready
from workbench.cluster.process import free_port

pytestmark = pytest.mark.slow
CALLS = 150  # filter calls of one measurement
ROUNDS = 5
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


def filter_cpu_s(process, client):
    """CPU time of the extender's process for some filter calls."""
    labels = {names.LABEL_WORKFLOW: "image-classification", names.LABEL_STAGE: "segmentation"}
    message = {
        "Pod": {
            "metadata": {"name": "p", "uid": "p", "namespace": "default", "labels": labels},
            "spec": {"containers": [{"name": "main"}]},
        },
        "Nodes": None,
        "NodeNames": [f"n{number}" for number in range(500)],
    }
    before = process.cpu_times()
    for _ in range(CALLS):
        assert client.post("/filter", json=message).status_code == 200
    after = process.cpu_times()
    return after.user + after.system - before.user - before.system


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
    """Its CPU time per filter call does not double: flooded and quiet, in turn.

    CPU time, because the flood itself takes the cores of a small machine.
    """
    process, client, health_port = extender
    filter_cpu_s(process, client)
    quiet_s, flooded_s = [], []
    for _ in range(ROUNDS):
        quiet_s.append(filter_cpu_s(process, client))
        with flooding(health_port):
            flooded_s.append(filter_cpu_s(process, client))
    assert statistics.median(flooded_s) <= 2 * statistics.median(quiet_s), (quiet_s, flooded_s)
