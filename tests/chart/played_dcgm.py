"""DCGM's exporter, played: SM activity of the demo's GPUs, from the runs of its model servers.

A run keeps its pod's share of the GPU busy. That is all the demo knows of SMs: the figures show the
joins of the chart's rules, and say nothing about a GPU.
"""

import time
from collections import Counter, deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from aiohttp import web

from scheduler.model.names import ANNOTATION_GPU
from workbench.demo.cluster import DemoCluster

WINDOW_S = 10.0
"""The activity is the mean of this time: a run counts when it ends."""


class PlayedDcgm:
    """The exporter of all nodes.

    Args:
        cluster: the demo's cluster.
        clock: monotonic clock, s.
    """

    def __init__(
        self, cluster: DemoCluster, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._cluster = cluster
        self._clock = clock
        self._seen_s: dict[str, float] = {}  # by pod
        self._samples: deque[tuple[float, Counter[str]]] = deque()

    @asynccontextmanager
    async def serving(self, port: int) -> AsyncIterator[None]:
        """Answer scrapes while inside."""
        application = web.Application()
        application.router.add_get("/metrics", self._answer)
        runner = web.AppRunner(application)
        await runner.setup()
        try:
            await web.TCPSite(runner, "127.0.0.1", port).start()
            yield
        finally:
            await runner.cleanup()

    async def _answer(self, _request: web.Request) -> web.Response:
        lines = ["# TYPE DCGM_FI_PROF_SM_ACTIVE gauge"]
        for uuid, ratio in (await self.activity()).items():
            lines.append(f'DCGM_FI_PROF_SM_ACTIVE{{UUID="{uuid}"}} {ratio}')
        return web.Response(text="\n".join([*lines, ""]))

    async def activity(self) -> dict[str, float]:
        """Return the activity of each GPU that has or had a pod."""
        busy_s = await self._cluster.model_pods.busy_s()
        added_s: Counter[str] = Counter()
        for pod in self._cluster.pods():
            metadata = pod["metadata"]
            uuid = (metadata.get("annotations") or {}).get(ANNOTATION_GPU)
            name = f"{metadata['namespace']}/{metadata['name']}"
            if uuid and name in busy_s:
                added_s[uuid] += busy_s[name] - self._seen_s.get(name, 0.0)
                self._seen_s[name] = busy_s[name]
        now_s = self._clock()
        self._samples.append((now_s, added_s))
        while now_s - self._samples[0][0] > WINDOW_S:
            self._samples.popleft()
        begin_s, _ = self._samples[0]
        totals_s: Counter[str] = Counter()
        for _, seconds in list(self._samples)[1:]:
            totals_s.update(seconds)
        span_s = now_s - begin_s
        return {uuid: min(total_s / span_s, 1.0) for uuid, total_s in totals_s.items()}
