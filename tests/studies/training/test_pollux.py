"""Pollux: the search, its repair, and what it makes of the generated workload."""

from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from studies.training.cluster import TrainingCluster
from studies.training.job import JobPlacement
from studies.training.policies.pollux_kernels import evaluate, rank, repair, search
from studies.training.policy import JobsState
from tests.studies.training.harness import generated, policy, pollux_job, simulated
from tests.studies.training.naive import (
    naive_crowding,
    naive_fronts,
    naive_objectives,
    naive_repair,
)


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


def objectives(state, parts):
    return naive_objectives(
        state, parts["base"], parts["capacities"], parts["speedups"], parts["factors"]
    )


@given(seed=st.integers(0, 10**6), jobs=st.integers(1, 6), nodes=st.integers(1, 5))
def test_repair_is_that_of_the_twin(seed, jobs, nodes):
    """Without a limit the state is the twin's; limits and capacities always hold."""
    parts = drawn(seed, jobs, nodes)
    rules = (parts["capacities"], parts["limits"], parts["apart"])
    state = np.random.default_rng(seed + 1).integers(0, 5, (jobs, nodes)).astype(np.uint8)
    expected, cut = naive_repair(state, *rules)
    repaired = state.copy()
    repair(repaired, *rules, np.zeros((3, nodes), np.int64), np.array([seed + 1], np.uint64))
    if not cut:
        np.testing.assert_array_equal(repaired, expected)
    assert (repaired <= state).all()
    assert (repaired.sum(axis=0) <= parts["capacities"]).all()
    assert (repaired.sum(axis=1) <= parts["limits"]).all()


def test_a_limit_cuts_nodes_at_random():
    """Each node keeps its GPUs in some of the repairs."""
    counts = np.zeros(4, int)
    for seed in range(1, 40):
        state = np.full((1, 4), 2, np.uint8)
        repair(
            state, np.full(4, 4), np.array([3]), False,
            np.zeros((3, 4), np.int64), np.array([seed * 12345], np.uint64),
        )  # fmt: skip
        assert state.sum() == 3
        counts += state[0] > 0
    assert (counts > 0).all()
    assert (counts < 39).all()


@given(seed=st.integers(0, 10**6), jobs=st.integers(1, 6), nodes=st.integers(1, 5))
def test_objectives_are_those_of_the_twin(seed, jobs, nodes):
    """Mean and sum by node in use of a possible state."""
    parts = drawn(seed, jobs, nodes)
    state, _ = naive_repair(parts["base"], parts["capacities"], parts["limits"], parts["apart"])
    state[state.sum(axis=1) > parts["limits"]] = 0
    values = np.zeros(2)
    names = ("base", "capacities", "speedups", "factors")
    evaluate(state.astype(np.uint8), *(parts[name] for name in names), values)
    assert tuple(values) == pytest.approx(objectives(state, parts))


@given(seed=st.integers(0, 10**6), states=st.integers(1, 30), levels=st.integers(1, 12))
def test_fronts_are_those_of_the_twin(seed, states, levels):
    """Also with equal objectives; in a front of different states, crowding is the twin's."""
    values = np.random.default_rng(seed).integers(0, levels, (states, 2)).astype(float)
    fronts, crowding = np.zeros(states, np.int64), np.zeros(states)
    rank(values, np.arange(states), fronts, crowding)
    assert fronts.tolist() == naive_fronts(values)
    for front in range(fronts.max() + 1):
        members = np.flatnonzero(fronts == front)
        if len(np.unique(values[members], axis=0)) == len(members) > 2:
            expected = np.minimum(naive_crowding(values[members]), 1e14)
            np.testing.assert_allclose(crowding[members], expected)


def searched(parts, generations, *, half=50, seed=1):
    base = parts["base"]
    states = np.zeros((2 * half, *base.shape), np.uint8)
    states[0] = base
    order = np.zeros(2 * half, np.int64)
    values = np.zeros((2 * half, 2))
    count = search(
        states, values, np.zeros(2 * half, np.uint64), order, 1,
        *parts.values(), generations, np.array([seed], np.uint64),
    )  # fmt: skip
    return states[order[:count]], values[order[:count]]


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(6))
def test_the_search_gets_near_the_best_state(seed):
    """On two jobs and three nodes, all states are tried for comparison."""
    parts = drawn(seed, 2, 3)
    rules = (parts["capacities"], parts["limits"], parts["apart"])
    ranges = [range(int(gpus) + 1) for gpus in np.tile(parts["capacities"], 2)]
    states = (np.array(cells).reshape(2, 3) for cells in product(*ranges))
    possible = [
        state
        for state in states
        if (naive_repair(state, *rules)[0] == state).all()
        and (state.sum(axis=1) <= parts["limits"]).all()
    ]
    lowest = min(objectives(state, parts)[0] for state in possible)
    _, values = searched(parts, 100)
    assert values[0, 0] <= lowest * (1 - 1e-9)
    assert values[0, 0] == values[:, 0].min()


def test_found_states_are_different_and_none_dominates_another():
    """They begin the next decision."""
    states, values = searched(drawn(5, 6, 5), 60)
    assert len(np.unique(states, axis=0)) == len(states)
    assert naive_fronts(values) == [0] * len(values)


def test_more_generations_are_never_worse():
    """The best state survives each generation."""
    parts = drawn(3, 6, 5)
    lowest = [searched(parts, generations)[1][0, 0] for generations in (1, 5, 50, 200)]
    assert lowest == sorted(lowest, reverse=True)


def test_a_new_job_gets_a_gpu_to_measure_itself():
    """A job that was never profiled may have one GPU."""
    jobs = [pollux_job("a"), pollux_job("b")]
    decided = policy("pollux", generations=20).decide(
        JobsState(60.0, jobs, TrainingCluster.uniform(2, 2), {})
    )
    assert sorted(len(placement.gpus) for placement in decided.values()) == [1, 1]


def test_a_job_with_an_unchanged_row_keeps_its_gpus():
    """Numbers of GPUs do not move within a node."""
    job = pollux_job("a")
    job.placement = JobPlacement((3,))
    decided = policy("pollux", generations=20).decide(
        JobsState(6000.0, [job], TrainingCluster.uniform(2, 2), {"a": job.placement})
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
