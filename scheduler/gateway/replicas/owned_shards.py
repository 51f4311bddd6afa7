"""Calls of the shards that this replica owns: served here, or moved when a shard is lost."""

import asyncio
from asyncio import Future
from typing import Any

import structlog

from scheduler.gateway.calls import Backend, CallMovedError, InferAnswer, InferCall
from scheduler.gateway.replicas.dispatch_fence import DispatchFence
from scheduler.gateway.replicas.shard_gate import ShardGate
from scheduler.gateway.replicas.shards import SHARDS, shard_of

log = structlog.get_logger(__name__)
_HAND_OVER_S = 2.0  # for batches in progress; the lease is renewed meanwhile


class OwnedShards:
    """Backend of calls that another replica forwards: it answers for owned shards only.

    Args:
        runtime: runtime that answers the calls.
        gate: gate of the shards' documents and pods.
        fence: fence of the shards' batches.
    """

    def __init__(self, runtime: Backend, gate: ShardGate, fence: DispatchFence) -> None:
        self._runtime = runtime
        self._gate = gate
        self._fence = fence
        self._served: set[int] = set()
        self._calls: list[set[Future[InferAnswer]]] = [set() for _ in range(SHARDS)]
        self.now_ms = runtime.now_ms

    # -- ownership -----------------------------------------------------------------------------

    def serves(self, namespace: str) -> bool:
        """Return true if calls of a namespace are answered here."""
        return shard_of(namespace) in self._served

    def acquired(self, shard: int, *, hold: bool) -> None:
        """Serve a shard; ``hold``: runs of a former owner can be on its pods."""
        log.info("serving a shard", shard=shard, hold=hold)
        self._gate.open(shard, hold=hold)
        self._served.add(shard)

    def lost(self, shard: int) -> None:
        """Stop at once: another replica may serve the shard."""
        log.warning("lost a shard: its lease was not renewed in time", shard=shard)
        self._end(shard)

    async def hand_over(self, shard: int) -> bool:
        """End the batches in progress and move all calls; return true if no pod has one."""
        self._served.discard(shard)
        self._gate.pause(shard)
        try:
            async with asyncio.timeout(_HAND_OVER_S):
                await self._fence.until_idle(shard)
        except TimeoutError:
            is_clean = False
        else:
            is_clean = not (self._fence.may_run(shard) or self._gate.is_held(shard))
        log.info("handing a shard over", shard=shard, clean=is_clean)
        self._end(shard)
        return is_clean

    def _end(self, shard: int) -> None:
        self._served.discard(shard)
        for answer in list(self._calls[shard]):
            if not answer.done():
                answer.set_exception(CallMovedError())
        self._gate.close(shard)

    # -- calls ---------------------------------------------------------------------------------

    def check(self, namespace: str, workflow: str, stage: str | None, body_bytes: int) -> None:
        """Check a call before its body is read.

        Raises:
            CallError: another replica serves it, or as `scheduler.gateway.calls.Backend`.
        """
        self._check_served(namespace)
        if not self._gate.is_held(shard_of(namespace)):  # else its pods will be ready soon
            self._runtime.check(namespace, workflow, stage, body_bytes)

    def submit(self, call: InferCall) -> "Future[InferAnswer]":
        """Start a call."""
        shard = shard_of(call.namespace)
        if shard not in self._served:
            refused: Future[InferAnswer] = asyncio.get_running_loop().create_future()
            refused.set_exception(CallMovedError())
            return refused
        answer = self._runtime.submit(call)
        self._calls[shard].add(answer)
        answer.add_done_callback(self._calls[shard].discard)
        return answer

    def ready(
        self, namespace: str | None = None, workflow: str | None = None, stage: str | None = None
    ) -> bool:
        """Return true if calls are answered.

        Raises:
            CallError: another replica serves it, or it is not known.
        """
        if namespace is not None and workflow is not None:
            self._check_served(namespace)
        return self._runtime.ready(namespace, workflow, stage)

    async def metadata(self, namespace: str, workflow: str, stage: str | None) -> dict[str, Any]:
        """Return the metadata of a workflow.

        Raises:
            CallError: another replica serves it, or it has no answer.
        """
        self._check_served(namespace)
        return await self._runtime.metadata(namespace, workflow, stage)

    def _check_served(self, namespace: str) -> None:
        if not self.serves(namespace):
            raise CallMovedError
