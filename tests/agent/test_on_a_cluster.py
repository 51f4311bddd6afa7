"""The agent on a node of a real API server, with our NVML and our MPS daemons."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest
import yaml

from scheduler.model.names import ANNOTATION_GPUS, RESOURCE_GPU_PERCENT
from scheduler.model.pod import Grant, grant_annotations
from tests.agent.daemons import FakeDaemons
from tests.agent.gpus import DRIVER_NOT_LOADED, FakeGpus, a100, load
from tests.agent.machine import NODE, PATH, Node, Running, expected
from tests.testbed import REPOSITORY
from tests.testbed.api import ApiError, Json, wait_until
from tests.testbed.control_plane import ControlPlane
from tests.testbed.nodes import create_nodes, gpu_nodes
from tests.testbed.processes import free_port

pytestmark = pytest.mark.e2e

USER = "esg-agent"
RIGHTS = REPOSITORY / "deploy" / "agent-rbac.yaml"
ESG = str(Path(sys.executable).with_name("esg"))
KEEPER = """\
import asyncio
from scheduler.agent.mps_supervisor import Keeper
from scheduler.agent.settings import AgentSettings
async def main():
    await Keeper(AgentSettings()).run(asyncio.Event())
asyncio.run(main())
"""


@pytest.fixture
def node(cluster: ControlPlane) -> Node:
    """A node that is registered, and the rights of deploy/agent-rbac.yaml."""
    for document in yaml.safe_load_all(RIGHTS.read_text(encoding="utf-8")):
        cluster.api.apply(document)
    create_nodes(cluster.api, gpu_nodes(2, 0))
    return Node(cluster.api)


@pytest.fixture
def start(
    cluster: ControlPlane,
    gpus: FakeGpus,
    daemons: FakeDaemons,
    libraries: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[Callable[..., Running]]:
    """A function that starts an agent with those rights and no others."""
    load(libraries)
    monkeypatch.setenv("FAKE_NVML", gpus.environment["FAKE_NVML"])
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    started = []

    def make(**settings: object) -> Running:
        started.append(Running(cluster.kubeconfig_for(USER), daemons, **settings))
        return started[-1]

    yield make
    for each in started:
        each.stop()


def test_the_command_publishes_gpus_and_ends_by_sigterm(
    cluster: ControlPlane, node: Node, gpus: FakeGpus, tmp_path: Path
):
    """Eight GPUs, kept as they should be; it ends at once, with status 0, and none is offered."""
    port = free_port()
    environment = {
        **os.environ,
        **gpus.environment,
        "NODE_NAME": NODE,
        "ESG_AGENT_HOST": "127.0.0.1",
        "ESG_AGENT_PORT": str(port),
        "ESG_AGENT_REQUIRE_MPS": "false",
        "no_proxy": "127.0.0.1",
    }
    log = tmp_path / "log"
    with log.open("wb") as lines:
        agent = subprocess.Popen(
            [ESG, "agent", f"--kubeconfig={cluster.kubeconfig_for(USER)}"],
            env=environment,
            stdout=lines,
            stderr=lines,
        )
    try:
        wait_until(
            lambda: agent.poll() is not None or node.percents() == ("800", "800"),
            what="eight GPUs offered",
            timeout_s=120,
        )
        assert agent.poll() is None, log.read_text()
        assert node.gpus() == expected(gpus)
        with httpx.Client(base_url=f"http://127.0.0.1:{port}", trust_env=False) as http:
            wait_until(lambda: http.get("/readyz").is_success, what="it is ready")
            assert http.get("/healthz").json() == {"status": "ok"}
            told = http.get("/metrics")
        assert told.headers["content-type"].startswith("text/plain; version=0.0.4")
        assert f'esg_gpu_healthy{{gpu="{gpus.uuids[7]}",node="{NODE}"}} 1.0' in told.text

        zero = {RESOURCE_GPU_PERCENT: "0"}  # as a kubelet does that starts
        node.api.patch(f"{PATH}/status", {"status": {"capacity": zero, "allocatable": zero}})
        node.until_offers(800)

        gpus.strike(5, 79)
        node.until_offers(700)
        assert node.gpus() == expected(gpus, 5)

        agent.send_signal(signal.SIGTERM)
        assert agent.wait(60) == 0
    finally:
        agent.kill()
        agent.wait()
    assert node.gpus() == expected(gpus, *range(8))
    assert node.percents() == ("0", "0")
    told = log.read_text()
    assert "Traceback" not in told
    assert "RBAC" not in told


def test_whoever_writes_there_is_put_right(node: Node, gpus: FakeGpus, start):
    """A kubelet that zeroes the resource, and anybody who edits the inventory; nothing else."""
    start()
    node.until_offers(800)
    ours = node.annotation()
    for part in ("capacity", "allocatable"):
        zero = {"status": {part: {RESOURCE_GPU_PERCENT: "0"}}}
        node.api.patch(f"{PATH}/status", zero)
        node.until_offers(800)
    for text in ("[]", "{", json.dumps([{"index": 0}]), None):
        node.api.patch(PATH, {"metadata": {"annotations": {ANNOTATION_GPUS: text}}})
        wait_until(lambda: node.annotation() == ours, what="the inventory is ours again")
    assert node.gpus() == expected(gpus)

    node.api.patch(PATH, {"metadata": {"annotations": {"other": "kept"}}})
    gpus.set(0, mig=1)
    node.until_offers(700)
    assert node.api.get(PATH)["metadata"]["annotations"]["other"] == "kept"


def test_a_gpu_falls_ill_and_is_replaced(node: Node, gpus: FakeGpus, start):
    """XID 79 takes it out, with an Event on the node; another in its place is offered."""
    agent = start()
    node.until_offers(800)
    gpus.strike(3, 31)  # an application's own fault
    gpus.strike(5, 79)
    node.until_offers(700)
    assert node.gpus() == expected(gpus, 5)

    events = "/api/v1/namespaces/default/events"
    wait_until(lambda: node.api.items(events) != [], what="an Event")
    [event] = [e for e in node.api.items(events) if e["reason"] == "GPUUnhealthy"]
    assert event["involvedObject"]["name"] == NODE
    assert f"GPU 5 ({gpus.uuids[5]}): XID 79" in event["message"]
    labels = f'gpu="{gpus.uuids[3]}",node="{NODE}",xid="31"'
    assert f"esg_gpu_xid_errors_total{{{labels}}} 1.0" in agent.series()

    gpus.replace(5, a100(5, "replaced"))
    node.until_offers(800)
    assert node.gpus() == expected(gpus)
    assert 'xid="79"' not in agent.series()


def test_the_next_agent_offers_what_the_last_took_out(node: Node, gpus: FakeGpus, start):
    """Nobody looks after the GPUs between the two, so none is offered."""
    first = start()
    node.until_offers(800)
    first.stop()
    assert node.gpus() == expected(gpus, *range(8))
    assert node.percents() == ("0", "0")
    start()
    node.until_offers(800)
    assert node.gpus() == expected(gpus)


def test_a_machine_without_a_driver_publishes_nothing(node: Node, gpus: FakeGpus, start):
    """Not what an agent of earlier has left; when the driver comes, so do the GPUs."""
    old = [gpu.model_dump() for gpu in expected(gpus)]
    node.api.patch(PATH, {"metadata": {"annotations": {ANNOTATION_GPUS: json.dumps(old)}}})
    gpus.set_all(init=DRIVER_NOT_LOADED)
    agent = start()
    node.until_offers(0)
    assert node.gpus() == ()
    assert "driver is not loaded" in agent.agent.unreadiness()
    assert f'esg_agent_nvml_up{{node="{NODE}"}} 0.0' in agent.series()

    gpus.set_all(init=0)
    node.until_offers(800)
    wait_until(lambda: not agent.agent.unreadiness(), what="it is ready")


def test_a_call_of_nvml_that_hangs_takes_the_gpus_out(node: Node, gpus: FakeGpus, start):
    """Within the same time as any other fault."""
    start()
    node.until_offers(800)
    gpus.set_all(hang=1)
    node.until_offers(0)
    assert node.healthy() == [False] * 8
    gpus.set_all(hang=0)
    node.until_offers(800)


def test_gpus_are_offered_while_their_mps_daemons_answer(
    node: Node, gpus: FakeGpus, daemons: FakeDaemons, start
):
    """Agent and keeper of the daemons together: a daemon's fault, and the keeper's death."""
    agent = start(require_mps=True)
    agent.until(lambda: node.gpus() == expected(gpus, *range(8)), "no daemon, no health")
    environment = {**os.environ, **gpus.environment, **daemons.environment}
    environment["ESG_AGENT_MPS_OWN_SHM"] = "false"
    keeper = subprocess.Popen([sys.executable, "-c", KEEPER], env=environment)
    try:
        node.until_offers(800)
        daemons.fault(gpus.uuids[2], servers={"4711": "FAULT"})
        node.until_offers(700)
        assert node.gpus() == expected(gpus, 2)
        agent.until(
            lambda: f'restarts_total{{gpu="{gpus.uuids[2]}",node="{NODE}"}} 1.0' in agent.series(),
            "it is restarted",
        )
        daemons.fault(gpus.uuids[2])
        node.until_offers(800)

        keeper.kill()
        node.until_offers(0)
    finally:
        keeper.kill()
        keeper.wait()


def test_a_pods_series_end_with_it(node: Node, gpus: FakeGpus, start):
    """A granted pod's limit is told from its Binding on; another node's pods are not ours."""
    agent = start()
    for name, where in (("ours", NODE), ("theirs", "node-001")):
        pod = node.api.create(
            {
                "metadata": {"name": name, "namespace": "default"},
                "spec": {"containers": [{"name": "main", "image": "app:1"}]},
            }
        )
        granted = Grant(gpus.uuids[1], 30, 4096, 1, {})
        node.api.bind(pod, where, annotations=grant_annotations(granted))
    labels = f'gpu="{gpus.uuids[1]}",namespace="default",pod="ours"'
    agent.until(lambda: f"memory_limit_bytes{{{labels}}}" in agent.series(), "the pod's series")
    assert "theirs" not in agent.series()

    node.api.delete("/api/v1/namespaces/default/pods/ours", grace_s=0)
    agent.until(lambda: "ours" not in agent.series(), "its end")


def test_what_pods_on_an_ill_gpu_request_stays_offered_until_they_end(
    node: Node, gpus: FakeGpus, start
):
    """So that the healthy GPUs' free share can be had, and no kubelet finds a pod too many."""
    start()
    node.until_offers(800)
    requests = {RESOURCE_GPU_PERCENT: "80"}
    for name, index in (("sick", 5), ("well", 6)):
        resources = {"requests": requests, "limits": requests}
        main = {"name": "main", "image": "app:1", "resources": resources}
        pod = node.api.create(
            {
                "metadata": {"name": name, "namespace": "default"},
                "spec": {"containers": [main]},
            }
        )
        granted = Grant(gpus.uuids[index], 40, 4096, 1, {})
        node.api.bind(pod, NODE, annotations=grant_annotations(granted))
    gpus.set(5, ecc=1)
    node.until_offers(780)
    node.api.delete("/api/v1/namespaces/default/pods/sick", grace_s=0)
    node.until_offers(700)


def test_its_rights_are_no_more_than_it_needs(cluster: ControlPlane, node: Node):
    """It may not create or delete nodes, change pods, read anything else, or tell of pods.

    Events of nodes are in namespace default, and there alone it writes.
    """
    api = cluster.api_as(cluster.client_certificate(USER))
    wait_until(lambda: _allowed(lambda: api.items("/api/v1/nodes")), what="the role works")
    pod = "/api/v1/namespaces/default/pods/x"
    for attempt in (
        lambda: api.create({"kind": "Node", "metadata": {"name": "x"}}),
        lambda: api.delete(PATH),
        lambda: api.patch(pod, {"metadata": {"labels": {"a": "b"}}}),
        lambda: api.items("/api/v1/secrets"),
        lambda: api.items("/api/v1/namespaces/default/events"),
        lambda: api.create(_event("kube-system")),
    ):
        assert not _allowed(attempt)
    assert _allowed(lambda: api.create(_event("default")))
    api.close()


def _event(namespace: str) -> Json:
    return {
        "kind": "Event",
        "metadata": {"name": "told", "namespace": namespace},
        "involvedObject": {"kind": "Pod", "name": "x", "namespace": namespace},
        "reason": "Told",
    }


def _allowed(attempt: Callable[[], object]) -> bool:
    try:
        attempt()
    except ApiError as error:
        if error.status != httpx.codes.FORBIDDEN:
            raise
        return False
    return True
