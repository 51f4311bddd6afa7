"""Any order of events of holders, members, calls, restarts and outages: shares are never exceeded.

The ledger of the played cluster follows ADR 43: a holder that is deleted keeps its share until its
kubelet has ended it, and one that vanishes for its grace period and five seconds.
"""

import asyncio
from collections import Counter
from contextlib import AsyncExitStack

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from scheduler.gateway.calls import CallError
from scheduler.gateway.scaling.slice_holder import GRACE_S
from scheduler.model import names
from tests.gateway.pool_bed import Pods
from tests.gateway.runtime_bed import BATCHES, expected, rows
from tests.gateway.slice_bed import RUN_S, WHOLE, Gpus, pooled_gateway
from tests.virtual_loop import run_virtually

GPUS = ("GPU-1", "GPU-2")
KUBELET_S = 5.0
WAITS_S = (0.2, 0.2, 1.0, 6.0, 40.0)
FAULTS = st.one_of(
    st.tuples(st.just("nothing"), st.none()),
    st.tuples(st.just("delete"), st.integers(0, 7)),
    st.tuples(st.just("vanish"), st.booleans()),
    st.tuples(st.just("partition"), st.none()),
    st.tuples(st.just("slices"), st.integers(0, 2)),
    st.tuples(st.just("members"), st.integers(1, 5)),
    st.tuples(st.just("watch"), st.booleans()),
    st.tuples(st.just("contact"), st.booleans()),
    st.tuples(st.just("restart"), st.none()),
)
STEPS = st.lists(st.tuples(FAULTS, st.sampled_from(WAITS_S)), max_size=12)


class KubeletPods(Pods):
    """Pods with kubelets, which end them after their grace periods, and a ledger.

    Attributes:
        reserved: percent that holders have on each GPU.
        on_release: called with the GPU of a share that has become free.
    """

    def __init__(self):
        super().__init__()
        self.reserved = Counter()
        self.on_release = lambda gpu: None
        self._ends = {}

    def holders(self):
        """Return the names of all holders."""
        return list(filter(self.is_holder, self.objects))

    def is_holder(self, name):
        return self.objects[name]["metadata"]["labels"].get(names.LABEL_POOL) == names.POOL_HOLDER

    def gpu_of(self, name):
        annotations = self.objects[name]["metadata"].get("annotations") or {}
        return annotations.get("esg-scheduler.io/gpu")

    def place_all(self):
        """Bind all pods that have no node and find a GPU; holders first."""
        for name in sorted(self.objects, key=lambda name: not self.is_holder(name)):
            self._place(name)

    def _place(self, name):
        """Bind a pod that has no node, if there is a GPU for it."""
        holders = self.holders()
        taken = set(map(self.gpu_of, holders))
        live = {self.gpu_of(other) for other in holders if not self._is_deleted(other)}
        if self.gpu_of(name) is not None or self._is_deleted(name):
            return
        if not self.is_holder(name):
            for gpu in GPUS:
                if gpu in live:
                    self.bind(name, gpu=gpu)
                    return
        elif free := [gpu for gpu in GPUS if gpu not in taken and not self.reserved[gpu]]:
            self.reserved[free[0]] += 100
            self.bind_holder(name, gpu=free[0])

    def _is_deleted(self, name):
        return "deletionTimestamp" in self.objects[name]["metadata"]

    async def delete(self, namespace, name, uid, *, grace_s=None):
        await super().delete(namespace, name, uid, grace_s=grace_s)
        if name in self.objects:
            self._end_in(name, grace_s if grace_s is not None else GRACE_S)

    def vanish(self, name):
        """Remove a pod's object; its container goes on for a while."""
        if gpu := self.gpu_of(name):
            self._free_in(GRACE_S + KUBELET_S, name, gpu)
        if (end := self._ends.pop(name, None)) is not None:
            end.cancel()
        self.remove(name)

    def _end_in(self, name, grace_s):
        loop = asyncio.get_running_loop()
        end = self._ends.get(name)
        if end is not None and end.when() <= loop.time() + grace_s:
            return
        if end is not None:
            end.cancel()
        self._ends[name] = loop.call_later(grace_s, self._ended, name)

    def _ended(self, name):
        if name in self.objects:
            if gpu := self.gpu_of(name):
                self._free_in(0.0, name, gpu)
            self.remove(name)

    def _free_in(self, delay_s, name, gpu):
        if self.is_holder(name):
            asyncio.get_running_loop().call_later(delay_s, self._free, gpu)

    def _free(self, gpu):
        self.reserved[gpu] -= 100
        self.on_release(gpu)


class World:
    """A cluster that outlives gateways, and its check."""

    def __init__(self):
        self.pods, self.gpus = KubeletPods(), Gpus()
        self.gpus.on_begin = self.pods.on_release = self._check
        self.exceeded = []
        self.answered = self.refused = 0

    def _check(self, gpu):
        if self.gpus.running[gpu] > self.pods.reserved[gpu]:
            self.exceeded.append((asyncio.get_running_loop().time(), gpu))

    async def run(self, steps):
        """Take the steps under load; then let all faults end, and wait for all answers."""
        stack, bed, calls = AsyncExitStack(), None, []
        begin = [(("restart", None), 1.0), (("nothing", None), 6.0)]
        for (fault, value), wait_s in [*begin, *steps]:
            if fault == "restart":
                await stack.aclose()
                for call in calls:
                    call.cancel()
                calls, former, stack = [], bed, AsyncExitStack()
                self.pods.is_silent = False
                bed = await stack.enter_async_context(pooled_gateway(self.pods, self.gpus))
                bed.scaler.wanted = 3 if former is None else former.scaler.wanted
            else:
                await self._cause(fault, value, bed)
            self.pods.place_all()
            calls += [asyncio.ensure_future(self._call(bed, seed)) for seed in range(4)]
            await asyncio.sleep(wait_s)
        self.pods.is_cut_off = False
        self.pods.relist()
        bed.scaler.slices, bed.scaler.wanted = [WHOLE], 2
        async with stack:
            slices = bed.runtime.dispatcher
            for _ in range(120):
                if all(call.done() for call in calls) and any(s.is_open for s in slices.slices):
                    break
                self.pods.place_all()
                await asyncio.sleep(1)
            await asyncio.gather(*calls)
            assert any(known.is_open for known in slices.slices)
            await asyncio.sleep(3 * RUN_S)  # first batches, and runs that lost their clients
            assert all(known.is_idle for known in slices.slices)

    async def _cause(self, fault, value, bed):
        pods = self.pods
        match fault:
            case "slices":
                bed.scaler.slices = [WHOLE] * value
            case "members":
                bed.scaler.wanted = value
            case "watch":
                pods.is_silent = not value
                if value:
                    pods.relist()
            case "contact":
                pods.is_cut_off = not value
            case "delete" if pods.objects:
                await pods.delete("default", list(pods.objects)[value % len(pods.objects)], "")
            case "vanish" | "partition" if holders := pods.holders():
                pods.is_silent = pods.is_silent or fault == "partition" or value
                pods.is_cut_off = pods.is_cut_off or fault == "partition"
                pods.vanish(holders[0])

    async def _call(self, bed, seed):
        x = rows(BATCHES[-1], seed)
        try:
            outputs = await bed.outputs("w", x)
        except CallError:
            self.refused += 1
        else:
            np.testing.assert_array_equal(outputs["y-f"], expected({"f": ()}, x)["y-f"])
            self.answered += 1


@settings(deadline=None)
@given(STEPS)
def test_what_runs_has_its_share_reserved_at_every_moment(steps):
    """No run begins without its share, and no share becomes free under one."""
    world = World()
    run_virtually(world.run(steps))
    assert world.exceeded == []
