"""Kernel of Pollux' genetic search: see `pollux`.

``tests/jobs/naive.py`` holds the slow twin of its repair and its fitness.
"""

from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

Bytes = NDArray[np.uint8]
Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Words = NDArray[np.uint64]

FLOOR = 1e-3  # added to the speed-up of every job, so that one without GPUs has a finite cost
_RESET_PERCENT = 10
_AGAIN_PERCENT = 50  # of mutations, for another one
_UNIT = 2.0**-53


@njit("uint64(uint64[::1])", nogil=True, cache=True)
def _draw(random: Words) -> Any:
    """Return the next number of a xorshift generator, whose state is one word."""
    state = random[0]
    state ^= state >> np.uint64(12)
    state ^= state << np.uint64(25)
    state ^= state >> np.uint64(27)
    random[0] = state
    return state * np.uint64(2685821657736338717)


@njit("int64(uint64[::1], int64)", nogil=True, cache=True)
def _draw_below(random: Words, limit: int) -> Any:
    return np.int64((_draw(random) >> np.uint64(33)) % np.uint64(limit))


@njit(
    "void(uint8[:, ::1], uint8[:, ::1], int64[::1], int64[::1], float64[:, :, ::1],"
    "float64[::1], boolean, int64[:, ::1], float64[::1])",
    nogil=True,
    cache=True,
)
def repair(
    state: Bytes,
    base: Bytes,
    capacities: Ints,
    limits: Ints,
    speedups: Floats,
    factors: Floats,
    apart: bool,  # noqa: FBT001 - kernels take no keywords
    scratch: Ints,
    cost: Floats,
) -> None:
    """Make a state possible, in the order of its jobs, and write its cost, smaller is better.

    A job has at most its limit of GPUs; at most one job with several nodes is on a node; a node has
    no more GPUs than it has. The cost is the sum of the inverse speed-ups.

    Args:
        state: GPUs by job and node; changed in place.
        base: the current one.
        capacities: GPUs of each node.
        limits: GPUs of each job.
        speedups: by job, by one node (0) or several (1), by GPUs.
        factors: of the speed-up of a job whose row changes.
        apart: jobs with several nodes share no node.
        scratch: (2, nodes).
        cost: (1,), written.
    """
    jobs, nodes = state.shape
    for n in range(nodes):
        scratch[0, n] = capacities[n]
        scratch[1, n] = 0  # no job with several nodes
    total = 0.0
    for j in range(jobs):
        remaining = limits[j]
        used = 0
        gpus = 0
        for n in range(nodes):
            held = min(np.int64(state[j, n]), remaining, scratch[0, n])
            remaining -= held
            used += held > 0
            gpus += held
            state[j, n] = held
        if apart and used > 1:
            for n in range(nodes):
                if state[j, n] > 0 and scratch[1, n] > 0:
                    gpus -= state[j, n]
                    used -= 1
                    state[j, n] = 0
        changed = False
        for n in range(nodes):
            held = np.int64(state[j, n])
            scratch[0, n] -= held
            if used > 1 and held > 0:
                scratch[1, n] = 1
            changed |= held != base[j, n]
        speedup = speedups[j, 1 if used > 1 else 0, gpus]
        total += 1.0 / (speedup * (factors[j] if changed else 1.0) + FLOOR)
    cost[0] = total


@njit("uint64(uint8[:, ::1])", nogil=True, cache=True)
def _hash(state: Bytes) -> Any:
    jobs, nodes = state.shape
    total = np.uint64(14695981039346656037)
    for j in range(jobs):
        row = np.uint64(j + 1)
        for n in range(nodes):
            row = row * np.uint64(31) + np.uint64(state[j, n])
        total = (total ^ row) * np.uint64(1099511628211)
    return total


@njit(
    "void(uint8[:, ::1], uint8[:, ::1], int64[::1], uint64[::1])",
    nogil=True,
    cache=True,
)
def _mutate(state: Bytes, base: Bytes, capacities: Ints, random: Words) -> None:
    """Reset rows to the current ones, free GPUs of jobs, and give GPUs to jobs."""
    jobs, nodes = state.shape
    for j in range(jobs):
        if _draw_below(random, 100) < _RESET_PERCENT:
            for n in range(nodes):
                state[j, n] = base[j, n]
    while True:
        j = _draw_below(random, jobs)
        n = _draw_below(random, nodes)
        if state[j, n] > 0 and _draw_below(random, 2):
            state[j, n] = 0
        else:
            state[j, n] = 1 + _draw_below(random, capacities[n])
        if _draw_below(random, 100) >= _AGAIN_PERCENT:
            break


@njit("void(float64[::1], uint64[::1], int64[::1])", nogil=True, cache=True)
def _rank(costs: Floats, hashes: Words, order: Ints) -> None:
    """Order states by cost, duplicates last; equal costs keep their order."""
    total = order.shape[0]
    ranked = order[np.argsort(costs[order], kind="mergesort")]
    place = 0
    last = total - 1
    rest = np.empty(total, np.int64)
    duplicates = 0
    for i in range(total):
        index = ranked[i]
        # A duplicate has the same cost, so it stands next to its twin or near it.
        twin = False
        back = place - 1
        while back >= 0 and costs[order[back]] == costs[index]:
            if hashes[order[back]] == hashes[index]:
                twin = True
                break
            back -= 1
        if twin:
            rest[duplicates] = index
            duplicates += 1
        else:
            order[place] = index
            place += 1
    for i in range(duplicates):
        order[last - duplicates + 1 + i] = rest[i]


@njit(
    "int64(uint8[:, :, ::1], float64[::1], uint64[::1], int64[::1], int64, uint8[:, ::1],"
    "int64[::1], int64[::1], float64[:, :, ::1], float64[::1], boolean, int64, uint64[::1])",
    nogil=True,
    cache=True,
)
def search(
    states: Bytes,
    costs: Floats,
    hashes: Words,
    order: Ints,
    known: int,
    base: Bytes,
    capacities: Ints,
    limits: Ints,
    speedups: Floats,
    factors: Floats,
    apart: bool,  # noqa: FBT001 - kernels take no keywords
    generations: int,
    random: Words,
) -> int:
    """Search for the state of least cost; return its index in ``states``.

    Args:
        states: (2 p, jobs, nodes): the first ``known`` begin the search; the best p are at the
            indices in the first half of ``order`` afterwards, best first.
        costs: (2 p,), scratch.
        hashes: (2 p,), scratch.
        order: (2 p,), written.
        known: number of initial states, from 1 to p.
        base: the current state.
        capacities: GPUs of each node.
        limits: GPUs of each job.
        speedups: by job, one node or several, GPUs.
        factors: of a job whose row changes.
        apart: jobs with several nodes share no node.
        generations: number.
        random: (1,): state of the generator, not 0; written.
    """
    total, jobs, nodes = states.shape
    half = total // 2
    scratch = np.zeros((2, nodes), np.int64)
    for i in range(total):
        order[i] = i
        costs[i] = np.inf
    for i in range(half):
        if i >= known:
            states[i] = states[i % known]
            _mutate(states[i], base, capacities, random)
        cost = costs[i : i + 1]
        repair(states[i], base, capacities, limits, speedups, factors, apart, scratch, cost)
        hashes[i] = _hash(states[i])
    for _ in range(generations):
        for c in range(half, total):
            child = order[c]
            first = order[min(_draw_below(random, half), _draw_below(random, half))]
            second = order[min(_draw_below(random, half), _draw_below(random, half))]
            cut = _draw_below(random, jobs + 1)
            for j in range(jobs):
                parent = first if j < cut else second
                for n in range(nodes):
                    states[child, j, n] = states[parent, j, n]
            _mutate(states[child], base, capacities, random)
            cost = costs[child : child + 1]
            repair(states[child], base, capacities, limits, speedups, factors, apart, scratch, cost)
            hashes[child] = _hash(states[child])
        _rank(costs, hashes, order)
    return int(order[0])
