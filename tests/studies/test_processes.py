"""The study of docs/processes.md: even spread, what can run at once, and the bound."""

import numpy as np
import pytest

from scheduler.dispatch.pods import Share
from scheduler.dispatch.scaling.pool_sizes import PoolFunction, PoolGpu
from studies.plans.processes import StudiedPool, evenly, most_percent, pool_of, served_percent

BIG, SMALL = ("default", "big"), ("default", "small")


def pool(*, memory_mib=100.0, slices=2, big=2, small=2):
    """A pool of two functions; two processes of each fill the percent of a GPU twice."""
    functions = {
        BIG: PoolFunction(Share("gpu", 2, 60, 60), 1.0, 0.99, 1.0),
        SMALL: PoolFunction(Share("gpu", 1, 40, 30), 1.0, 0.99, 1.0),
    }
    return StudiedPool(functions, PoolGpu(memory_mib, 4.0), slices, {BIG: big, SMALL: small})


def test_processes_of_a_function_are_spread():
    assert evenly(pool(), [BIG, SMALL, BIG, SMALL]).tolist() == [[1, 1], [1, 1]]


def test_a_process_without_memory_is_left_out():
    counts = evenly(pool(memory_mib=60.0), [SMALL, SMALL, SMALL, BIG])
    assert counts.tolist() == [[0, 0], [2, 1]]


def test_a_gpu_runs_what_has_processes_on_it():
    """Two of a kind on one GPU leave the other one idle."""
    demands = np.array([2, 2])
    apart = np.array([[2, 0], [0, 2]])
    assert served_percent(pool(), apart, demands) == pytest.approx(100.0 + 80.0)
    assert served_percent(pool(), np.ones((2, 2)), demands) == pytest.approx(200.0)


def test_no_placement_serves_more_than_the_bound():
    """Random placements of what the scaler wants."""
    known, rng = pool(slices=3, big=4, small=5), np.random.default_rng(0)
    for _ in range(20):
        counts = np.stack([rng.multinomial(n, [1 / 3] * 3) for n in (4, 5)])
        demands = rng.poisson([3.0, 4.0])
        served = served_percent(known, counts, demands)
        assert served <= most_percent(known, demands) + 1e-6


def test_the_pool_is_that_of_the_scaler():
    known = pool_of("strict-light", 40)
    assert known.slices == 5
    assert all(count >= known.slices for count in known.processes.values())
