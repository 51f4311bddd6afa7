"""The pods of a node: the pod of a process, grants and requests."""

import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler.agent.pods.granted_pod import GrantedPod
from scheduler.agent.pods.grants import write_grants
from scheduler.agent.pods.node_pods import NodePods, PodRequest
from scheduler.agent.pods.process_pods import pod_uid, pod_uid_of_process
from scheduler.model.grant import Grant, grant_annotations
from scheduler.model.names import LABEL_FUNCTION, LABEL_STAGE, LABEL_WORKFLOW, RESOURCE_GPU_PERCENT

UID = "0f0c7e8a-91a5-4d31-9c1a-3a1e6f8f3b52"
DOTTED = UID.replace("-", "_")
CONTAINER = "c" * 64
BY_DRIVER = {
    "cgroupfs v1": f"""\
12:memory:/kubepods/burstable/pod{UID}/{CONTAINER}
1:name=systemd:/kubepods/burstable/pod{UID}/{CONTAINER}
""",
    "cgroupfs v1 guaranteed": f"4:cpu,cpuacct:/kubepods/pod{UID}/{CONTAINER}\n",
    "cgroupfs v2": f"0::/kubepods/besteffort/pod{UID}/{CONTAINER}\n",
    "systemd v2, containerd": "0::/kubepods.slice/kubepods-burstable.slice/"
    f"kubepods-burstable-pod{DOTTED}.slice/cri-containerd-{CONTAINER}.scope\n",
    "systemd v2, guaranteed": "0::/kubepods.slice/"
    f"kubepods-pod{DOTTED}.slice/crio-{CONTAINER}.scope/container\n",
    "systemd v1, docker": "11:devices:/kubepods.slice/kubepods-besteffort.slice/"
    f"kubepods-besteffort-pod{DOTTED}.slice/docker-{CONTAINER}.scope\n",
    "private cgroup namespace": f"0::/../../kubepods-burstable-pod{DOTTED}.slice/"
    f"cri-containerd-{CONTAINER}.scope\n",
    "kind": "0::/kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-burstable.slice/"
    f"kubelet-kubepods-burstable-pod{DOTTED}.slice/cri-containerd-{CONTAINER}.scope\n",
    "a node in a pod": f"0::/kubepods/pod{UID[::-1].replace('-', '0')[:32]}/{CONTAINER}/kubelet/"
    f"kubepods/burstable/pod{UID}/{CONTAINER}\n",
    "the pod's own": f"0::/kubepods/pod{UID}",
}


@pytest.mark.parametrize("text", BY_DRIVER.values(), ids=BY_DRIVER)
def test_every_driver_names_the_pod(text):
    """The cgroup has version 1 or 2, of systemd or cgroupfs, also on a node that is a container."""
    assert pod_uid(text) == UID


def test_static_pod():
    """Its UID is a hash of its file, without dashes."""
    assert pod_uid(f"0::/kubepods/burstable/pod{'ab12' * 8}/{CONTAINER}") == "ab12" * 8


@pytest.mark.parametrize(
    "text",
    [
        "",
        "0::/\n",
        "0::/user.slice/user-1000.slice/session-3.scope\n",
        "0::/system.slice/tripod-controller.service\n",
        f"0::/system.slice/pod{UID[:-1]}.service\n",
        f"0::/libpod-{CONTAINER}.scope\n",
    ],
)
def test_process_without_a_pod(text):
    """It belongs to a login, a service, or a container of another engine."""
    assert pod_uid(text) is None


@given(st.text())
def test_any_text_is_parsed(text):
    """Whatever the kernel writes, the result is a UID or None."""
    uid = pod_uid(text)
    assert uid is None or len(uid) in {32, 36}


def test_pod_of_a_process_id(tmp_path):
    """A process that has ended, or has no pod, gives None."""
    (tmp_path / "7").mkdir()
    (tmp_path / "7" / "cgroup").write_text(BY_DRIVER["cgroupfs v2"])
    assert pod_uid_of_process(7, proc=tmp_path) == UID
    assert pod_uid_of_process(8, proc=tmp_path) is None
    assert pod_uid_of_process(os.getpid()) is None


def pod(
    name,
    *,
    phase="Running",
    memory=None,
    granted=True,
    requested="42",
):
    annotations = {}
    if granted:
        annotations = grant_annotations(Grant("GPU-1", 30, 4096, 1, {}))
    if memory is not None:
        annotations["esg-scheduler.io/gpu-memory"] = memory
    requests = {} if requested is None else {RESOURCE_GPU_PERCENT: requested}
    return {
        "metadata": {"name": name, "namespace": "a", "uid": name, "annotations": annotations},
        "spec": {"containers": [{"name": "main", "resources": {"requests": requests}}]},
        "status": {"phase": phase},
    }


@pytest.mark.parametrize(
    ("labels", "expected"),
    [
        ({LABEL_WORKFLOW: "w", LABEL_STAGE: "s"}, ("w", "s")),
        ({LABEL_FUNCTION: "f"}, ("", "f")),
        (None, ("", "")),
    ],
)
def test_workflow_and_stage_of_a_granted_pod(labels, expected):
    """From its labels; a function without a workflow is its own stage."""
    raw = pod("first")
    raw["metadata"]["labels"] = labels
    pods = NodePods()
    pods.upsert(raw)
    assert (pods.granted["first"].workflow, pods.granted["first"].stage) == expected


def test_granted_pods(logged):
    """Ended, deleted and ungranted pods are not granted; an unreadable grant is logged."""
    pods = NodePods()
    pods.replace([pod("first"), pod("foreign", granted=False), pod("done", phase="Succeeded")])
    expected = GrantedPod("first", "a", "first", "GPU-1", 30, 4096)
    assert pods.granted == {"first": expected}

    pods.upsert(pod("second"))
    pods.upsert(pod("first", phase="Failed"))
    pods.upsert(pod("odd", memory="all of it"))
    assert list(pods.granted) == ["second"]
    assert "all of it" in logged[0]["problem"]

    pods.delete(pod("second"))
    pods.delete(pod("unknown"))
    assert pods.granted == {}


def test_pods_of_a_pool(tmp_path):
    """A holder has a request and no process, and a member is a client like any other."""
    holder = pod("holder")
    grant = Grant("GPU-1", 60, 0, 0, {"cpu": 4, "pool": "holder"})
    holder["metadata"]["annotations"] = grant_annotations(grant)
    member = pod("member")
    grant = Grant("GPU-1", 30, 4096, 1, {"cpu": 1, "pool": "member"})
    member["metadata"]["annotations"] = grant_annotations(grant)
    pods = NodePods()
    pods.replace([holder, member])
    assert [(p.name, p.is_member) for p in pods.granted.values()] == [("member", True)]
    write_grants(tmp_path / "grants", pods.granted, clock=lambda: 1.0)


def test_requests_of_pods():
    """The request counts, not the grant; it has the GPU of the grant, if any."""
    pods = NodePods()
    pods.upsert(pod("early"))
    assert not pods.is_complete
    pods.replace([pod("first"), pod("plain", granted=False), pod("none", requested=None)])
    assert pods.is_complete
    assert set(pods.requests()) == {PodRequest("GPU-1", 42), PodRequest("", 42)}

    pods.upsert(pod("odd", memory="all of it", requested="7"))
    pods.upsert(pod("plain", granted=False, phase="Failed"))
    pods.delete(pod("first"))
    assert pods.requests() == (PodRequest("", 7),)
