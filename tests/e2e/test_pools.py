"""Pools on a real control plane: holders of slices, members in them, and reserved pods beside."""

import json
from collections import Counter
from typing import Any

from tests.e2e.documents import configuration, profile
from tests.e2e.harness import PODS, Harness
from tests.testbed.api import Json, wait_until
from tests.testbed.pods import PREFIX

SHARE = f"{PREFIX}/gpu-percent"
DOCUMENTS = [
    profile("large", configuration(60)),
    profile("part", configuration(40), configuration(30)),
]
GRACE_S = 15  # in which a busy control plane refuses two pods


def hold(harness: Harness, name: str, percent: int, **options: Any) -> Json:
    """Create the holder of a slice with two vCPUs."""
    return harness.create(
        name,
        labels={f"{PREFIX}/pool": "holder"},
        resources={"cpu": "2", SHARE: str(percent)},
        **options,
    )


def reserve(harness: Harness, name: str) -> Json:
    """Create a pod that has 60 % all the time."""
    return harness.create(name, function="large", resources={"cpu": "1", SHARE: "60"})


def join(harness: Harness, name: str, percent: int = 30) -> Json:
    """Create a member, as the webhook mutates one: it names the percent and requests none."""
    return harness.create(
        name,
        function="part",
        labels={f"{PREFIX}/pool": "member"},
        resources={"cpu": "0", SHARE: "0"},
        annotations={
            "configuration": json.dumps({"batch": 1, "cpu": 1, "gpuPercent": percent}),
        },
    )


def test_members_are_bound_evenly_into_the_slices_of_their_namespace(esg):
    """kube-scheduler calls the extender for pods that name the managed resource with 0."""
    harness = esg(nodes=3, gpus=1, documents=DOCUMENTS, managed_resources=True)
    members = [join(harness, "m0")]
    harness.wait_refused("m0", "no slice of the pod's pool on this node")
    hold(harness, "h0", 40)
    hold(harness, "h1", 100)
    harness.wait_bound("h0", "h1")
    gpus = {harness.grant_of(name)["gpu"] for name in ("h0", "h1")}

    harness.wait_bound("m0")
    for number in range(1, 6):  # one by one: a filter does not see a Binding that is under way
        members.append(join(harness, f"m{number}"))
        harness.wait_bound(f"m{number}")

    grants = [harness.grant_of(member["metadata"]["name"]) for member in members]
    assert Counter(grant["gpu"] for grant in grants) == dict.fromkeys(gpus, 3)
    assert {grant["gpu-percent"] for grant in grants} == {"30"}
    assert "gpu-memory" not in harness.grant_of("h0")
    reservations = harness.wait_agreement()
    assert sum(percent for _, percent, _ in reservations.values()) == 140
    assert harness.metric_count("esg_gpu_slice_ratio") == 1.4
    assert harness.metric_count("esg_gpu_slice_members") == 6


def test_a_reserved_pod_is_beside_a_slice_and_never_above_what_it_leaves(esg):
    """60 % beside a slice of 40; the next one waits, and a larger member is refused, in numbers."""
    harness = esg(nodes=1, gpus=1, documents=DOCUMENTS, managed_resources=True)
    hold(harness, "holder", 30)
    harness.wait_bound("holder")
    join(harness, "too-large", percent=40)
    harness.wait_refused(
        "too-large", "the slice has 30 percent and 2 vCPU, 40 percent and 1 vCPU asked"
    )
    harness.api.delete(f"{PODS}/holder")
    hold(harness, "larger", 40)
    reserve(harness, "reserved")
    reserve(harness, "second")
    harness.wait_bound("larger", "too-large")
    wait_until(
        lambda: [n for n in ("reserved", "second") if harness.node_of(n)],
        what="one of the reserved pods is bound",
    )
    [waiting] = [name for name in ("reserved", "second") if not harness.node_of(name)]
    harness.wait_refused(waiting, f"Insufficient {SHARE}")
    assert harness.gpus(harness.node_of("larger"))[0]["free_percent"] == 0
    assert harness.metric_count("esg_gpu_overcommitted") == 0


def test_a_slice_that_is_deleted_by_force_takes_nobody_and_frees_nothing_yet(esg):
    """Members are refused at once; the share is given away when containers must have ended."""
    harness = esg(nodes=1, gpus=1, documents=DOCUMENTS, managed_resources=True)
    hold(harness, "holder", 100, grace_s=GRACE_S)
    harness.wait_bound("holder")
    join(harness, "member")
    harness.wait_bound("member")
    wait_until(lambda: harness.pod("holder")["status"]["phase"] == "Running", what="holder runs")
    harness.api.delete(f"{PODS}/holder", grace_s=0)
    join(harness, "late")
    harness.wait_refused("late", "the slice ends")
    reserve(harness, "reserved")
    harness.wait_refused("reserved", "GPU 0: 0 percent free")
    assert "default/holder" in harness.snapshot_reservations()

    harness.wait_bound("reserved")

    assert harness.wait_agreement().keys() == {"default/member", "default/reserved"}
    harness.wait_refused("late", "no slice of the pod's pool on this node")


def test_a_holder_that_terminates_takes_no_member_and_keeps_its_share(esg):
    """It has the share until its kubelet has ended it."""
    harness = esg(nodes=1, gpus=1, documents=DOCUMENTS, managed_resources=True)
    hold(harness, "holder", 100, annotations={"mock-stop": "30s"})
    harness.wait_bound("holder")
    wait_until(lambda: harness.pod("holder")["status"]["phase"] == "Running", what="holder runs")
    harness.api.delete(f"{PODS}/holder")
    join(harness, "late")
    harness.wait_refused("late", "the slice ends")
    reserve(harness, "reserved")
    harness.wait_refused("reserved", f"Insufficient {SHARE}")
    assert harness.api.exists(f"{PODS}/holder")

    harness.wait_bound("reserved")

    assert harness.wait_agreement().keys() == {"default/reserved"}
