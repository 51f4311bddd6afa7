"""``esg profiles measure -f``: pods with each share are created, measured and deleted."""

import json
import signal
import subprocess
import sys
import time
from contextlib import ExitStack, contextmanager
from pathlib import Path
from statistics import median

import pytest

from tests.e2e.documents import A100, configuration, profile
from tests.e2e.harness import PODS
from tests.profiles.harness import TimedServer, in_thread
from tests.testbed.api import wait_until
from tests.testbed.pods import PREFIX
from workbench.cluster.process import free_port

MEASURED = f"{PREFIX}/measurement=true"
ESG = Path(sys.executable).with_name("esg")
MS_OF_WHOLE = 56.0
"""Time of a run on a whole GPU; on a share it takes as much longer."""
QUICK = ("--runs", "5", "--runs-max", "5", "--warm-up", "1")


def measured_pods(harness):
    return harness.api.items(PODS, labelSelector=MEASURED)


@contextmanager
def measuring(harness, folder, *options):
    """Run the command on a FunctionServer without a profile; yields its process and port."""
    port = free_port()
    server = {
        "apiVersion": "esg-scheduler.io/v1alpha1",
        "kind": "FunctionServer",
        "metadata": {"name": "new", "namespace": "default"},
        "spec": {
            "function": "new",
            "protocol": "http-binary",
            "port": port,
            "template": {"spec": {"containers": [{"name": "server", "image": "none"}]}},
        },
    }
    file = folder / "server.yaml"
    file.write_text(json.dumps(server), encoding="utf-8")
    command = [
        ESG, "profiles", "measure", "-f", file, "--shares", "14,28,56", "--cpus", "1",
        "--batches", "1,2", "--memory-mib", "2000", "--kubeconfig", harness.plane.kubeconfig,
        "--scheduler-name", "esg-scheduler", "--start-s", "90",
        *QUICK, *options,
    ]  # fmt: skip
    with subprocess.Popen(
        list(map(str, command)), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            yield process, port
        finally:
            process.kill()


def play_until(harness, stack, port, is_over):
    """Play the model server of each measured pod; return the servers by share."""
    servers = {}
    while not is_over():
        for pod in measured_pods(harness):
            host = pod["status"].get("podIP")
            percent = json.loads(pod["metadata"]["annotations"][f"{PREFIX}/configuration"])
            percent = percent["gpuPercent"]
            if host and percent not in servers:
                stack.close()  # the next pod may have the address of the last one
                servers[percent] = TimedServer(run_ms=MS_OF_WHOLE * 100 / percent)
                stack.enter_context(in_thread(servers[percent].serving(host, port)))
        time.sleep(0.05)  # between two looks at the pods
    return servers


@pytest.fixture
def harness(esg):
    """One GPU with a neighbour of 20 %."""
    harness = esg(nodes=1, gpus=1, documents=[profile("other", configuration(20))])
    harness.create("neighbour", function="other")
    harness.wait_bound("neighbour")
    return harness


def test_a_profile_from_pods_of_each_share(harness, tmp_path):
    """The share is visible in the times; each pod has its grant, and none is left."""
    out = tmp_path / "profile.yaml"
    with (
        ExitStack() as stack,
        measuring(harness, tmp_path, "--all", "-o", out, "--json") as (process, port),
    ):
        servers = play_until(harness, stack, port, lambda: process.poll() is not None)
        output, errors = process.communicate()
    assert process.returncode == 0, errors
    answer = json.loads(output)
    (gpu,) = answer["profile"]["spec"]["gpus"]
    assert gpu["model"] == A100
    rows = gpu["configurations"]
    assert [(row["gpuPercent"], row["batch"]) for row in rows] == [
        (14, 1), (28, 1), (56, 1), (14, 2), (28, 2), (56, 2),
    ]  # fmt: skip
    for row in rows:
        taken_ms = servers[row["gpuPercent"]].times_ms[row["batch"]][-5:]
        assert 1.0 <= row["latencyMs"] / median(taken_ms) < 1.5
    assert all(point["neighbourPercent"] == 20 for point in answer["points"])
    assert answer["profile"]["spec"]["coldStartMs"] > 0
    wait_until(lambda: not measured_pods(harness), what="the pods are gone")


def test_ctrl_c_deletes_the_pod(harness, tmp_path):
    """The pod goes with the command, which exits as after any Ctrl-C."""
    with measuring(harness, tmp_path) as (process, _):
        wait_until(lambda: measured_pods(harness), what="a pod is created")
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=120)
        assert process.returncode == 130
    wait_until(lambda: not measured_pods(harness), what="the pod is gone")
