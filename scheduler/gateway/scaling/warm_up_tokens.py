"""First batches of pooled pods, of which the dispatcher does not know: they take tokens, too."""

import asyncio
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from scheduler.dispatch.slices import Slice, SliceKey
from scheduler.gateway.discovery.server_pods import ServerPod
from scheduler.gateway.model_server import GuardedServer, ModelServer
from scheduler.gateway.serving.runtime import Runtime

_POLL_S = 0.002


class WarmUpTokens:
    """Tokens of slices for batches that the dispatcher does not begin.

    Of a slice, the first of them takes its tokens at once, more than there are if need be. So the
    dispatcher begins no batch that would take their place, and this one begins when the runs before
    it leave enough. While it runs, others begin as far as tokens are free.

    Args:
        runtime: runtime with the slices.
    """

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._turns: defaultdict[SliceKey, asyncio.Lock] = defaultdict(asyncio.Lock)
        self._begun: Counter[SliceKey] = Counter()  # with those that have failed and may go on

    def client(self, pod: ServerPod, server: ModelServer, run_ms: float) -> ModelServer:
        """Return a client of a pod whose batches, of an expected time, wait for tokens."""
        if not pod.pooled:
            return server
        return GuardedServer(server, lambda: self._batch(pod, run_ms))

    @asynccontextmanager
    async def _batch(self, pod: ServerPod, run_ms: float) -> AsyncIterator[None]:
        key = pod.function[0], pod.gpu
        async with self._turns[key]:
            await _until(lambda: self._may_take(key, pod))
            self._take(key, pod, run_ms)
            try:
                await _until(lambda: self._fits(key))
            except BaseException:
                self._give_back(key, pod.name)
                raise
        try:
            yield
        except BaseException:
            # The batch may go on without its connection.
            loop = asyncio.get_running_loop()
            loop.call_later(run_ms / 1000, self._give_back, key, pod.name)
            raise
        self._give_back(key, pod.name)

    def _may_take(self, key: SliceKey, pod: ServerPod) -> bool:
        """Return true if a batch is the first of its slice, or has room beside the others."""
        gpu_slice = self._open_slice(key)
        if gpu_slice is None:
            return False
        return not self._begun[key] or gpu_slice.admits(pod.name, pod.gpu_percent, pod.cpu)

    def _open_slice(self, key: SliceKey) -> Slice | None:
        gpu_slice = self._runtime.dispatcher.slice_of(*key)
        return gpu_slice if gpu_slice is not None and gpu_slice.is_open else None

    def _take(self, key: SliceKey, pod: ServerPod, run_ms: float) -> None:
        self._begun[key] += 1
        self._runtime.take_tokens(key, pod.name, pod.gpu_percent, pod.cpu, run_ms)

    def _fits(self, key: SliceKey) -> bool:
        if (gpu_slice := self._open_slice(key)) is None:
            return False
        return gpu_slice.used_percent <= gpu_slice.percent and gpu_slice.used_cpus <= gpu_slice.cpus

    def _give_back(self, key: SliceKey, name: str) -> None:
        self._begun[key] -= 1
        if not self._begun[key]:
            del self._begun[key]
        self._runtime.give_tokens_back(key, name)


async def _until(condition: Callable[[], bool]) -> None:
    while not condition():  # noqa: ASYNC110 - the dispatcher reports no ends of runs
        await asyncio.sleep(_POLL_S)
