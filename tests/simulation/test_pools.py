"""Pools of warm containers: order of claims and of evictions."""

from dataclasses import dataclass
from math import inf

from hypothesis import given
from hypothesis import strategies as st

from workbench.simulation.containers.pools import LeastRecentlyUsed, WarmPool

GPUS = 3


@dataclass(eq=False)
class Container:
    gpu: int
    ready_ms: float
    idle_since_ms: float = 0.0


def test_last_used_container_is_claimed_first():
    """Surplus containers age."""
    pool: WarmPool[Container] = WarmPool(GPUS)
    old, new = Container(1, 0.0), Container(1, 0.0)
    pool.add_idle(old)
    pool.add_idle(new)
    assert pool.claim(0) is None
    assert pool.claim(1) is new
    assert pool.claim(1) is old
    assert pool.claim(1) is None


def test_starting_container_may_be_claimed():
    """Without an idle one, the soonest ready is claimed; its start then ends without effect."""
    pool: WarmPool[Container] = WarmPool(GPUS)
    later, sooner = Container(1, 90.0), Container(1, 70.0)
    pool.add_starting(later)
    pool.add_starting(sooner)
    assert pool.ready_ms.tolist() == [inf, 70.0, inf]
    assert pool.claim(1) is sooner
    assert pool.ready_ms[1] == 90.0
    assert not pool.started(sooner)
    assert pool.started(later)
    assert pool.ready_ms[1] == -inf


def test_soonest_end_of_a_run_is_predicted():
    """A container that is idle again is not busy, whenever its run should have ended."""
    pool: WarmPool[Container] = WarmPool(GPUS)
    assert pool.soonest_free_ms() == inf
    short, long = Container(0, 0.0), Container(1, 0.0)
    pool.add_busy(short, 40.0)
    pool.add_busy(long, 90.0)
    assert pool.soonest_free_ms() == 40.0
    pool.add_idle(short)
    assert pool.soonest_free_ms() == 90.0
    pool.add_idle(long)
    assert pool.soonest_free_ms() == inf


steps = st.lists(
    st.tuples(
        st.sampled_from(("idle", "starting", "started", "claim", "remove")),
        st.integers(0, GPUS - 1),
        st.integers(1, 5),
    ),
    max_size=40,
)


@given(steps=steps)
def test_ready_times_match_a_naive_model(steps):
    """After any steps: -inf with an idle container, else the soonest start, else inf."""
    pool: WarmPool[Container] = WarmPool(GPUS)
    idle: list[Container] = []
    starting: list[Container] = []
    for step, gpu, ready in steps:
        if step == "idle":
            idle.append(Container(gpu, 0.0))
            pool.add_idle(idle[-1])
        elif step == "starting":
            starting.append(Container(gpu, float(ready)))
            pool.add_starting(starting[-1])
        elif step == "started" and starting:
            container = starting.pop(0)
            assert pool.started(container)
            idle.append(container)
        elif step == "claim":
            claimed = pool.claim(gpu)
            if claimed is None:
                assert all(container.gpu != gpu for container in idle + starting)
            elif claimed in idle:
                idle.remove(claimed)
            else:
                assert all(container.gpu != gpu for container in idle)
                starting.remove(claimed)
        elif step == "remove" and idle + starting:
            container = (idle + starting)[0]
            (idle if container in idle else starting).remove(container)
            pool.remove(container)
        for row in range(GPUS):
            soonest = min((c.ready_ms for c in starting if c.gpu == row), default=inf)
            expected = -inf if any(c.gpu == row for c in idle) else soonest
            assert pool.ready_ms[row] == expected


def test_longest_idle_container_is_evicted_first():
    """The order covers one GPU and all functions; a claimed container is not in it."""
    row: LeastRecentlyUsed[Container] = LeastRecentlyUsed()
    assert row.idle_since_ms() == inf
    first, second = Container(0, 0.0, idle_since_ms=1.0), Container(0, 0.0, idle_since_ms=2.0)
    row[first] = None
    row[second] = None
    assert row.oldest() is first
    assert row.idle_since_ms() == 1.0
    row.pop(first)
    assert row.oldest() is second
    first.idle_since_ms = 5.0
    row[first] = None
    assert list(row) == [second, first]
