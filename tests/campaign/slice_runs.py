"""Simulated dispatchers of all pools: they run batches of members in slices, as many as fit.

Each sees each change late, by less than its fence: it begins no batch in a slice whose holder it
has not heard of for longer. So a batch may run in a slice for `LAG_MAX_S` and `RUN_S` after the
holder was deleted, evicted or gone, and nobody else may have its share until then.
"""

import asyncio
from contextvars import copy_context
from functools import partial
from zlib import crc32

from tests.campaign.audit import GpuShares, Share, pool_of, share_of
from tests.campaign.incidents import FUNCTIONS
from workbench.cluster.api_requests import PODS
from workbench.cluster.object_store import ObjectChange, Raw

RUN_S = 8.0
LAG_MAX_S = 20.0  # with a run below the grace period of a holder, 30 s
_POOL = "esg-scheduler.io/pool"
_GROUP = "esg-scheduler.io/gateway-group"


class SliceRuns:
    """Batches that run, as shares beside those of the containers.

    Args:
        running: shares of all containers; batches are added to them.
    """

    def __init__(self, running: GpuShares) -> None:
        self._running = running
        self._loop = asyncio.get_running_loop()
        # On a machine of its own: the one whose write it sees may be paused.
        self._later = partial(self._loop.call_later, context=copy_context())
        self._holders: dict[str, Share] = {}  # open ones, by UID
        self._members: dict[str, Share] = {}
        self._batches: dict[str, Share] = {}  # by UID of their member
        self._slices: dict[tuple[str, str, str], list[Raw]] = {}  # holders that are there

    def observe(self, path: str, change: ObjectChange) -> None:
        """Take in a change of the server, some time later."""
        pod = change.after or change.before
        if path != PODS or pod is None or _POOL not in (pod["metadata"].get("labels") or {}):
            return
        uid = pod["metadata"]["uid"]
        self._list_slices(uid, change.after)
        # The same for all changes of a pod: a watch keeps their order.
        lag_s = crc32(uid.encode()) % 1000 / 1000 * LAG_MAX_S
        self._later(lag_s, self._see, uid, change.after)

    def allows(self, pod: Raw, node: str, gpu: str) -> bool:
        """Tell if a pod that waits could be on a GPU, as far as pools forbid it."""
        labels = pod["metadata"]["labels"]
        slices = self._slices.get((node, gpu, labels.get(_GROUP, "")), [])
        if labels.get(_POOL) == "holder":
            return not slices
        if labels.get(_POOL) != "member":
            return True
        percent = FUNCTIONS[labels["esg-scheduler.io/function"]][0]
        return any(
            not holder["metadata"].get("deletionTimestamp") and pool_of(holder)[1] >= percent
            for holder in slices
        )

    def _list_slices(self, uid: str, pod: Raw | None) -> None:
        for holders in self._slices.values():
            holders[:] = [holder for holder in holders if holder["metadata"]["uid"] != uid]
        if pod is not None and (share := share_of(pod)) and pool_of(pod)[0] == "holder":
            self._slices.setdefault(share.slice_key, []).append(pod)

    def _see(self, uid: str, pod: Raw | None) -> None:
        self._holders.pop(uid, None)
        self._members.pop(uid, None)
        if pod is None or (share := share_of(pod)) is None:
            return
        role, percent = pool_of(pod)
        if pod["metadata"].get("deletionTimestamp"):
            return
        if role == "holder":
            self._holders[uid] = share
        elif role == "member":
            self._members[uid] = share._replace(percent=percent)
        self._begin()

    def _begin(self) -> None:
        """Begin every batch that fits in the slice of its GPU."""
        for uid, member in self._members.items():
            if uid in self._batches:
                continue
            place = member.slice_key
            percent = [h.percent for h in self._holders.values() if h.slice_key == place]
            used = sum(b.percent for b in self._batches.values() if b.slice_key == place)
            if percent and used + member.percent <= min(percent):
                batch = member._replace(
                    uid=f"batch of {uid}", name=f"batch of {member.name}", memory_mib=0
                )
                self._batches[uid] = batch
                self._running.set(batch.uid, batch)
                self._later(RUN_S, self._end, uid)

    def _end(self, uid: str) -> None:
        self._running.set(self._batches.pop(uid).uid, None)
        self._begin()
