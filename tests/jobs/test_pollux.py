"""Pollux: the search, its repair, and what it makes of the generated workload."""

from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.jobs.harness import generated, policy, pollux_job, simulated
from tests.jobs.naive import naive_repair
from workbench.jobs.cluster import TrainingCluster
from workbench.jobs.job import JobPlacement
from workbench.jobs.policies.pollux_kernels import repair, search


def drawn(seed, jobs, nodes):
    """Draw a state, its base and everything that a search takes."""
    random = np.random.default_rng(seed)
    limits = random.integers(1, 9, jobs)
    speedups = np.cumsum(random.uniform(0, 1, (jobs, 2, 10)), axis=2)
    speedups[:, :, 0] = 0.0
    return {
        "base": random.integers(0, 3, (jobs, nodes)).astype(np.uint8),
        "capacities": random.integers(1, 5, nodes),
        "limits": limits,
        "speedups": speedups,
        "factors": random.uniform(0, 1, jobs),
        "apart": bool(seed % 2),
    }


@given(seed=st.integers(0, 10**6), jobs=st.integers(1, 6), nodes=st.integers(1, 5))
def test_repair_is_that_of_the_twin(seed, jobs, nodes):
    """Limits, capacities and the rule for multi-node jobs hold; the cost is the twin's."""
    parts = drawn(seed, jobs, nodes)
    state = np.random.default_rng(seed + 1).integers(0, 5, (jobs, nodes)).astype(np.uint8)
    expected, cost = naive_repair(state, **parts)
    written = np.zeros(1)
    repair(state, *parts.values(), np.zeros((2, nodes), np.int64), written)
    assert written[0] == pytest.approx(cost)
    np.testing.assert_array_equal(state, expected)
    assert (state.sum(axis=0) <= parts["capacities"]).all()
    assert (state.sum(axis=1) <= parts["limits"]).all()


def searched(parts, generations, *, half=50, seed=1):
    base = parts["base"]
    states = np.zeros((2 * half, *base.shape), np.uint8)
    states[0] = base
    costs = np.zeros(2 * half)
    best = search(
        states, costs, np.zeros(2 * half, np.uint64), np.zeros(2 * half, np.int64), 1,
        *parts.values(), generations, np.array([seed], np.uint64),
    )  # fmt: skip
    return states[best], costs[best]


@pytest.mark.parametrize("seed", range(6))
def test_the_search_gets_near_the_best_state(seed):
    """On two jobs and three nodes, all states are tried for comparison."""
    parts = drawn(seed, 2, 3)
    parts["base"], _ = naive_repair(parts["base"], **parts)
    ranges = [range(int(gpus) + 1) for gpus in np.tile(parts["capacities"], 2)]
    lowest_cost = min(
        naive_repair(np.array(cells, np.uint8).reshape(2, 3), **parts)[1]
        for cells in product(*ranges)
    )
    _, cost = searched(parts, 100)
    assert cost <= lowest_cost * (1 + 1e-9)


def test_more_generations_are_never_worse():
    """The best state survives each generation."""
    parts = drawn(3, 6, 5)
    costs = [searched(parts, generations)[1] for generations in (0, 5, 50, 200)]
    assert costs == sorted(costs, reverse=True)


def test_a_new_job_gets_a_gpu_to_measure_itself():
    """A job that was never profiled may have one GPU."""
    jobs = [pollux_job("a"), pollux_job("b")]
    decided = policy("pollux").decide(60.0, jobs, TrainingCluster.uniform(2, 2), {})
    assert sorted(len(placement.gpus) for placement in decided.values()) == [1, 1]


def test_a_job_with_an_unchanged_row_keeps_its_gpus():
    """Numbers of GPUs do not move within a node."""
    job = pollux_job("a")
    job.placement = JobPlacement((3,))
    decided = policy("pollux").decide(
        6000.0, [job], TrainingCluster.uniform(2, 2), {"a": job.placement}
    )
    assert decided == {"a": JobPlacement((3,))}


@pytest.mark.slow
def test_pollux_is_faster_than_tiresias_and_repeatable():
    """Elastic jobs end earlier in the mean; equal seeds give equal results."""
    result = simulated("pollux")
    assert result.mean_jct_s < simulated("tiresias").mean_jct_s
    assert simulated("pollux") == result


def test_interference_slows_neighbours_down():
    """Multi-node jobs that share a node lose the given part of their speed."""
    plain = simulated("optimus", generated(nodes=3, gpus=3))
    slowed = simulated("optimus", generated(nodes=3, gpus=3, interference_ratio=0.5))
    assert slowed.mean_jct_s > plain.mean_jct_s
