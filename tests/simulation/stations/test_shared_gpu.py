"""Shares, memory and times of stations, each against a slow twin or its definition."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workbench.profiles.builders import GPU, profile
from workbench.simulation.stations.model_cache import ModelCache
from workbench.simulation.stations.share_times import ShareTimes
from workbench.simulation.stations.shared_gpu import SharedGpu, StageExecution
from workbench.simulation.stations.station import StageTask, Station

ROWS = [(1, 1, 20, 90.0), (1, 1, 50, 40.0), (1, 2, 50, 30.0), (1, 1, 100, 25.0)]
STEP_MS = 0.05


def station(number, percent):
    return Station(
        number=number,
        gpu=0,
        node=0,
        gpu_model=GPU,
        percent=percent,
        slots=3,
        cpus=1,
        cache=ModelCache(0),
    )


def task(number):
    return StageTask(
        key=("default", "w", "s0"),
        stage=0,
        request=number,
        workflow=0,
        arrival_ms=0.0,
        deadline_ms=1.0,
        ready_ms=0.0,
    )


@given(low=st.floats(1.0, 120.0), high=st.floats(1.0, 120.0))
def test_a_larger_share_is_never_slower(low, high):
    """Times fall with the share, and are the profile's at its shares."""
    times = ShareTimes(profile("f", ROWS), GPU, 1)
    low, high = sorted((low, high))
    assert times.time_ms(low) >= times.time_ms(high) - 1e-9
    assert [times.time_ms(percent) for percent in (20, 50, 100)] == pytest.approx([90, 40, 25])


def test_times_need_the_station_vcpus():
    """A configuration with more vCPUs than the station has is not used."""
    assert ShareTimes(profile("f", ROWS), GPU, 2).time_ms(50.0) == pytest.approx(30.0)
    assert ShareTimes(profile("f", ROWS), GPU, 1).time_ms(10.0) == pytest.approx(180.0)


def naive_ends(jobs, stations, times, interference_ratio):
    """Twin: small steps of time, with the shares computed from scratch in each."""
    now_ms, remaining, ends = 0.0, {}, {}
    pending = dict(enumerate(jobs))
    while pending or remaining:
        for i, (begin_ms, _, factor) in list(pending.items()):
            if begin_ms <= now_ms + 1e-9:
                remaining[i] = factor
                del pending[i]
        used = {jobs[i][1] for i in remaining}
        total = sum(stations[s].percent for s in used)
        shares = {}
        for i in remaining:
            mates = sum(jobs[mate][1] == jobs[i][1] for mate in remaining)
            shares[i] = stations[jobs[i][1]].percent / mates * min(1.0, 100.0 / total)
        for i in list(remaining):
            slowdown = 1.0 + interference_ratio * (sum(shares.values()) - shares[i]) / 100
            remaining[i] -= STEP_MS / times.time_ms(shares[i]) / slowdown
            if remaining[i] <= 0:
                ends[i] = now_ms + STEP_MS
                del remaining[i]
        now_ms += STEP_MS
    return [ends[i] for i in range(len(jobs))]


@given(
    jobs=st.lists(
        st.tuples(
            st.integers(0, 60).map(float), st.integers(0, 2), st.sampled_from((0.3, 1.0, 2.0))
        ),
        min_size=1,
        max_size=6,
    ),
    percents=st.tuples(*[st.sampled_from((30.0, 50.0, 80.0))] * 3),
    interference_ratio=st.sampled_from((0.0, 0.5)),
)
def test_executions_share_a_gpu_as_in_small_steps(jobs, percents, interference_ratio):
    """Ends of executions that begin at any time are those of a simulation in small steps."""
    times = ShareTimes(profile("f", ROWS), GPU, 1)
    stations = [station(number, percent) for number, percent in enumerate(percents)]
    gpu, ends = SharedGpu(interference_ratio), {}

    def run_until(time_ms):
        while gpu.executions and gpu.soonest()[0] <= time_ms:
            end_ms, execution = gpu.soonest()
            gpu.end(execution, end_ms)
            ends[execution.task.request] = end_ms

    for i, (begin_ms, place, factor) in sorted(enumerate(jobs), key=lambda job: job[1][0]):
        run_until(begin_ms)
        gpu.add(StageExecution(task(i), stations[place], times, factor, begin_ms), begin_ms)
        assert gpu.held_percent <= 100
    run_until(float("inf"))
    expected = naive_ends(jobs, stations, times, interference_ratio)
    assert [ends[i] for i in range(len(jobs))] == pytest.approx(expected, abs=8 * STEP_MS)


@given(uses=st.lists(st.sampled_from("abcdef"), max_size=40), capacity=st.integers(3, 10))
def test_the_cache_evicts_the_least_recently_used(uses, capacity):
    """Loads and contents are those of a list that is searched."""
    sizes = {"a": 1, "b": 1, "c": 2, "d": 2, "e": 3, "f": 3}
    cache, listed, evictions = ModelCache(capacity), [], 0
    for function in uses:
        loads = function not in listed
        if not loads:
            listed.remove(function)
        while sum(sizes[name] for name in listed) + sizes[function] > capacity:
            listed.pop(0)
            evictions += 1
        listed.append(function)
        assert cache.use(function, sizes[function]) is loads
        assert list(cache.functions) == listed
        assert cache.evictions == evictions
        assert cache.free_mib == capacity - sum(sizes[name] for name in listed)


def test_a_model_that_runs_is_not_evicted():
    """The error names what does not fit."""
    cache = ModelCache(100)
    cache.use("a", 60)
    with pytest.raises(ValueError, match="function b: its model has 50 MiB, and 40 are free"):
        cache.use("b", 50, pinned=["a"])


def test_pairs_of_rates_are_even():
    """Shares of a full GPU with too large stations add up to the GPU."""
    times = ShareTimes(profile("f", ROWS), GPU, 1)
    gpu = SharedGpu(0.0)
    for number in range(3):
        gpu.add(StageExecution(task(number), station(number, 80.0), times, 1.0, 0.0), 0.0)
    shares = [execution.share_percent for execution in gpu.executions]
    assert sum(shares) == pytest.approx(100.0)
    assert all(a == pytest.approx(b) for a, b in pairwise(shares))
