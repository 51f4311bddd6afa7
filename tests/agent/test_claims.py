"""GPUs that somebody else uses are not taken: device plugins, their pods, foreign processes."""

import pytest

from scheduler.agent.gpus.reading import Process
from scheduler.agent.pods.claimants import Claims, NodeUsers
from scheduler.agent.pods.granted_pod import GrantedPod
from scheduler.agent.pods.node_pods import NodePods
from scheduler.agent.pods.permits import read_permits, write_permits
from tests.agent.factories import device

OURS = GrantedPod("function", "default", "function", "GPU-0", 40, 1800)
PODS = {1: "uid-of-ours", 2: "uid-of-another", 3: None}


def node(**allocatable):
    """Create a Node with these allocatable resources; `_` stands for a slash."""
    resources = {name.replace("_", "/"): amount for name, amount in allocatable.items()}
    return {"metadata": {"name": "node"}, "status": {"allocatable": resources}}


def users(*whole_gpu_pods, granted=None, **allocatable):
    """Create the users of a node."""
    return NodeUsers(node(**allocatable), granted or {}, whole_gpu_pods)


@pytest.fixture
def permits(tmp_path):
    """Return the path of the file of permits."""
    return tmp_path / "permits.json"


@pytest.fixture
def claims(permits):
    """Create claims of a node with no taken GPU."""
    return Claims(permits, uid_of=PODS.get)


def test_an_unused_gpu_is_taken(claims, permits):
    """Nothing is permitted before node and pods are known."""
    claims.update([device(0)], None)
    assert "not known yet" in claims.of("GPU-0")
    assert read_permits(permits) is None
    claims.update([device(0)], users())
    assert claims.of("GPU-0") == ""
    assert read_permits(permits) == {"GPU-0"}


@pytest.mark.parametrize(
    "resource", ["nvidia.com_gpu", "nvidia.com_gpu.shared", "nvidia.com_mig-1g.5gb"]
)
def test_no_gpu_is_taken_while_a_device_plugin_offers_some(claims, permits, resource):
    """The claim names resource and amount; without the plugin the amount is 0, and it ends."""
    claims.update([device(0), device(1)], users(**{resource: "2"}))
    assert f"{resource.replace('_', '/')}: 2" in claims.of("GPU-1")
    assert read_permits(permits) == frozenset()
    claims.update([device(0), device(1)], users(**{resource: "0"}))
    assert claims.of("GPU-1") == ""
    assert read_permits(permits) == {"GPU-0", "GPU-1"}


def test_no_gpu_is_taken_while_a_pod_holds_a_whole_one(claims, permits):
    """The device plugin may be gone while its pods still run; they may be idle on the GPU."""
    claims.update([device(0)], users("ml/training"))
    assert "ml/training" in claims.of("GPU-0")
    assert read_permits(permits) == frozenset()


@pytest.mark.parametrize(("pid", "owner"), [(2, "uid-of-another"), (3, "no pod")])
def test_a_gpu_with_a_foreign_process_is_not_taken(claims, permits, pid, owner):
    """The claim names the process; other GPUs of the node are taken."""
    claims.update([device(0, processes=(Process(pid),)), device(1)], users())
    assert f"process {pid} of" in claims.of("GPU-0")
    assert owner in claims.of("GPU-0")
    assert read_permits(permits) == {"GPU-1"}


def test_processes_on_a_taken_gpu_claim_nothing(claims, permits):
    """They are its MPS server and its clients: the compute mode admits no other."""
    claims.update([device(0)], users())
    claims.update([device(0, processes=(Process(3), Process(1)))], users())
    assert claims.of("GPU-0") == ""
    successor = Claims(permits, uid_of=PODS.get)  # the agent's container was replaced
    successor.update([device(0, processes=(Process(3),))], users())
    assert successor.of("GPU-0") == ""


def test_processes_of_granted_pods_do_not_prevent_taking(claims, permits):
    """The agent's pod was replaced; the functions still run and have their grants."""
    granted = {"uid-of-ours": OURS}
    claims.update([device(0, processes=(Process(1),))], users(granted=granted))
    assert read_permits(permits) == {"GPU-0"}


def test_a_gpu_with_grants_stays_taken_when_a_device_plugin_comes(claims, permits):
    """Its daemon serves running pods; no other is placed there. A GPU without grants is let go."""
    claims.update([device(0), device(1)], users())
    claims.update(
        [device(0), device(1)], users(granted={"uid-of-ours": OURS}, **{"nvidia.com_gpu": "2"})
    )
    assert claims.of("GPU-0")
    assert claims.of("GPU-1")
    assert read_permits(permits) == {"GPU-0"}


def test_without_a_file_processes_are_not_looked_at():
    """They may be those of the MPS server, which then starts by itself."""
    claims = Claims(None, uid_of=PODS.get)
    claims.update([device(0, processes=(Process(3),))], users())
    assert claims.of("GPU-0") == ""
    claims.update([device(0)], users(**{"nvidia.com_gpu": "1"}))
    assert claims.of("GPU-0")


def test_a_permit_that_cannot_be_written_is_not_given(tmp_path, permits):
    """It is written at the next occasion."""
    claims = Claims(tmp_path / "absent" / "permits.json", uid_of=PODS.get)
    claims.update([device(0)], users())
    (tmp_path / "absent").mkdir()
    claims.update([device(0)], users())
    assert read_permits(tmp_path / "absent" / "permits.json") == {"GPU-0"}


@pytest.mark.parametrize("content", ["", "{", "{}", "[1]", "null"])
def test_an_invalid_file_decides_nothing(permits, content):
    """A reader goes on as before."""
    permits.write_text(content)
    assert read_permits(permits) is None
    write_permits(permits, ["GPU-1", "GPU-0"])
    assert read_permits(permits) == {"GPU-0", "GPU-1"}


def test_pods_that_request_whole_gpus_are_known_until_they_end():
    """Init containers count too; a share of ours is no whole GPU."""
    pods = NodePods()

    def pod(name, phase="Running", part="containers", **requests):
        resources = {key.replace("_", "/"): value for key, value in requests.items()}
        return {
            "metadata": {"uid": name, "name": name, "namespace": "ml"},
            "spec": {part: [{"name": "main", "resources": {"requests": resources}}]},
            "status": {"phase": phase},
        }

    pods.replace(
        [
            pod("whole", **{"nvidia.com_gpu": "1"}),
            pod("first", part="initContainers", **{"nvidia.com_mig-1g.5gb": "1"}),
            pod("share", **{"esg-scheduler.io_gpu-percent": "40"}),
            pod("ended", phase="Succeeded", **{"nvidia.com_gpu": "1"}),
        ]
    )
    assert sorted(pods.whole_gpu.values()) == ["ml/first", "ml/whole"]
    pods.upsert(pod("whole", phase="Failed", **{"nvidia.com_gpu": "1"}))
    pods.delete(pod("first"))
    assert not pods.whole_gpu
