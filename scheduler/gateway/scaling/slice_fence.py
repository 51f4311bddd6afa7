"""Clients of pooled pods' model servers that send no batch after the end of its slice.

A holder that is deleted by force keeps its slice in the ledger for its grace period only, and the
watch may show the deletion late, or not at all while the API server cannot be reached. So each
slice has an end, which an answer of the API server moves. The dispatcher's slices are closed at it
within a second; the fence checks it before each batch, for a process may have been stopped since it
decided.
"""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from math import inf

from scheduler.dispatch.slices import SliceKey
from scheduler.gateway.discovery.server_pods import ServerPod
from scheduler.gateway.model_server import GuardedServer, ModelServer, ModelServerError
from scheduler.gateway.serving.connected_pods import ConnectServer


class SliceFence:
    """Ends of slices, and the guarded connections to the pods in them.

    Args:
        connect: opens the client of a pod's model server.
        clock: seconds that go on while the machine is suspended.
    """

    def __init__(self, connect: ConnectServer, clock: Callable[[], float]) -> None:
        self._connect = connect
        self._ends_s: dict[SliceKey, float] = {}
        self.clock_s = clock

    def connect(self, pod: ServerPod) -> ModelServer:
        """Open the client of a pod, guarded if it is pooled."""
        return self.guard(pod, self._connect(pod))

    def guard(self, pod: ServerPod, server: ModelServer) -> ModelServer:
        """Guard the client of a pod, if it is pooled."""
        key = pod.function[0], pod.gpu
        return GuardedServer(server, lambda: self._batch(key)) if pod.pooled else server

    def set_end(self, key: SliceKey, end_s: float) -> None:
        """Let batches begin in a slice until a time; -inf: none."""
        if end_s == -inf:
            self._ends_s.pop(key, None)
        else:
            self._ends_s[key] = end_s

    def allows(self, key: SliceKey) -> bool:
        """Return true if a batch may begin in a slice now."""
        return self.clock_s() < self._ends_s.get(key, -inf)

    @asynccontextmanager
    async def _batch(self, key: SliceKey) -> AsyncIterator[None]:
        if not self.allows(key):
            raise ModelServerError(
                503, "the pod's slice of a GPU has ended; send the request again", retryable=True
            )
        yield
