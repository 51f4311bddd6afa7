"""A played kube-scheduler: its loop over pods that wait for a node, with an extender.

As in kube-scheduler, one pod at a time goes through filter and prioritize. A pod without a feasible
node waits until capacity is freed, at most a second. Unlike there, the bind is awaited too: at the
rate at which pods of model servers are created, nothing waits for it.
"""

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from workbench.cluster.api_requests import NODES, PODS
from workbench.cluster.extender import ExtenderClient
from workbench.cluster.object_store import Key, ObjectStore, Raw

_RETRY_S = 1.0
_NAME = "esg-scheduler"


class PlayedScheduler:
    """Places the pods of a store that name this scheduler."""

    def __init__(self, store: ObjectStore, extender: ExtenderClient) -> None:
        self._store = store
        self._extender = extender
        self._waiting: dict[Key, None] = {}  # a set in order
        self._parked: set[Key] = set()
        self._wake = asyncio.Event()

    async def run(self) -> None:
        """Place pods until cancelled.

        Raises:
            ExtenderError: the extender fails.
        """
        async with asyncio.TaskGroup() as group:
            group.create_task(self._follow())
            while True:
                await self._wait()
                key = next(iter(self._waiting))
                del self._waiting[key]
                pod = self._store.collection(PODS).objects.get(key)
                if pod is not None and _waits(pod) and not await self._place(pod):
                    self._parked.add(key)

    async def _wait(self) -> None:
        while not self._waiting:
            self._wake.clear()
            with suppress(TimeoutError):
                async with asyncio.timeout(_RETRY_S):
                    await self._wake.wait()
                continue
            self._unpark()

    async def _follow(self) -> None:
        with self._store.watching(PODS, since=0) as changes:
            async for change in changes:
                if change.after is None:
                    self._unpark()
                elif _waits(change.after):
                    metadata = change.after["metadata"]
                    key = metadata["namespace"], metadata["name"]
                    if key not in self._parked:  # its own patch of the condition, most likely
                        self._waiting[key] = None
                        self._wake.set()

    def _unpark(self) -> None:
        self._waiting |= dict.fromkeys(self._parked)
        self._parked.clear()
        self._wake.set()

    async def _place(self, pod: Raw) -> bool:
        nodes = [node["metadata"]["name"] for node in self._store.list(NODES)]
        feasible = await self._extender.filter(pod, nodes)
        if not feasible:
            self._report_unschedulable(pod, f"0/{len(nodes)} nodes are feasible")
            return False
        node = feasible[0] if len(feasible) == 1 else await self._extender.best(pod, feasible)
        return not await self._extender.bind(pod, node)

    def _report_unschedulable(self, pod: Raw, message: str) -> None:
        metadata = pod["metadata"]
        condition = {
            "type": "PodScheduled",
            "status": "False",
            "reason": "Unschedulable",
            "message": message,
        }
        key = metadata["namespace"], metadata["name"]
        if key in self._store.collection(PODS).objects:
            self._parked.add(key)
            self._store.patch(PODS, key, {"status": {"conditions": [condition]}})


def _waits(pod: Mapping[str, Any]) -> bool:
    spec, metadata = pod["spec"], pod["metadata"]
    return (
        spec.get("schedulerName") == _NAME
        and not spec.get("nodeName")
        and not metadata.get("deletionTimestamp")
    )
