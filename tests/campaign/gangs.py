"""Gangs of a run: pods that kube-scheduler places together, all or at least so many."""

from collections.abc import Iterator
from random import Random
from typing import Any

from tests.campaign.audit import GpuAudit
from workbench.cluster.object_store import Raw

_MINIMUM = "test/min-count"
_RACKS = "test/racks"  # a gang with it must be on one node


def has_gangs(seed: int) -> bool:
    """Tell if a run has gangs."""
    return seed % 10 == 8


def draw_gangs(
    random: Random, functions: list[str], duration_s: float
) -> Iterator[tuple[float, str, dict[str, Any]]]:
    """Draw gangs, attempts that kube-scheduler reverts, and ends of members."""
    for number in range(random.randint(1, 4)):
        created_s = round(1.0 + duration_s * random.random(), 3)
        size = random.randint(2, 5)
        details = {
            "gang": f"g{number}",
            "function": random.choice(functions),
            "size": size,
            "minimum": random.choice((size, size, size, max(1, size - 1))),
            "has_racks": random.random() < 0.3,
        }
        yield created_s, "gang", details
        for _ in range(random.choice((0, 1, 2))):
            at_s = round(created_s + random.choice((0.05, 3.0, 30.0)) * random.random(), 3)
            kind = random.choice(("revert", "finish", "delete", "force_delete"))
            pod = {"pod": f"g{number}-{random.randrange(size)}"}
            yield at_s, kind, {"times": random.randint(1, 3)} if kind == "revert" else pod


def as_member(pod: Raw, gang: str, minimum: int, *, has_racks: bool) -> Raw:
    """Return the pod as a member of a gang that needs so many members."""
    annotations = {_MINIMUM: str(minimum), **({_RACKS: ""} if has_racks else {})}
    return {
        **pod,
        "metadata": {**pod["metadata"], "annotations": annotations},
        "spec": {**pod["spec"], "schedulingGroup": {"podGroupName": gang}},
    }


def gang_of(pod: Raw) -> str:
    """Return the name of a pod's gang; empty for none."""
    name: str = pod["spec"].get("schedulingGroup", {}).get("podGroupName", "")
    return name


def minimum_of(pod: Raw) -> int:
    """Return the number of members that the gang needs."""
    return int(pod["metadata"]["annotations"][_MINIMUM])


def domains_of(pod: Raw, nodes: list[str]) -> list[list[str]]:
    """Return the sets of nodes on which the gang may be: one pass for each."""
    has_racks = _RACKS in pod["metadata"]["annotations"]
    return [[node] for node in nodes] if has_racks else [nodes]


def members_that_fit(
    demand: tuple[int, int], audit: GpuAudit, gpus: list[tuple[str, str]], missing: int
) -> int:
    """Count the pods, ``missing`` at most, that fit on these GPUs, which are nodes and UUIDs.

    ``demand`` is percent and MiB of each pod.
    """
    percent, memory_mib = demand
    total = 0
    for node, gpu in gpus:
        count = 1
        while total < missing and audit.fits(node, gpu, count * percent, count * memory_mib):
            count += 1
            total += 1
    return total
