"""The test bed itself: the end-to-end tests depend on these properties."""

import json
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path

import pytest

from tests.testbed import REPOSITORY
from tests.testbed.api import Api, ApiError, Json, wait_until
from tests.testbed.control_plane import ControlPlane
from tests.testbed.fixtures import empty
from tests.testbed.nodes import create_nodes
from tests.testbed.pods import PREFIX, function_pod
from tests.testbed.processes import Process
from workbench.cluster.guard import Guard
from workbench.cluster.mocked_nodes import gpu_nodes

pytestmark = pytest.mark.e2e

PODS = "/api/v1/namespaces/default/pods"


@pytest.fixture
def api(cluster: ControlPlane) -> Api:
    """The API server, with two mocked nodes of one GPU each."""
    create_nodes(cluster.api, gpu_nodes(2, 1))
    return cluster.api


def bound(api: Api, name: str, *, stage_ms: float | None = None, **annotations: str) -> Json:
    """Create a pod and bind it to the first node, with a plan if a time is given."""
    pod = api.create(function_pod(name, function="f", annotations=annotations))
    plan = {} if stage_ms is None else {f"{PREFIX}/plan": json.dumps({"stage_ms": stage_ms})}
    api.bind(pod, "node-000", annotations=plan)
    return pod


def phase(api: Api, name: str) -> str:
    answer: str = api.get(f"{PODS}/{name}")["status"]["phase"]
    return answer


def test_a_bound_pod_runs_for_its_planned_time(api: Api) -> None:
    """The Binding's plan decides how long the mocked container runs.

    It ends no earlier, and a pod of a longer plan still runs then: neither depends on the machine.
    """
    bound(api, "longer", stage_ms=600_000, **{"run-noise": "0"})
    wait_until(lambda: phase(api, "longer") == "Running", what="the longer one runs")
    bound_s = time.monotonic()
    bound(api, "one", stage_ms=1200.5, **{"run-noise": "0"})
    wait_until(lambda: phase(api, "one") == "Succeeded", what="succeeded", pause_s=0.01)
    assert time.monotonic() - bound_s >= 1.2
    assert phase(api, "longer") == "Running"
    seen = api.get(f"{PODS}/one")
    assert seen["spec"]["nodeName"] == "node-000"
    assert seen["metadata"]["annotations"][f"{PREFIX}/plan"] == json.dumps({"stage_ms": 1200.5})
    assert seen["status"]["containerStatuses"][0]["state"]["terminated"]["exitCode"] == 0


def test_binding_is_atomic_with_its_annotations(api: Api) -> None:
    """A second bind answers 409 and writes no annotation."""
    pod = api.create(function_pod("one", function="segmentation"))
    api.bind(pod, "node-000", annotations={f"{PREFIX}/gpu": "first"})
    with pytest.raises(ApiError) as refused:
        api.bind(pod, "node-001", annotations={f"{PREFIX}/gpu": "second"})
    assert refused.value.status == 409
    seen = api.get(f"{PODS}/one")
    assert seen["spec"]["nodeName"] == "node-000"
    assert seen["metadata"]["annotations"][f"{PREFIX}/gpu"] == "first"


@pytest.mark.parametrize("start", ["0s", "1h"])
def test_a_mocked_kubelet_writes_the_end_before_it_removes_the_pod(api: Api, start: str) -> None:
    """The last state of a deleted pod is Failed, if its containers have started or not."""
    pod = bound(api, "one", **{"mock-run": "forever", "mock-start": start})
    wanted = "Running" if start == "0s" else "Pending"
    wait_until(lambda: phase(api, "one") == wanted, what=wanted)
    api.delete(f"{PODS}/one")
    last = last_state(api, pod["metadata"]["resourceVersion"])
    assert last["status"]["phase"] == "Failed"
    assert not any("running" in c["state"] for c in last["status"].get("containerStatuses") or ())


def test_a_deletion_by_force_asks_no_kubelet(api: Api) -> None:
    """The API server writes a grace of 0 s, and removes the pod while its containers run."""
    pod = bound(api, "one", **{"mock-run": "forever", "mock-stop": "1h"})
    wait_until(lambda: phase(api, "one") == "Running", what="running")
    api.delete(f"{PODS}/one", grace_s=0)
    last = last_state(api, pod["metadata"]["resourceVersion"])
    assert last["metadata"]["deletionGracePeriodSeconds"] == 0
    assert last["status"]["phase"] == "Running"
    assert "running" in last["status"]["containerStatuses"][0]["state"]


def last_state(api: Api, version: str) -> Json:
    """Wait for the first deletion of a pod after a version; return the pod's last state."""
    with closing(api.watch(PODS, version)) as events:
        deleted: Json = next(e["object"] for e in events if e["type"] == "DELETED")
    return deleted


def test_rbac_decides_rights(cluster: ControlPlane) -> None:
    """A user with a certificate has no right until a role is bound to it."""
    stranger = cluster.api_as(cluster.client_certificate("stranger"))
    group = "rbac.authorization.k8s.io"
    binding: Json = {
        "apiVersion": f"{group}/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": "testbed-stranger"},
        "subjects": [{"kind": "User", "name": "stranger"}],
        "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": "view"},
    }
    assert not may_list(stranger)
    cluster.api.apply(binding)
    wait_until(lambda: may_list(stranger), what="the role works")
    cluster.api.delete(cluster.api.path(binding))
    stranger.close()


def may_list(api: Api) -> bool:
    try:
        api.items(PODS)
    except ApiError as error:
        if error.status != 403:
            raise
        return False
    return True


def test_the_guard_ends_the_processes_of_its_owner(tmp_path: Path) -> None:
    """A process does not outlive the tests, even if it ignores SIGTERM."""
    ignoring = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); "
    source = ignoring + "print('up', flush=True); import time; time.sleep(60)"
    guard = Guard(grace_s=0.2)
    process = Process("stubborn", [sys.executable, "-c", source], log_folder=tmp_path, guard=guard)
    process.start()
    process.wait_ready(lambda: "up" in process.log_tail(), timeout_s=60)
    guard.close()  # the owner's death would close the pipe too
    wait_until(lambda: process.pid is None, what="ended")


def test_children_of_a_killed_owner_end(tmp_path: Path) -> None:
    """A kill -9 of the test run leaves no process behind."""
    program = f"""
import pathlib, time
from tests.testbed.processes import Process
from workbench.cluster.guard import Guard
child = Process("child", ["sleep", "60"], log_folder=pathlib.Path({str(tmp_path)!r}), guard=Guard())
child.start()
print(child.pid, flush=True)
time.sleep(60)
"""
    with subprocess.Popen(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, text=True, cwd=REPOSITORY
    ) as owner:
        assert owner.stdout is not None
        child = int(owner.stdout.readline())
        owner.kill()
    wait_until(lambda: state(child) in {"", "Z"}, what="the child ended")


def test_pods_of_a_failed_test_are_not_created_again(cluster: ControlPlane) -> None:
    """Nothing of a Deployment or a Job that a test has left reaches the next one."""
    labels = {"app": "left"}
    pod = {"containers": [{"name": "main", "image": "none"}], "restartPolicy": "Always"}
    template = {"metadata": {"labels": labels}, "spec": pod}
    deployment = {"replicas": 2, "selector": {"matchLabels": labels}, "template": template}
    run = {"template": {"spec": {**pod, "restartPolicy": "Never"}}}
    for version, kind, spec in (("apps/v1", "Deployment", deployment), ("batch/v1", "Job", run)):
        document = {"apiVersion": version, "kind": kind, "metadata": {"name": "left"}}
        cluster.api.create({**document, "spec": spec})
    wait_until(lambda: len(cluster.api.items(PODS)) == 3, what="their pods are created")

    empty(cluster)

    for kind in ("deployments", "replicasets"):
        assert cluster.api.items(f"/apis/apps/v1/namespaces/default/{kind}") == []
    wait_until(lambda: not cluster.api.items(PODS), what="no pod is created again")


def state(pid: int) -> str:
    """Return the kernel's letter for a process's state; empty if it is gone."""
    try:
        return Path(f"/proc/{pid}/stat").read_text(encoding="ascii").split()[2]
    except (FileNotFoundError, ProcessLookupError):
        return ""
