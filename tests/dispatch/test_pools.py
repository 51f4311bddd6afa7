"""Warm containers: which one is claimed, which one ends first."""

from dataclasses import dataclass
from math import inf

from hypothesis import given
from hypothesis import strategies as st

from scheduler.dispatch.pools import LeastRecentlyUsed, WarmPool

GPUS = 3


@dataclass(eq=False)
class Container:
    gpu: int
    ready_ms: float
    idle_since_ms: float = 0.0


def test_the_last_used_is_claimed_first():
    """So that those which are not needed age."""
    pool: WarmPool[Container] = WarmPool(GPUS)
    old, new = Container(1, 0.0), Container(1, 0.0)
    pool.add_idle(old)
    pool.add_idle(new)
    assert pool.claim(0) is None
    assert pool.claim(1) is new
    assert pool.claim(1) is old
    assert pool.claim(1) is None


def test_a_starting_container_may_be_claimed():
    """The soonest ready, where none is idle; its end of starting is then nothing to the pool."""
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


steps = st.lists(
    st.tuples(
        st.sampled_from(("idle", "starting", "started", "claim", "remove")),
        st.integers(0, GPUS - 1),
        st.integers(1, 5),
    ),
    max_size=40,
)


@given(steps=steps)
def test_what_placement_reads_is_what_is_there(steps):
    """Whatever happens: -inf with an idle container, else the soonest start, else inf."""
    pool: WarmPool[Container] = WarmPool(GPUS)
    idle: list[Container] = []
    starting: list[Container] = []
    for what, gpu, ready in steps:
        if what == "idle":
            idle.append(Container(gpu, 0.0))
            pool.add_idle(idle[-1])
        elif what == "starting":
            starting.append(Container(gpu, float(ready)))
            pool.add_starting(starting[-1])
        elif what == "started" and starting:
            container = starting.pop(0)
            assert pool.started(container)
            idle.append(container)
        elif what == "claim":
            claimed = pool.claim(gpu)
            if claimed is None:
                assert all(each.gpu != gpu for each in idle + starting)
            elif claimed in idle:
                idle.remove(claimed)
            else:
                assert all(each.gpu != gpu for each in idle)
                starting.remove(claimed)
        elif what == "remove" and idle + starting:
            container = (idle + starting)[0]
            (idle if container in idle else starting).remove(container)
            pool.remove(container)
        for row in range(GPUS):
            soonest = min((c.ready_ms for c in starting if c.gpu == row), default=inf)
            expected = -inf if any(c.gpu == row for c in idle) else soonest
            assert pool.ready_ms[row] == expected


def test_the_longest_idle_ends_first():
    """Of those on one GPU, whatever their function; a claimed one is out of the row."""
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
