"""A gateway with pooled pods over a cluster in memory, and what runs on its GPUs."""

import asyncio
from collections import defaultdict
from contextlib import asynccontextmanager

from scheduler.dispatch.slices import SliceStart
from scheduler.model import names
from scheduler.model.pools import gateway_group
from tests.gateway import pool_bed
from tests.gateway.pool_bed import SMALL, FirstBatchModel, Pods, PoolBed
from tests.gateway.ready_pods import MODEL, NAMESPACE
from tests.gateway.runtime_bed import Model

RUN_S = 1.5
LONGEST_S = 1.25 * RUN_S
WHOLE = SliceStart(NAMESPACE, MODEL, 100, 8)
HALF = SliceStart(NAMESPACE, MODEL, 50, 4)


class Gpus:
    """The model servers' runs, which outlive their connections.

    Attributes:
        running: percent that runs now, by GPU.
        most_percent: the largest of it.
        begun: number of runs.
        on_begin: called with the GPU at each begin of a run.
    """

    def __init__(self):
        self.running = defaultdict(int)
        self.most_percent = 0
        self.begun = 0
        self.on_begin = lambda gpu: None

    async def run(self, pod):
        """Run a batch on a pod's GPU, to its end also without its client."""
        await asyncio.shield(self.begin(pod))

    def begin(self, pod):
        """Begin a batch on a pod's GPU; return its end."""
        self.begun += 1
        self.running[pod.gpu] += pod.gpu_percent
        self.most_percent = max(self.most_percent, self.running[pod.gpu])
        self.on_begin(pod.gpu)
        ended = asyncio.get_running_loop().create_future()
        asyncio.get_running_loop().call_later(RUN_S, self._end, pod, ended)
        return ended

    def _end(self, pod, ended):
        self.running[pod.gpu] -= pod.gpu_percent
        ended.set_result(None)


class TimedModel(Model):
    """A model server whose runs take their time on a GPU."""

    def __init__(self, bed, pod):
        super().__init__(pod.function[1])
        self.bed, self.pod = bed, pod

    async def infer(self, model, ranges, **options):
        await self.bed.gpus.run(self.pod)
        return await super().infer(model, ranges, **options)


class TimedFirstBatch(FirstBatchModel):
    """The client of a first batch that takes its time on a GPU."""

    async def infer(self, model, ranges, **options):
        if self.bed.first_batch_errors:
            error = self.bed.first_batch_errors.pop()
            if error.retryable:
                self.bed.gpus.begin(self.pod)  # it goes on without its connection
            raise error
        await self.bed.gpus.run(self.pod)
        return await super().infer(model, ranges, **options)


class SliceBed(PoolBed):
    """A gateway whose pods are pooled; its scaler wants one slice, of a whole GPU by default.

    Attributes:
        first_batch_errors: errors of the next first batches.
    """

    def __init__(self, pods, gpus=None, start=WHOLE, **spec):
        self.gpus = gpus or Gpus()
        self.first_batch_errors = []
        super().__init__(pods, latency_ms=1000 * RUN_S, share="pooled", **spec)
        self.scaler.pooled, self.scaler.share = True, SMALL
        self.scaler.slices = [start]

    def _connect(self, pod):
        self.models[pod.name] = model = TimedModel(self, pod)
        return model

    def _connect_first(self, pod):
        return self.fence.guard(pod, TimedFirstBatch(self, pod))

    def holders(self):
        """Return the names of all holders of its pool."""
        return self._of_role(names.POOL_HOLDER)

    def members(self):
        """Return the names of all members of its pool."""
        return self._of_role(names.POOL_MEMBER)

    def _of_role(self, role):
        return [
            name
            for name, raw in self.pods.objects.items()
            if raw["metadata"]["labels"].get(names.LABEL_POOL) == role
            and gateway_group(raw) == self.group
        ]

    async def holder(self, **options):
        """Wait for the first holder, and place it; return its name."""
        await asyncio.sleep(1)
        [name] = self.holders()
        self.pods.bind_holder(name, **options)
        return name

    async def serve(self, members):
        """Wait until a slice is open and so many members are warm; return the holder's name."""
        holder = await self.holder()
        self.scaler.wanted = members
        await asyncio.sleep(1)
        for name in self.members():
            self.pods.bind(name)
        while self.states().count("ready") < members:  # noqa: ASYNC110 - in virtual time
            await asyncio.sleep(0.1)
        return holder

    @property
    def slice(self):
        """The only slice."""
        [known] = self.runtime.dispatcher.slices
        return known


@asynccontextmanager
async def pooled_gateway(pods=None, gpus=None, **options):
    """A running gateway with pooled pods."""
    async with pool_bed.gateway(pods or Pods(), bed_class=SliceBed, gpus=gpus, **options) as bed:
        yield bed
