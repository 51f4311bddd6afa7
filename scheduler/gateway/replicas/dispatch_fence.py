"""Clients of model servers that send nothing without the ownership of their pod's shard."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from math import inf

from scheduler.gateway.discovery.server_pods import ServerPod
from scheduler.gateway.model_server import (
    GuardedServer,
    ModelServer,
    ModelServerError,
    NotOwnerError,
)
from scheduler.gateway.replicas.shards import SHARDS, shard_of
from scheduler.gateway.serving.connected_pods import ConnectServer

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
        namespace = pod.function[0]
        shard = shard_of(namespace)
        return GuardedServer(self._connect(pod), lambda: self._batch(namespace, shard))

    async def until_idle(self, shard: int) -> None:
        """Wait until no batch is on the pods of a shard."""
        while self._runs[shard]:  # one may begin before this task goes on
            await self._idle[shard].wait()

    def may_run(self, shard: int) -> bool:
        """Return true if a pod may still execute a batch whose connection was closed."""
        return self._loop.time() < self._cut_s[shard] + CUT_S

    @asynccontextmanager
    async def _batch(self, namespace: str, shard: int) -> AsyncIterator[None]:
        """Count a batch of a namespace while it is under way."""
        if not self.owns(namespace):
            raise NotOwnerError
        self._runs[shard] += 1
        self._idle[shard].clear()
        try:
            yield
        except (asyncio.CancelledError, ModelServerError):  # it has ended without an answer
            self._cut_s[shard] = self._loop.time()
            raise
        finally:
            self._runs[shard] -= 1
            if not self._runs[shard]:
                self._idle[shard].set()
