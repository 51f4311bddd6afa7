"""The agent on a node of a real API server, with fake NVML and MPS daemons."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import httpx
import pytest
import yaml

from scheduler.agent import service
from scheduler.agent.pods.permits import read_permits
from scheduler.model.grant import Grant, grant_annotations
from scheduler.model.names import ANNOTATION_GPUS, RESOURCE_GPU_PERCENT
from tests.agent.factories import expected_gpus
from tests.agent.fakes import DRIVER_NOT_LOADED, a100, load
from tests.agent.harness import NODE, PATH, Node, RunningAgent
from tests.testbed import REPOSITORY, audit
from tests.testbed.api import ApiError, wait_until
from tests.testbed.nodes import create_nodes
from workbench.cluster.mocked_nodes import gpu_nodes
from workbench.cluster.process import free_port

pytestmark = pytest.mark.e2e

USER = "esg-agent"
RIGHTS = REPOSITORY / "deploy" / "agent-rbac.yaml"
ESG = str(Path(sys.executable).with_name("esg"))
SUPERVISOR = """\
import asyncio
from scheduler.agent.mps.supervisor import MpsSupervisor
from scheduler.agent.settings import AgentSettings
async def main():
    await MpsSupervisor(AgentSettings()).run(asyncio.Event())
asyncio.run(main())
"""


@pytest.fixture
def node(cluster):
    """Create a registered node, and the rights of deploy/agent-rbac.yaml."""
    for document in yaml.safe_load_all(RIGHTS.read_text(encoding="utf-8")):
        cluster.api.apply(document)
    create_nodes(cluster.api, gpu_nodes(2, 0))
    return Node(cluster.api)


@pytest.fixture
def start(
    cluster,
    gpus,
    daemons,
    libraries,
    monkeypatch,
):
    """Return a function that starts an agent with only those rights."""
    load(libraries)
    monkeypatch.setenv("FAKE_NVML", gpus.environment["FAKE_NVML"])
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    started = []

    def make(**settings):
        started.append(RunningAgent(cluster.kubeconfig_for(USER), daemons, **settings))
        return started[-1]

    yield make
    for agent in started:
        agent.stop()


def test_command_publishes_gpus_and_ends_by_sigterm(cluster, node, gpus, tmp_path):
    """Eight GPUs are kept published; it ends at once, with status 0, and leaves nothing behind."""
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
        )
        assert agent.poll() is None, log.read_text()
        assert node.gpus() == expected_gpus(gpus)
        with httpx.Client(base_url=f"http://127.0.0.1:{port}", trust_env=False) as http:
            wait_until(lambda: http.get("/readyz").is_success, what="it is ready")
            assert http.get("/healthz").json() == {"status": "ok"}
            metrics = http.get("/metrics")
        assert metrics.headers["content-type"].startswith("text/plain; version=0.0.4")
        assert f'esg_gpu_healthy{{gpu="{gpus.uuids[7]}",node="{NODE}"}} 1.0' in metrics.text

        zero = {RESOURCE_GPU_PERCENT: "0"}  # like a kubelet that starts
        node.api.patch(f"{PATH}/status", {"status": {"capacity": zero, "allocatable": zero}})
        node.until_offers(800)

        gpus.strike(5, 79)
        node.until_offers(700)
        assert node.gpus() == expected_gpus(gpus, 5)
        events = "/api/v1/namespaces/default/events"
        wait_until(
            lambda: node.api.items(events, fieldSelector="reason=GPUUnhealthy"), what="an Event"
        )

        agent.send_signal(signal.SIGTERM)
        assert agent.wait(60) == 0
    finally:
        agent.kill()
        agent.wait()
    assert (node.annotation(), node.percents()) == (None, (None, None))
    granted = audit.granted_rights(yaml.safe_load_all(RIGHTS.read_text(encoding="utf-8")))
    used = audit.used_rights(cluster.audit_log, USER)
    # `patch` counts an Event that repeats after a minute.
    assert granted - used <= {audit.Right("", "events", "patch")}
    assert used <= granted
    logged = log.read_text()
    assert "Traceback" not in logged
    assert "RBAC" not in logged


def test_other_clients_writes_are_reverted(node, gpus, start):
    """A kubelet zeroes the resource, another client edits the inventory; other data stays."""
    start()
    node.until_offers(800)
    inventory = node.annotation()
    for part in ("capacity", "allocatable"):
        zero = {"status": {part: {RESOURCE_GPU_PERCENT: "0"}}}
        node.api.patch(f"{PATH}/status", zero)
        node.until_offers(800)
    for text in ("[]", "{", json.dumps([{"index": 0}]), None):
        node.api.patch(PATH, {"metadata": {"annotations": {ANNOTATION_GPUS: text}}})
        wait_until(lambda: node.annotation() == inventory, what="inventory restored")
    assert node.gpus() == expected_gpus(gpus)

    node.api.patch(PATH, {"metadata": {"annotations": {"foreign": "unchanged"}}})
    gpus.set(0, mig=1)
    node.until_offers(700)
    assert node.api.get(PATH)["metadata"]["annotations"]["foreign"] == "unchanged"


def test_unhealthy_gpu_is_replaced(node, gpus, start):
    """XID 79 withdraws it, with an Event on the node; its replacement is offered."""
    agent = start()
    node.until_offers(800)
    gpus.strike(3, 31)  # an application's own fault
    gpus.strike(5, 79)
    node.until_offers(700)
    assert node.gpus() == expected_gpus(gpus, 5)

    events = "/api/v1/namespaces/default/events"
    selector = "reason=GPUUnhealthy"  # the node's registration is an Event, too
    wait_until(lambda: node.api.items(events, fieldSelector=selector), what="an Event")
    [event] = node.api.items(events, fieldSelector=selector)
    assert event["involvedObject"]["name"] == NODE
    assert f"GPU 5 ({gpus.uuids[5]}): XID 79" in event["message"]
    labels = f'gpu="{gpus.uuids[3]}",node="{NODE}",xid="31"'
    assert f"esg_gpu_xid_errors_total{{{labels}}} 1.0" in agent.series()

    gpus.replace(5, a100(5, "replaced"))
    node.until_offers(800)
    assert node.gpus() == expected_gpus(gpus)
    assert 'xid="79"' not in agent.series()


def test_next_agent_offers_the_gpus_again(node, gpus, start):
    """Nothing supervises the GPUs between the two agents, so none is offered."""
    first = start()
    node.until_offers(800)
    first.stop()
    assert (node.annotation(), node.percents()) == (None, (None, None))
    start()
    node.until_offers(800)
    assert node.gpus() == expected_gpus(gpus)


def test_machine_without_a_driver(node, gpus, start):
    """An old inventory is removed; with the driver come the GPUs."""
    old = [gpu.model_dump() for gpu in expected_gpus(gpus)]
    node.api.patch(PATH, {"metadata": {"annotations": {ANNOTATION_GPUS: json.dumps(old)}}})
    gpus.set_all(init=DRIVER_NOT_LOADED)
    agent = start()
    node.until_offers(0)
    assert node.gpus() == ()
    assert "driver is not loaded" in agent.agent.not_ready_reason()
    assert f'esg_agent_nvml_up{{node="{NODE}"}} 0.0' in agent.series()

    gpus.set_all(init=0)
    node.until_offers(800)
    wait_until(lambda: not agent.agent.not_ready_reason(), what="it is ready")


def test_hanging_nvml(node, gpus, start):
    """The GPUs are withdrawn as fast as for any other fault."""
    start()
    node.until_offers(800)
    gpus.set_all(hang=1)
    node.until_offers(0)
    assert node.healthy() == [False] * 8
    gpus.set_all(hang=0)
    node.until_offers(800)


def test_gpus_are_offered_while_their_mps_daemons_are_ready(node, gpus, daemons, start):
    """A daemon's fault and the supervisor's death withdraw GPUs."""
    agent = start(require_mps=True)
    agent.until(lambda: node.gpus() == expected_gpus(gpus, *range(8)), "no daemon, no health")
    environment = {**os.environ, **gpus.environment, **daemons.environment}
    environment["ESG_AGENT_MPS_OWN_SHM"] = "false"
    supervisor = subprocess.Popen([sys.executable, "-c", SUPERVISOR], env=environment)
    try:
        node.until_offers(800)
        daemons.fault(gpus.uuids[2], servers={"4711": "FAULT"})
        agent.until(lambda: node.gpus() == expected_gpus(gpus, 2), "only GPU 2 is unhealthy")
        node.until_offers(700)
        restarts = f'restarts_total{{gpu="{gpus.uuids[2]}",node="{NODE}"}} '
        agent.until(lambda: f"{restarts}0.0" not in agent.series(), "it is restarted")
        daemons.fault(gpus.uuids[2])
        node.until_offers(800)

        supervisor.kill()
        node.until_offers(0)
    finally:
        supervisor.kill()
        supervisor.wait()


def test_no_gpu_is_taken_while_somebody_else_uses_it(node, gpus, daemons, start, tmp_path):
    """A device plugin, then a foreign process: an Event and a metric say it, until it is free."""
    plugin = {"nvidia.com/gpu": "8"}
    node.api.patch(f"{PATH}/status", {"status": {"capacity": plugin, "allocatable": plugin}})
    permits = tmp_path / "permits.json"
    agent = start(mps_permits=str(permits))
    agent.until(lambda: node.gpus() == expected_gpus(gpus, *range(8)), "all are claimed")
    events = "/api/v1/namespaces/default/events"
    wait_until(
        lambda: any("offers nvidia.com/gpu: 8" in e["message"] for e in node.api.items(events)),
        what="an Event",
    )
    labels = f'gpu="{gpus.uuids[0]}",node="{NODE}",reason="claimed"'
    assert f"esg_gpu_unhealthy{{{labels}}} 1.0" in agent.series()
    assert read_permits(permits) == frozenset()

    foreign = subprocess.Popen(["sleep", "infinity"])
    try:
        gpus.set(2, processes=f"{foreign.pid}:1048576")
        node.api.patch(f"{PATH}/status", {"status": {"allocatable": {"nvidia.com/gpu": "0"}}})
        node.until_offers(700)
        assert node.gpus() == expected_gpus(gpus, 2)
        assert read_permits(permits) == set(gpus.uuids) - {gpus.uuids[2]}
    finally:
        foreign.kill()
        foreign.wait()
    gpus.set(2, processes="")
    node.until_offers(800)


def test_pods_series_end_with_the_pod(node, gpus, start):
    """A granted pod has a limit from its Binding on; pods of other nodes have no series."""
    agent = start()
    for name, where in (("local", NODE), ("remote", "node-001")):
        pod = node.api.create(
            {
                "metadata": {"name": name, "namespace": "default"},
                "spec": {"containers": [{"name": "main", "image": "app:1"}]},
            }
        )
        granted = Grant(gpus.uuids[1], 30, 4096, 1, {})
        node.api.bind(pod, where, annotations=grant_annotations(granted))
    labels = f'gpu="{gpus.uuids[1]}",namespace="default",pod="local"'
    agent.until(lambda: f"memory_limit_bytes{{{labels}}}" in agent.series(), "the pod's series")
    assert "remote" not in agent.series()

    node.api.delete("/api/v1/namespaces/default/pods/local", grace_s=0)
    agent.until(lambda: "local" not in agent.series(), "its end")


def test_requests_on_an_unhealthy_gpu_stay_in_the_capacity(node, gpus, start):
    """So the free share of healthy GPUs is usable, and no kubelet rejects a running pod."""
    start()
    node.until_offers(800)
    requests = {RESOURCE_GPU_PERCENT: "80"}
    for name, index in (("unhealthy", 5), ("healthy", 6)):
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
    gpus.set(5, rows_failed=1)
    node.until_offers(780)
    node.api.delete("/api/v1/namespaces/default/pods/unhealthy", grace_s=0)
    node.until_offers(700)


def test_a_pod_above_its_memory_has_an_event_and_is_evicted(cluster, node, gpus, start):
    """The metric says by how much; eviction is a setting that needs a right of its own."""
    rule = {"apiGroups": [""], "resources": ["pods/eviction"], "verbs": ["create"]}
    names = {"name": "evictor"}
    rbac = "rbac.authorization.k8s.io"
    subject = {"kind": "User", "name": USER, "apiGroup": rbac}
    reference = {"kind": "ClusterRole", "apiGroup": rbac, **names}
    for document in (
        {"apiVersion": f"{rbac}/v1", "kind": "ClusterRole", "metadata": names, "rules": [rule]},
        {
            "apiVersion": f"{rbac}/v1",
            "kind": "ClusterRoleBinding",
            "metadata": names,
            "roleRef": reference,
            "subjects": [subject],
        },
    ):
        cluster.api.apply(document)
    main = {"name": "main", "image": "app:1"}
    pod = node.api.create(
        {"metadata": {"name": "greedy", "namespace": "kube-system"}, "spec": {"containers": [main]}}
    )
    granted = Grant(gpus.uuids[1], 30, 1024, 1, {})
    node.api.bind(pod, NODE, annotations=grant_annotations(granted))
    process = os.getpid()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(service, "pod_uid_of_process", {process: pod["metadata"]["uid"]}.get)
        agent = start(evict_after_s=1, check_claims=False)
        node.until_offers(800)
        gpus.set(1, mps_processes=f"{process}:{2**31}")
        labels = f'gpu="{gpus.uuids[1]}",namespace="kube-system",pod="greedy"'
        excess = f"memory_excess_bytes{{{labels}}} 1.073741824e+09"  # 1 GiB
        agent.until(lambda: excess in agent.series(), "the metric")
        events = "/api/v1/namespaces/kube-system/events"

        def reasons():
            return [e["reason"] for e in node.api.items(events)]

        agent.until(lambda: "GPUMemoryExceeded" in reasons(), "an Event")

        def remaining():
            pods = node.api.items("/api/v1/namespaces/kube-system/pods")
            return [p["metadata"]["name"] for p in pods if "deletionTimestamp" not in p["metadata"]]

        agent.until(lambda: "greedy" not in remaining(), "the pod is evicted")
    for kind in ("clusterroles", "clusterrolebindings"):
        cluster.api.delete(f"/apis/{rbac}/v1/{kind}/evictor")


def test_rights_are_minimal(cluster, node):
    """It may not create or delete nodes, change or evict pods, or read other resources."""
    api = cluster.api_as(cluster.client_certificate(USER))
    wait_until(lambda: _allowed(lambda: api.items("/api/v1/nodes")), what="the role works")
    pod = "/api/v1/namespaces/default/pods/x"
    for attempt in (
        lambda: api.create({"kind": "Node", "metadata": {"name": "x"}}),
        lambda: api.delete(PATH),
        lambda: api.patch(pod, {"metadata": {"labels": {"a": "b"}}}),
        lambda: api.items("/api/v1/secrets"),
        lambda: api.items("/api/v1/namespaces/default/events"),
        lambda: api.request("POST", f"{pod}/eviction", {"kind": "Eviction"}),
    ):
        assert not _allowed(attempt)
    for namespace in ("default", "kube-system"):
        assert _allowed(lambda: api.create(_event(namespace)))  # noqa: B023 - called at once
    api.close()


def _event(namespace):
    return {
        "kind": "Event",
        "metadata": {"name": "event", "namespace": namespace},
        "involvedObject": {"kind": "Pod", "name": "x", "namespace": namespace},
        "reason": "Test",
    }


def _allowed(attempt):
    try:
        attempt()
    except ApiError as error:
        if error.status != httpx.codes.FORBIDDEN:
            raise
        return False
    return True
