"""The number of pods that a function needs follows the time that its batches take."""

from math import ceil

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler.gateway.pod_demand import BUSY_RATIO, WINDOWS_S, PodDemand

F = ("n", "f")


class Load:
    """A demand with a clock that the test sets."""

    def __init__(self):
        self.now_s = 1000.0
        self.demand = PodDemand(lambda: self.now_s)

    def run(self, busy, seconds):
        """Keep this many pods busy."""
        for _ in range(seconds):
            self.now_s += 1.0
            self.demand.ran(F, busy)

    def wanted(self, pods=0, slots=1):
        return self.demand.wanted(F, pods=pods, slots=slots)


def test_an_idle_function_needs_none():
    """Without a request for a minute, no pod is wanted."""
    load = Load()
    assert load.wanted(pods=5) == 0
    load.run(3.0, 10)
    load.now_s += WINDOWS_S[-1] + 1
    assert load.wanted(pods=5) == 0


@given(st.floats(0.001, 50), st.integers(1, 4))
def test_a_steady_load(busy, slots):
    """Pods are wanted so that each of their slots is busy for 75 % of the time."""
    load = Load()
    load.run(busy, 120)
    assert load.wanted(slots=slots) == max(1, ceil(busy / (BUSY_RATIO * slots) - 1e-9))


def test_a_rise_counts_at_once_and_stays():
    """Ten seconds of a higher load count in full; its end counts after a minute."""
    load = Load()
    load.run(1.0, 120)
    load.run(6.0, 10)
    assert load.wanted() == 8
    load.run(1.0, 30)
    assert 2 < load.wanted() < 8
    load.run(1.0, 60)
    assert load.wanted() == 2


def test_a_batch_below_the_clocks_resolution():
    """A function that ran anything needs a pod."""
    load = Load()
    load.demand.ran(F, 0.0)
    assert load.wanted() == 1


@pytest.mark.parametrize("pods", [0, 3])
def test_unserved_requests(pods):
    """A refused or dropped request wants one pod more than there are, for ten seconds."""
    load = Load()
    load.demand.unserved(F)
    assert load.wanted(pods=pods) == pods + 1
    load.now_s += WINDOWS_S[0]
    assert load.wanted(pods=pods) == 0
