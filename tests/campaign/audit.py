"""The sums of all grants on each GPU: of the server's own objects, and of running containers."""

import json
from collections import defaultdict
from typing import Any, NamedTuple

from workbench.cluster.api_requests import PODS
from workbench.cluster.object_store import ObjectChange

PERCENT_MAX = 100
SERVER_CONTEXT_MIB = 1024  # of the MPS server, on each GPU
_PREFIX = "esg-scheduler.io"


class Share(NamedTuple):
    """Grant of one bound pod: a member of a pool has no percent, a holder no memory.

    Attributes:
        group: group of gateways whose pool the pod was bound in; empty: none.
    """

    uid: str
    name: str
    node: str
    gpu: str
    percent: int
    memory_mib: int
    group: str = ""

    @property
    def slice_key(self) -> tuple[str, str, str]:
        """Node, GPU and group: a pool has one slice of a GPU."""
        return self.node, self.gpu, self.group


class GpuShares:
    """Shares by UUID of the GPU: under the name of another node, it is the same GPU.

    Attributes:
        shares: what each pod has on a GPU, by the pod's UID.
        violations: one text for each change that put more on a GPU than it has.
    """

    def __init__(self, memory_mib: int) -> None:
        self.memory_mib = memory_mib - SERVER_CONTEXT_MIB
        self.shares: dict[str, Share] = {}
        self.violations: list[str] = []
        self._on_gpu: defaultdict[str, dict[str, Share]] = defaultdict(dict)

    def set(self, uid: str, share: Share | None) -> None:
        """Set the share of a pod; None: it has none any more."""
        if self.shares.get(uid) == share:
            return
        if (removed := self.shares.pop(uid, None)) is not None:
            del self._on_gpu[removed.gpu][uid]
        if share is None:
            return
        self.shares[uid] = share
        on_gpu = self._on_gpu[share.gpu]
        on_gpu[uid] = share
        percent = sum(s.percent for s in on_gpu.values())
        memory_mib = sum(s.memory_mib for s in on_gpu.values())
        if percent > PERCENT_MAX or memory_mib > self.memory_mib:
            pods = ", ".join(f"{s.name} ({s.percent} %)" for s in on_gpu.values())
            self.violations.append(
                f"GPU {share.gpu} of {share.node} has {percent} % and {memory_mib:,} of "
                f"{self.memory_mib:,} MiB: {pods}"
            )

    def used(self, node: str, gpu: str) -> tuple[int, int]:
        """Return the sums of percent and MiB of a node's pods on a GPU."""
        shares = [s for s in self._on_gpu.get(gpu, {}).values() if s.node == node]
        return sum(s.percent for s in shares), sum(s.memory_mib for s in shares)

    def fits(self, node: str, gpu: str, percent: int, memory_mib: int) -> bool:
        """Return true if a share fits on a GPU beside what is there.

        Nothing fits while pods of another node have shares of the GPU.
        """
        if any(share.node != node for share in self._on_gpu.get(gpu, {}).values()):
            return False
        used_percent, used_mib = self.used(node, gpu)
        return used_percent + percent <= PERCENT_MAX and used_mib + memory_mib <= self.memory_mib


class GpuAudit(GpuShares):
    """Shares of bound pods whose containers have not ended, after every change at the server.

    Attributes:
        bound: UIDs of all pods that were ever bound.
        holders: UIDs of those that held a slice.
    """

    def __init__(self, memory_mib: int) -> None:
        super().__init__(memory_mib)
        self.bound: set[str] = set()
        self.holders: set[str] = set()
        self._slice_percent: dict[tuple[str, str, str], int] = {}  # the largest ever

    def observe(self, path: str, change: ObjectChange) -> None:
        """Take in a change of the server."""
        if path != PODS:
            return
        share = None if change.after is None else share_of(change.after)
        if share is not None:
            self._observe_slice(share, pool_of(change.after))
            self.bound.add(share.uid)
        self.set((change.before or change.after)["metadata"]["uid"], share)

    def _observe_slice(self, share: Share, pool: tuple[str, int]) -> None:
        """Report a member that is bound where no slice ever had its percent."""
        role, percent = pool
        slice_percent = self._slice_percent.get(share.slice_key, 0)
        if role == "holder":
            self.holders.add(share.uid)
            self._slice_percent[share.slice_key] = max(slice_percent, share.percent)
        elif role == "member" and share.uid not in self.bound and percent > slice_percent:
            self.violations.append(
                f"member {share.name} ({percent} %) is on GPU {share.gpu} of {share.node}, where "
                f"no slice of its pool had more than {slice_percent} %"
            )


def pool_of(pod: dict[str, Any]) -> tuple[str, int]:
    """Return the role in a pool that a bound pod was granted, and the percent of its grant."""
    annotations = pod["metadata"]["annotations"]
    return _plan(pod).get("pool", ""), int(annotations[f"{_PREFIX}/gpu-percent"])


def _plan(pod: dict[str, Any]) -> dict[str, Any]:
    plan: dict[str, Any] = json.loads(pod["metadata"]["annotations"].get(f"{_PREFIX}/plan") or "{}")
    return plan


def share_of(pod: dict[str, Any]) -> Share | None:
    """Read the share that a pod of the server takes; None where it takes none."""
    node = pod["spec"].get("nodeName")
    annotations = pod["metadata"].get("annotations") or {}
    gpu = annotations.get(f"{_PREFIX}/gpu")
    if not node or not gpu or (pod.get("status") or {}).get("phase") in ("Succeeded", "Failed"):
        return None
    metadata = pod["metadata"]
    memory = annotations.get(f"{_PREFIX}/gpu-memory", "0=0M")
    role, percent = pool_of(pod)
    return Share(
        metadata["uid"],
        metadata["name"],
        node,
        gpu,
        0 if role == "member" else percent,
        int(memory.removeprefix("0=").removesuffix("M")),
        _plan(pod).get("group", ""),
    )
