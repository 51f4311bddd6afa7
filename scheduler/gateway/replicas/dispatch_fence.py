"""Clients of model servers that send nothing without the ownership of their pod's shard."""

import asyncio
from collections.abc import Callable, Sequence
from math import inf

from scheduler.gateway.calls import Headers
from scheduler.gateway.discovery.server_pods import ServerPod
from scheduler.gateway.model_server import ModelServer, ModelServerError, NotOwnerError
from scheduler.gateway.replicas.shards import SHARDS, shard_of
from scheduler.gateway.serving.connected_pods import ConnectServer
from scheduler.oip.batch import RowRange
from scheduler.oip.tensor import Tensor

CUT_S = 60.0  # a batch that takes longer has failed


class DispatchFence:
    """Guards the connections to all pods: a process that was paused may have lost its lease.

    Args:
        connect: opens the client of a pod's model server.
        owns: returns true if this replica may dispatch to a namespace now.
    """

    def __init__(self, connect: ConnectServer, owns: Callable[[str], bool]) -> None:
        self._connect = connect
        self.owns = owns
        self._runs = [0] * SHARDS
        self._idle = [asyncio.Event() for _ in range(SHARDS)]
        for event in self._idle:
            event.set()
        self._cut_s = [-inf] * SHARDS
        self._loop = asyncio.get_running_loop()

    def connect(self, pod: ServerPod) -> ModelServer:
        """Open the guarded client of a pod."""
        return _FencedServer(self, pod.function[0], self._connect(pod))

    async def until_idle(self, shard: int) -> None:
        """Wait until no batch is on the pods of a shard."""
        await self._idle[shard].wait()

    def may_run(self, shard: int) -> bool:
        """Return true if a pod may still execute a batch whose connection was closed."""
        return self._loop.time() < self._cut_s[shard] + CUT_S

    def run_cut(self, shard: int) -> None:
        """Note that a batch has ended without an answer."""
        self._cut_s[shard] = self._loop.time()

    def run_began(self, shard: int) -> None:
        """Count a batch."""
        self._runs[shard] += 1
        self._idle[shard].clear()

    def run_ended(self, shard: int) -> None:
        """Forget a batch."""
        self._runs[shard] -= 1
        if not self._runs[shard]:
            self._idle[shard].set()


class _FencedServer:
    def __init__(self, fence: DispatchFence, namespace: str, server: ModelServer) -> None:
        self._fence = fence
        self._namespace = namespace
        self._shard = shard_of(namespace)
        self._server = server
        self.binary = server.binary
        self.ready = server.ready
        self.metadata = server.metadata
        self.close_idle = server.close_idle
        self.close = server.close

    async def infer(
        self,
        model: str,
        ranges: Sequence[RowRange],
        *,
        timeout_ms: float | None,
        headers: Headers = (),
    ) -> tuple[Tensor, ...]:
        if not self._fence.owns(self._namespace):
            raise NotOwnerError
        self._fence.run_began(self._shard)
        try:
            return await self._server.infer(model, ranges, timeout_ms=timeout_ms, headers=headers)
        except (asyncio.CancelledError, ModelServerError):
            self._fence.run_cut(self._shard)
            raise
        finally:
            self._fence.run_ended(self._shard)
