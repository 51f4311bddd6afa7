"""Slices and processes of a pool: how many, how large, and when they start and end."""

from itertools import count
from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler.dispatch.pods import Pod, PodStart, PodState, Share
from scheduler.dispatch.scaling.pod_targets import SURPLUS_MS
from scheduler.dispatch.scaling.pool_sizes import (
    CLIENTS_MAX,
    PoolFunction,
    PoolGpu,
    pool_size,
    reserved_text,
)
from scheduler.dispatch.scaling.scaler import PodLimits, Scaler
from scheduler.dispatch.scaling.sizing import PodPrices
from scheduler.dispatch.slices import Slice
from scheduler.model.plan import Prices
from tests.dispatch.harness import SPACE, Owner
from tests.examples import examples
from workbench.profiles.builders import GPU, profile, workflow

ROWS = [(batch, 2, percent, 100 * batch**0.6) for batch in (1, 4) for percent in (20, 40)]
LARGE = PoolGpu(80_000, 16.0)
MINUTE_MS = 60_000.0


def function(percent=20, cpu=2, memory_mib=1_000, busy_pods=3.0, met_ratio=1.0):
    return PoolFunction(Share(GPU, cpu, percent, memory_mib), busy_pods, 0.99, met_ratio)


def sums(percents, limit=100):
    """Sums of shares up to a limit, slowly."""
    reached = {0}
    for _ in range(limit):
        reached |= {a + p for a in reached for p in percents if a + p <= limit}
    return reached


@given(
    shares=st.lists(
        st.tuples(st.integers(5, 100), st.integers(1, 8), st.integers(500, 40_000)),
        min_size=1,
        max_size=4,
        unique_by=lambda share: share[0],
    ),
    busy=st.floats(0.01, 20.0),
    percent_max=st.sampled_from([100, 75, 56]),
    cpus=st.sampled_from([0.25, 4.0, 16.0]),
)
@examples(100)
def test_a_slice_is_a_whole_gpu_or_a_sum_of_shares_and_its_processes_fit(
    shares, busy, percent_max, cpus
):
    """Each share fits a slice, the slices hold the work, and memory and clients suffice.

    So does a share with more vCPUs than the node has for each of its GPUs.
    """
    functions = {
        (SPACE, f"f{i}"): function(percent, cpu, memory_mib, busy)
        for i, (percent, cpu, memory_mib) in enumerate(shares)
    }
    size = pool_size(functions, LARGE._replace(cpus=cpus), percent_max=percent_max)
    percents = [percent for percent, *_ in shares]
    assert size.percent in {100} | sums(percents, max(percent_max, *percents))
    assert size.percent >= max(percents)
    assert size.cpus >= max(cpu for _, cpu, _ in shares)
    assert size.slices * size.percent >= busy * sum(percents)
    counts = [round(size.processes[key] * size.slices) for key in functions]
    held_mib = sum(n * f.share.memory_mib for n, f in zip(counts, functions.values(), strict=True))
    assert held_mib <= size.slices * LARGE.memory_mib
    assert sum(counts) <= size.slices * CLIENTS_MAX


def test_processes_fill_a_gpu_at_their_part_of_the_work():
    """However few would serve the rate: a burst finds them on every GPU."""
    functions = {
        (SPACE, "heavy"): function(20, busy_pods=9.0),
        (SPACE, "light"): function(20, busy_pods=1.0),
    }
    size = pool_size(functions, LARGE)
    assert size.slices == 3
    assert size.processes[SPACE, "heavy"] * 20 >= 90
    assert size.processes[SPACE, "light"] * 20 >= 10


def test_short_memory_is_divided_by_the_reserve():
    """The function with the least reserve for its work gets the next process."""
    functions = {
        (SPACE, name): function(10, 1, 2_000, busy_pods=busy)
        for name, busy in (("heavy", 8.0), ("light", 2.0))
    }
    size = pool_size(functions, PoolGpu(18_000, 16.0))
    heavy, light = (round(size.processes[key] * size.slices) for key in functions)
    assert heavy + light == 9 * size.slices
    assert heavy > 8
    assert light > 2


def test_a_small_pool_is_a_sum_of_shares_and_misses_make_it_larger():
    """A tenth of a GPU's work needs no whole GPU; below the objective it gets a larger reserve."""
    sizes = [
        pool_size({(SPACE, "f"): function(20, busy_pods=0.5, met_ratio=met)}, LARGE).percent
        for met in (1.0, 0.0)
    ]
    assert sizes == sorted(set(sizes))
    assert sizes[0] in {20, 40, 60}


@pytest.mark.parametrize(
    ("memory_mib", "is_pooled"), [(80_000, True), (11_000, False), (inf, True)]
)
def test_pods_hold_their_shares_where_memory_holds_no_more_of_them(memory_mib, is_pooled):
    """Five processes of 20 % fit a GPU by percent; in 11,000 MiB there is room for 5.5."""
    text = reserved_text([function(20, 2, 2_000)], PoolGpu(memory_mib, 16.0))
    assert (not text) == is_pooled
    if text:
        assert "allow 5.5 processes, percent and vCPUs 5.0" in text


class PoolOwner:
    """Starts and stops what the scaler says at once, on GPUs that are all free."""

    def __init__(self, *, memory_mib=80_000, gpus=20, cold_start_ms=0.0, slices_min=0):
        self.cold_start_ms, self.room = cold_start_ms, 1_000
        documents = [profile("f0", ROWS, cold_start_ms=500.0), workflow([[]], slo_ms=400.0)]
        self.owner = Owner(documents)
        self.dispatcher = self.owner.dispatcher
        prices = PodPrices(Prices(), 16.0, {GPU: memory_mib})
        self.scaler = Scaler(self.dispatcher, prices, slices_min=slices_min)
        self.scaler.set_limits((SPACE, "f0"), PodLimits(pooled=True))
        self.free, self.now_ms, self.numbers = [f"g{i}" for i in range(gpus)], 0.0, count()

    def step(self, passes_ms=1_000.0):
        """Scale once, and let a time pass."""
        for pod in self.dispatcher.pods:
            if pod.state is PodState.STARTING and pod.ready_ms <= self.now_ms:
                self.dispatcher.pod_ready(pod, self.now_ms)
        changes = self.scaler.changes(self.now_ms)
        for pod in changes.stops:
            self.dispatcher.remove_pod(pod, self.now_ms)
        for known in changes.slice_stops:
            self.dispatcher.close_slice(*known.key, self.now_ms)
        for known in list(self.dispatcher.slices):
            if known.is_closed and not any(pod.slice is known for pod in self.dispatcher.pods):
                self.dispatcher.remove_slice(*known.key, self.now_ms)
                self.free.append(known.gpu)
        for start in changes.slice_starts:
            if not self.free:
                self.scaler.slice_failed(start, self.now_ms)
                continue
            new = Slice(SPACE, self.free.pop(0), "n", *start[2:], gpu_model=start.gpu_model)
            self.dispatcher.set_slice(new, self.now_ms)
        for start in changes.starts:
            self.start(start)
        self.now_ms += passes_ms
        return changes

    def start(self, start):
        pods = list(self.dispatcher.pods)
        if len(pods) >= self.room:
            self.scaler.start_failed(start, self.now_ms)
            return
        on_gpu = {s.gpu: sum(p.gpu == s.gpu for p in pods) for s in self.dispatcher.slices}
        gpu = min(on_gpu, key=on_gpu.get) if start.pooled else ""
        name = f"p{next(self.numbers)}"
        state = PodState.STARTING if self.cold_start_ms else PodState.READY
        ready_ms = self.now_ms + self.cold_start_ms
        of = {"gpu": gpu, "pooled": start.pooled, "state": state, "ready_ms": ready_ms}
        self.dispatcher.add_pod(Pod(name, start.function, start.share, **of), self.now_ms)

    def add_ready(self, name, function, share, gpu):
        """Add a pod to a slice that is ready at once."""
        pod = Pod(name, function, share, gpu=gpu, pooled=True, ready_ms=0.0)
        pod.state = PodState.READY
        self.dispatcher.add_pod(pod, self.now_ms)

    def end_runs(self):
        """End all batches that run."""
        for run in self.owner.open_runs:
            self.dispatcher.run_ended(run, self.now_ms)

    def expect(self, rate_rps):
        self.scaler.expect((SPACE, "w"), rate_rps)

    @property
    def counts(self):
        """Number of pods on each GPU."""
        gpus = [pod.gpu for pod in self.dispatcher.pods]
        return sorted(gpus.count(known.gpu) for known in self.dispatcher.slices)


def test_slices_come_first_and_their_pods_are_evenly_spread():
    pool = PoolOwner()
    pool.expect(200.0)
    assert pool.step().starts == []
    pool.step()
    slices = len(pool.dispatcher.slices)
    assert slices >= 3
    assert len(set(pool.counts)) == 1
    assert pool.counts[0] >= 2
    assert all(pod.pooled for pod in pool.dispatcher.pods)


@pytest.mark.parametrize(("expected_rps", "percents"), [(1.0, [20, 100]), (4.0, [40, 60])])
def test_a_pool_that_outgrows_its_slice_gets_one_larger_one_in_a_second(expected_rps, percents):
    """A whole GPU, if it needs twice as much: nobody knows yet where the growth ends.

    However often it is decided meanwhile, while more and more rows arrive.
    """
    pool = PoolOwner(cold_start_ms=3_000.0)
    pool.expect(expected_rps)
    begun = pool.step().slice_starts
    for _ in range(9):
        for _ in range(20):
            pool.owner.arrive(now_ms=pool.now_ms)
        begun += pool.step(passes_ms=100.0).slice_starts
    assert [start.percent for start in begun] == percents


@pytest.mark.parametrize(
    ("percent", "found_room", "is_refused"),
    [(40, False, False), (60, False, True), (40, True, True)],
    ids=["no memory", "slices too small", "another reason"],
)
def test_a_share_is_refused_for_which_no_slice_is_large_enough(percent, found_room, is_refused):
    """Another one may fit; where memory is short, none does."""
    pool = PoolOwner()
    pool.dispatcher.set_slice(Slice(SPACE, "g", "n", 40, 16, gpu_model=GPU), 0.0)
    key = SPACE, "f0"
    pool.add_ready("p", key, Share(GPU, 2, 20, 400), "g")
    pool.scaler.changes(0.0)
    start = PodStart(key, Share(GPU, 2, percent, 400), pooled=True)
    pool.scaler.start_failed(start, 0.0, found_room=found_room)
    refused = [choice.refused for choice in pool.scaler.share_choices(0.0)]
    assert refused == ([{("f0", GPU, 2, percent)}] if is_refused else [])


def test_slices_end_when_nothing_has_needed_them():
    """Half of them after `SURPLUS_MS`, the least used first, and their pods with them."""
    pool = PoolOwner()
    pool.expect(200.0)
    for _ in range(3):
        pool.step()
    before = len(pool.dispatcher.slices)
    while pool.now_ms <= MINUTE_MS:  # no request arrives, and the expected rate counts no more
        pool.step()
    assert len(pool.dispatcher.slices) == before
    for _ in range(int(2 * SURPLUS_MS / 1_000) + 5):
        pool.step()
    assert len(pool.dispatcher.slices) <= before / 2
    assert {pod.gpu for pod in pool.dispatcher.pods} <= {s.gpu for s in pool.dispatcher.slices}


def test_a_slice_ends_when_the_pods_of_its_successor_are_ready():
    """A pool that grows from a part of a GPU to a whole one can serve at any time."""
    pool = PoolOwner(cold_start_ms=3_000.0)
    pool.expect(10.0)
    while not any(pod.is_open for pod in pool.dispatcher.pods):
        pool.step()
    before = list(pool.dispatcher.slices)
    for _ in range(200):
        pool.owner.arrive(now_ms=pool.now_ms)
    while any(known in before for known in pool.dispatcher.slices):
        pool.step()
        ready = [pod for pod in pool.dispatcher.pods if pod.state is PodState.READY]
        assert any(pod.slice.is_open for pod in ready)
        pool.end_runs()
    assert pool.now_ms < MINUTE_MS


def fall_below_a_gpu(pool):
    """Serve a fraction of a load for which a whole GPU was expected, for three minutes."""
    pool.expect(50.0)
    pool.step()
    assert [known.percent for known in pool.dispatcher.slices] == [100]
    while pool.now_ms < 3 * MINUTE_MS:
        pool.step()
        pool.owner.arrive(now_ms=pool.now_ms)
        pool.end_runs()
    return [known.percent for known in pool.dispatcher.slices]


def test_a_smaller_slice_takes_the_place_of_a_whole_gpu():
    """When a part of one has been enough for `SURPLUS_MS`."""
    (percent,) = fall_below_a_gpu(PoolOwner())
    assert percent < 100


def test_a_slice_of_a_former_gateway_is_replaced_too():
    """It is too large from the first decision on."""
    pool = PoolOwner()
    pool.scaler.set_limits((SPACE, "f0"), PodLimits(pooled=True, min_pods=1))
    pool.dispatcher.set_slice(Slice(SPACE, pool.free.pop(), "n", 100, 16, gpu_model=GPU), 0.0)
    while pool.now_ms < 3 * MINUTE_MS:
        pool.step()
    assert [known.percent for known in pool.dispatcher.slices] == [20]


def test_a_whole_gpu_stays_where_there_is_no_room_for_a_smaller_slice():
    """And nothing smaller is started beside it."""
    assert fall_below_a_gpu(PoolOwner(gpus=1)) == [100]


def test_a_slice_without_room_pauses_and_comes_back_smaller():
    pool = PoolOwner(gpus=0)
    pool.expect(200.0)
    first = pool.step().slice_starts
    assert {start.percent for start in first} == {100}
    pool.now_ms += 1_000.0
    assert {start.percent for start in pool.step().slice_starts} == {60}


def test_a_pool_that_finds_no_whole_gpu_grows_to_what_it_needs():
    """A slice for the growth that nobody knows yet is tried once; the needed one has room."""
    pool = PoolOwner(gpus=1, cold_start_ms=3_000.0)
    pool.expect(1.0)
    assert [start.percent for start in pool.step().slice_starts] == [20]
    begun = []
    while len(begun) < 2:
        for _ in range(10):
            pool.owner.arrive(now_ms=pool.now_ms)
        begun += pool.step().slice_starts
    assert [start.percent for start in begun] == [100, 40]


def test_processes_are_divided_among_the_slices_that_found_room():
    """In a full cluster each of fewer slices has more of them."""
    full, roomy = PoolOwner(gpus=2), PoolOwner()
    for pool in (full, roomy):
        pool.expect(200.0)
        for _ in range(4):
            pool.step()
    assert len(full.dispatcher.slices) == 2 < len(roomy.dispatcher.slices)
    assert full.counts[0] > roomy.counts[0]


def test_a_namespace_says_why_its_pods_hold_their_shares():
    """Memory holds hardly more processes than percent do; then nothing is pooled."""
    pool = PoolOwner(memory_mib=600)
    pool.expect(50.0)
    changes = pool.step()
    assert changes.slice_starts == []
    assert {start.pooled for start in changes.starts} == {False}
    assert "pods hold their shares" in pool.scaler.pool_notes(SPACE)
    assert PoolOwner().scaler.pool_notes(SPACE) == ""


def test_gpus_that_are_held_at_any_load_have_pods_in_slices_whatever_the_memory():
    """They are paid anyway, and pods that hold their shares would not hold the GPUs."""
    pool = PoolOwner(memory_mib=600, slices_min=2)
    pool.expect(50.0)
    for _ in range(3):
        pool.step()
    assert [known.percent for known in pool.dispatcher.slices] == [100, 100]
    assert {pod.pooled for pod in pool.dispatcher.pods} == {True}


def test_pods_of_another_share_make_room_one_by_one():
    """In slices they serve on while pods of the chosen share start, also in a burst."""
    pool = PoolOwner()
    pool.expect(200.0)
    for _ in range(2):
        pool.step()
    pods = list(pool.dispatcher.pods)
    for pod in pods:
        pool.dispatcher.remove_pod(pod, pool.now_ms)
        pool.add_ready(f"old-{pod.name}", pod.function, Share(GPU, 2, 40, 1_000), pod.gpu)
    pool.room = len(pods)  # of memory
    stops = [len(pool.step().stops) for _ in range(8)]
    assert max(stops) == 1
    assert sum(stops) >= 2


def test_the_gpu_with_most_processes_loses_one_first():
    """So that the rest stays evenly spread."""
    pool = PoolOwner()
    pool.expect(200.0)
    for _ in range(2):
        pool.step()
    crowded = pool.dispatcher.slices[0].gpu
    (pod, *_) = pool.dispatcher.pods
    for i in range(2):
        pool.add_ready(f"x{i}", pod.function, pod.share, crowded)
    stopped = []
    while not stopped and pool.now_ms < 2 * MINUTE_MS:
        stopped = pool.step().stops
    assert stopped[0].gpu == crowded


def test_what_waits_below_the_objective_enlarges_the_pool():
    """By the pods that serve it within the time of a start, before its rate is known."""
    pool = PoolOwner()
    pool.expect(10.0)
    for _ in range(2):
        pool.step()
    assert [known.percent for known in pool.dispatcher.slices] == [60]
    for _ in range(28):  # no more than chance allows at 10 requests a second
        pool.owner.arrive(now_ms=pool.now_ms)
    pool.now_ms += 300.0
    pool.end_runs()
    assert [start.percent for start in pool.step().slice_starts] == [100]


def test_a_pod_that_always_runs_has_a_slice_without_load():
    """``min_pods`` of a pooled function: the smallest slice, and one process in it."""
    pool = PoolOwner()
    pool.scaler.set_limits((SPACE, "f0"), PodLimits(pooled=True, min_pods=1))
    for _ in range(3):
        pool.step()
    (known,) = pool.dispatcher.slices
    assert (known.percent, pool.counts) == (20, [1])


def test_the_first_row_has_a_slice_at_once_which_stays_for_the_keep_alive():
    """A row that waits brings a slice before the rate of its workflow is known."""
    pool = PoolOwner()
    keep_alive_ms = 2 * MINUTE_MS
    limits = PodLimits(pooled=True, keep_alive_ms=keep_alive_ms)
    pool.scaler.set_limits((SPACE, "f0"), limits)
    pool.step()
    assert not list(pool.dispatcher.slices)
    pool.owner.arrive(now_ms=pool.now_ms)
    for _ in range(3):
        pool.step()
    assert len(pool.dispatcher.slices) == 1
    assert pool.counts == [1]
    pool.end_runs()
    while pool.now_ms < keep_alive_ms:
        assert len(pool.dispatcher.slices) == 1
        pool.step()
    while pool.now_ms < 2 * keep_alive_ms:
        pool.step()
    assert not list(pool.dispatcher.slices)


def test_a_pod_that_finds_no_room_in_a_slice_keeps_its_share():
    """Memory is short there, which pods of another share take, too; so no other share is tried."""
    pool = PoolOwner(cold_start_ms=3_000.0)
    pool.expect(100.0)
    pool.room = 1
    pool.step()
    assert len({start.share for _ in range(60) for start in pool.step().starts}) == 1
