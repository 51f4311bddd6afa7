"""Any order of events of holders, members, calls, restarts and outages: shares are never exceeded.

The ledger of the played cluster follows ADR 43: a holder that is deleted keeps its share until its
kubelet has ended it, and one that vanishes for its grace period and five seconds. The gateways of
two groups have a pool each, and may have slices of one GPU (ADR 59).
"""

import asyncio
from collections import Counter
from contextlib import AsyncExitStack

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from scheduler.gateway.calls import CallError
from scheduler.gateway.scaling.slice_holder import GRACE_S
from scheduler.model import names
from scheduler.model.grant import grant_of
from scheduler.model.pools import gateway_group
from tests.gateway.pool_bed import Pods
from tests.gateway.runtime_bed import BATCHES, expected, rows
from tests.gateway.slice_bed import HALF, RUN_S, WHOLE, Gpus, pooled_gateway
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
GROUPS = ("a", "b")
FAULTS_OF_GROUPS = st.one_of(FAULTS, st.tuples(st.just("regroup"), st.integers(0, 7)))
STEPS_OF_GROUPS = st.lists(
    st.tuples(st.sampled_from(GROUPS), FAULTS_OF_GROUPS, st.sampled_from(WAITS_S)), max_size=16
)


class KubeletPods(Pods):
    """Pods with kubelets, which end them after their grace periods, and a ledger.

    Attributes:
        reserved: percent that the holders of each group, as bound, have on each GPU.
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

    def bound_group(self, name):
        """Return the group of a bound pod's pool; that of its label if it has no GPU."""
        raw = self.objects[name]
        grant = grant_of(raw)
        return gateway_group(raw) if grant is None else grant.group

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
        group = self.bound_group(name)
        holders = [holder for holder in self.holders() if self.bound_group(holder) == group]
        live = {self.gpu_of(holder) for holder in holders if not self._is_deleted(holder)}
        if self.gpu_of(name) is not None or self._is_deleted(name):
            return
        if not self.is_holder(name):
            for gpu in GPUS:
                if gpu in live:
                    self.bind(name, gpu=gpu)
                    return
        elif free := [gpu for gpu in GPUS if self._has_room(group, gpu, self._percent(name))]:
            self.reserved[group, free[0]] += self._percent(name)
            self.bind_holder(name, gpu=free[0])

    def _has_room(self, group, gpu, percent):
        """Return true if a pool has no slice of a GPU, also none that ends, and a share is free."""
        total = sum(share for (_, uuid), share in self.reserved.items() if uuid == gpu)
        return not self.reserved[group, gpu] and total + percent <= 100

    def _percent(self, name):
        amounts = self.objects[name]["spec"]["containers"][0]["resources"]["requests"]
        return int(amounts["esg-scheduler.io/gpu-percent"])

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
            share = self.bound_group(name), gpu, self._percent(name)
            asyncio.get_running_loop().call_later(delay_s, self._free, *share)

    def _free(self, group, gpu, percent):
        self.reserved[group, gpu] -= percent
        self.on_release(gpu)


class World:
    """A cluster that outlives the gateways of its groups, and its check.

    Args:
        start: slice that each group's scaler wants, by group.
    """

    def __init__(self, start):
        self.start = start
        self.pods, self.gpus = KubeletPods(), {group: Gpus() for group in start}
        self.pods.on_release = self._check
        for gpus in self.gpus.values():
            gpus.on_begin = self._check
        self.exceeded = []
        self.answered = self.refused = 0
        self.beds, self.stacks, self.calls = {}, {}, {group: [] for group in start}

    def _check(self, gpu):
        for group, gpus in self.gpus.items():
            if gpus.running[gpu] > self.pods.reserved[group, gpu]:
                self.exceeded.append((asyncio.get_running_loop().time(), group, gpu))

    async def run(self, steps):
        """Take the steps under load; then let all faults end, and wait for all answers."""
        restarts = [(group, ("restart", None), 1.0) for group in self.start]
        begin = [*restarts, (next(iter(self.start)), ("nothing", None), 6.0)]
        for group, (fault, value), wait_s in [*begin, *steps]:
            if fault == "restart":
                await self._restart(group)
            else:
                await self._cause(fault, value, group)
            self.pods.place_all()
            for name, bed in self.beds.items():
                self.calls[name] += [
                    asyncio.ensure_future(self._call(bed, seed)) for seed in range(4)
                ]
            await asyncio.sleep(wait_s)
        self.pods.is_cut_off = False
        self.pods.relist()
        for group, bed in self.beds.items():
            bed.scaler.slices, bed.scaler.wanted = [self.start[group]], 2
        for _ in range(120):
            if all(map(self._is_settled, self.start)):
                break
            self.pods.place_all()
            await asyncio.sleep(1)
        for group, bed in self.beds.items():
            await asyncio.gather(*self.calls[group])
            assert any(known.is_open for known in bed.runtime.dispatcher.slices)
        await asyncio.sleep(3 * RUN_S)  # first batches, and runs that lost their clients
        for group, bed in self.beds.items():
            assert all(known.is_idle for known in bed.runtime.dispatcher.slices)
            await self.stacks[group].aclose()

    def _is_settled(self, group):
        """Return true if a group has answered all calls and has an open slice."""
        slices = self.beds[group].runtime.dispatcher.slices
        return all(call.done() for call in self.calls[group]) and any(s.is_open for s in slices)

    async def _restart(self, group):
        """End the gateway of a group, and start another one."""
        former = self.beds.get(group)
        if former is not None:
            await self.stacks[group].aclose()
        for call in self.calls[group]:
            call.cancel()
        self.calls[group], self.stacks[group] = [], AsyncExitStack()
        self.pods.is_silent = False
        gateway = pooled_gateway(
            self.pods, self.gpus[group], start=self.start[group], group=group, uid=f"of-{group}"
        )
        self.beds[group] = await self.stacks[group].enter_async_context(gateway)
        self.beds[group].scaler.wanted = 3 if former is None else former.scaler.wanted

    async def _cause(self, fault, value, group):
        pods, bed = self.pods, self.beds[group]
        match fault:
            case "slices":
                bed.scaler.slices = [self.start[group]] * value
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
            case "regroup" if pods.objects:
                pods.regroup(list(pods.objects)[value % len(pods.objects)], group)
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
@example([(("nothing", None), 1.0), (("restart", None), 0.2), (("delete", 0), 0.2)])
def test_what_runs_has_its_share_reserved_at_every_moment(steps):
    """No run begins without its share, and no share becomes free under one."""
    world = World({"": WHOLE})
    run_virtually(world.run([("", *step) for step in steps]))
    assert world.exceeded == []


@pytest.mark.slow
@settings(deadline=None)
@example(  # the holder of another group ends with its own grace period
    [
        ("a", ("delete", 0), 0.2),
        ("a", ("nothing", None), 0.2),
        ("a", ("nothing", None), 0.2),
        ("b", ("delete", 4), 0.2),
        ("a", ("nothing", None), 0.2),
        ("a", ("nothing", None), 40.0),
        ("a", ("nothing", None), 40.0),
        ("a", ("nothing", None), 0.2),
        ("a", ("regroup", 2), 0.2),
        ("b", ("nothing", None), 0.2),
        ("b", ("slices", 1), 0.2),
    ]
)
@given(STEPS_OF_GROUPS)
def test_so_does_what_groups_run_on_one_gpu(steps):
    """Also if somebody changes the group of a pod, whose slice no other gateway then uses."""
    world = World(dict.fromkeys(GROUPS, HALF))
    run_virtually(world.run(steps))
    assert world.exceeded == []
