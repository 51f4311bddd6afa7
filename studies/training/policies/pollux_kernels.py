"""Kernels of Pollux' genetic search: see `pollux`.

``tests/studies/training/naive.py`` holds the slow twins of its repair, objectives and ranking.
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
_RESET_RATIO = 0.1  # of rows
_FREED_ROWS_RATIO, _FREED_RATIO = 0.1, 0.1  # of rows, and of GPUs by node in such a row
_CROSSOVER_RATIO = 0.9
_ROUNDS_MAX = 100  # of mating in a generation, where all children are known
_ALONE = 1e14  # crowding distance of the ends of a front
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


@njit("float64(uint64[::1])", nogil=True, cache=True)
def _draw_ratio(random: Words) -> Any:
    return np.float64(_draw(random) >> np.uint64(11)) * _UNIT


@njit("void(uint8[::1], int64[::1])", nogil=True, cache=True)
def _separate(row: Bytes, crowded: Ints) -> None:
    """Take a job with several nodes off those that another such job is on."""
    nodes = row.shape[0]
    used = 0
    for n in range(nodes):
        used += row[n] > 0
    if used > 1:
        for n in range(nodes):
            if row[n] > 0:
                row[n] = 0 if crowded[n] else row[n]
                crowded[n] = 1


@njit(
    "void(uint8[:, ::1], int64[::1], int64[::1], boolean, int64[:, ::1], uint64[::1])",
    nogil=True,
    cache=True,
)
def repair(
    state: Bytes,
    capacities: Ints,
    limits: Ints,
    apart: bool,  # noqa: FBT001 - kernels take no keywords
    scratch: Ints,
    random: Words,
) -> None:
    """Make a state possible, in the order of its jobs.

    At most one job with several nodes is on a node; a job has at most its limit of GPUs, on nodes
    in random order; a node has no more GPUs than it has.

    Args:
        state: GPUs by job and node; changed in place.
        capacities: GPUs of each node.
        limits: GPUs of each job.
        apart: true if jobs with several nodes share no node.
        scratch: (3, nodes).
        random: (1,): state of the generator, not 0; written.
    """
    jobs, nodes = state.shape
    free, crowded, order = scratch[0], scratch[1], scratch[2]
    for n in range(nodes):
        free[n] = capacities[n]
        crowded[n] = 0  # no job with several nodes
        order[n] = n
    for j in range(jobs):
        if apart:
            _separate(state[j], crowded)
        gpus = 0
        for n in range(nodes):
            gpus += state[j, n]
        remaining = limits[j]
        if gpus > remaining:
            for i in range(nodes - 1, 0, -1):
                swap = _draw_below(random, i + 1)
                order[i], order[swap] = order[swap], order[i]
            for n in order:
                state[j, n] = min(np.int64(state[j, n]), remaining)
                remaining -= state[j, n]
        for n in range(nodes):
            state[j, n] = min(np.int64(state[j, n]), free[n])
            free[n] -= state[j, n]


@njit(
    "void(uint8[:, ::1], uint8[:, ::1], int64[::1], float64[:, :, ::1], float64[::1],float64[::1])",
    nogil=True,
    cache=True,
)
def evaluate(
    state: Bytes, base: Bytes, capacities: Ints, speedups: Floats, factors: Floats, values: Floats
) -> None:
    """Write the two objectives of a possible state, smaller is better.

    Args:
        state: GPUs by job and node.
        base: current state.
        capacities: GPUs of each node.
        speedups: speed-up by job, by one node (0) or several (1), by GPUs.
        factors: factor of the speed-up of a job whose row changes, by job.
        values: (2,), written: the harmonic mean of speed-ups, and the sum of speed-ups over the
            GPUs of nodes in use; both negative.
    """
    jobs, nodes = state.shape
    inverse = 0.0
    total = 0.0
    for j in range(jobs):
        used = 0
        gpus = 0
        changed = False
        for n in range(nodes):
            own_gpus: Any = np.int64(state[j, n])
            used += own_gpus > 0
            gpus += own_gpus
            changed |= own_gpus != base[j, n]
        speedup = speedups[j, 1 if used > 1 else 0, gpus]
        total += speedup
        inverse += 1.0 / (speedup * (factors[j] if changed else 1.0) + FLOOR)
    active = 0
    for n in range(nodes):
        for j in range(jobs):
            if state[j, n] > 0:
                active += capacities[n]
                break
    values[0] = -jobs / inverse
    values[1] = -total / active if active else 0.0


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


@njit("void(uint8[:, ::1], int64, int64, uint64[::1])", nogil=True, cache=True)
def _fill(state: Bytes, node: int, capacity: Any, random: Words) -> None:
    """Give jobs GPUs of a node that has room; those that are on it more often."""
    jobs = state.shape[0]
    free = capacity
    holders = 0
    for j in range(jobs):
        free -= state[j, node]
        holders += state[j, node] > 0
    if free > 0:
        ratio = 1.0 / jobs
        holder_ratio = ratio + (1.0 - ratio) / max(holders, 1)
        for j in range(jobs):
            own_gpus = np.int64(state[j, node])
            if _draw_ratio(random) < (holder_ratio if own_gpus else ratio):
                state[j, node] = own_gpus + _draw_below(random, capacity - own_gpus + 1)


@njit("void(uint8[:, ::1], uint8[:, ::1], int64[::1], uint64[::1])", nogil=True, cache=True)
def _mutate(state: Bytes, base: Bytes, capacities: Ints, random: Words) -> None:
    """Reset rows to the current ones, free GPUs of jobs, and give jobs GPUs of nodes with room."""
    jobs, nodes = state.shape
    for j in range(jobs):
        if _draw_ratio(random) < _RESET_RATIO:
            for n in range(nodes):
                state[j, n] = base[j, n]
        if _draw_ratio(random) < _FREED_ROWS_RATIO:
            for n in range(nodes):
                if state[j, n] > 0 and _draw_ratio(random) < _FREED_RATIO:
                    state[j, n] = 0
    for n in range(nodes):
        _fill(state, n, capacities[n], random)


@njit("boolean(float64[::1], float64[::1])", nogil=True, cache=True)
def _equal(first: Floats, second: Floats) -> Any:
    return first[0] == second[0] and first[1] == second[1]


@njit("boolean(float64[::1], float64[::1])", nogil=True, cache=True)
def _dominates(first: Floats, second: Floats) -> Any:
    return (
        first[0] <= second[0]
        and first[1] <= second[1]
        and (first[0] < second[0] or first[1] < second[1])
    )


@njit(
    "void(float64[:, ::1], int64[::1], int64[::1], int64[::1], int64[::1], float64[::1])",
    nogil=True,
    cache=True,
)
def _measure(
    values: Floats, members: Ints, fronts: Ints, first: Ints, last: Ints, crowding: Floats
) -> None:
    """Write the distances of states that have a neighbour on both sides in their front."""
    before = np.full(len(members), -1, np.int64)
    middle = np.full(len(members), -1, np.int64)
    for i in members:
        front = fronts[i]
        if crowding[i] == 0.0:
            continue
        if before[front] >= 0:
            gap = 0.0
            for column in range(2):
                span = abs(values[last[front], column] - values[first[front], column])
                gap += abs(values[i, column] - values[before[front], column]) / span
            crowding[middle[front]] = gap / 2
        before[front] = middle[front]
        middle[front] = i


@njit("void(float64[:, ::1], int64[::1], int64[::1], float64[::1])", nogil=True, cache=True)
def rank(values: Floats, members: Ints, fronts: Ints, crowding: Floats) -> None:
    """Sort states into fronts that dominate one another, and measure their crowding.

    Args:
        values: (states, 2): objectives, smaller is better.
        members: states to rank; sorted in place, by the first objective.
        fronts: (states,), written: 0 is dominated by none.
        crowding: (states,), written: distance to the neighbours in the front; 0 for a state with
            the same objectives as another one.
    """
    count = members.shape[0]
    by_second = members[np.argsort(values[members, 1], kind="mergesort")]
    members[:] = by_second[np.argsort(values[by_second, 0], kind="mergesort")]
    last = np.empty(count, np.int64)  # state of each front that came last
    first = np.empty(count, np.int64)
    front_count = 0
    for i in members:
        front = 0
        while front < front_count and (
            values[last[front], 1] <= values[i, 1] and not _equal(values[last[front]], values[i])
        ):
            front += 1
        fronts[i] = front
        crowding[i] = _ALONE
        if front == front_count:
            front_count += 1
            first[front] = i
        elif _equal(values[last[front]], values[i]):
            crowding[i] = 0.0
            continue
        last[front] = i
    _measure(values, members, fronts, first, last, crowding)


@njit(
    "int64(float64[:, ::1], float64[::1], int64[::1], int64, uint64[::1])",
    nogil=True,
    cache=True,
)
def _parent(values: Floats, crowding: Floats, order: Ints, count: int, random: Words) -> Any:
    """Return the better of two random states: one that dominates, else the less crowded one."""
    first = order[_draw_below(random, count)]
    second = order[_draw_below(random, count)]
    if _dominates(values[first], values[second]):
        return first
    if _dominates(values[second], values[first]):
        return second
    if crowding[first] == crowding[second]:
        return first if _draw_below(random, 2) else second
    return first if crowding[first] > crowding[second] else second


@njit("void(uint8[:, ::1], uint8[:, ::1], uint8[:, :, ::1], uint64[::1])", nogil=True, cache=True)
def _cross(first: Bytes, second: Bytes, children: Bytes, random: Words) -> None:
    """Write two children that exchange the rows before a random job."""
    jobs = first.shape[0]
    cut = _draw_below(random, jobs) if _draw_ratio(random) < _CROSSOVER_RATIO else 0
    for j in range(jobs):
        children[0, j] = second[j] if j < cut else first[j]
        children[1, j] = first[j] if j < cut else second[j]


@njit("void(int64[::1], int64[::1], float64[::1], uint64[::1])", nogil=True, cache=True)
def _sort(members: Ints, fronts: Ints, weights: Floats, random: Words) -> None:
    """Sort states by front, then by descending weight, then at random."""
    for i in range(members.shape[0] - 1, 0, -1):
        swap = _draw_below(random, i + 1)
        members[i], members[swap] = members[swap], members[i]
    by_weight = members[np.argsort(-weights[members], kind="mergesort")]
    members[:] = by_weight[np.argsort(fronts[by_weight], kind="mergesort")]


@njit(
    "int64(uint8[:, :, ::1], float64[:, ::1], uint64[::1], int64[::1], int64, uint8[:, ::1],"
    "int64[::1], int64[::1], float64[:, :, ::1], float64[::1], boolean, int64, uint64[::1])",
    nogil=True,
    cache=True,
)
def search(
    states: Bytes,
    values: Floats,
    hashes: Words,
    order: Ints,
    initial_count: int,
    base: Bytes,
    capacities: Ints,
    limits: Ints,
    speedups: Floats,
    factors: Floats,
    apart: bool,  # noqa: FBT001 - kernels take no keywords
    generations: int,
    random: Words,
) -> int:
    """Search for states that no other one dominates; return their number.

    Args:
        states: (2 p, jobs, nodes): the first ``initial_count`` begin the search; afterwards the
            best are at the indices in ``order``, that with the largest mean speed-up first.
        values: (2 p, 2), written: objectives.
        hashes: (2 p,), scratch.
        order: (2 p,), written.
        initial_count: number of initial states, from 1 to p.
        base: current state.
        capacities: GPUs of each node.
        limits: GPUs of each job.
        speedups: speed-up by job, by one node (0) or several (1), by GPUs.
        factors: factor of the speed-up of a job whose row changes, by job.
        apart: true if jobs with several nodes share no node.
        generations: number of generations, with that of the initial states.
        random: (1,): state of the generator, not 0; written.
    """
    total, jobs, nodes = states.shape
    half = total // 2
    scratch = np.zeros((3, nodes), np.int64)
    fronts = np.zeros(total, np.int64)
    crowding = np.zeros(total)
    child = np.zeros((2, jobs, nodes), np.uint8)
    for i in range(total):
        order[i] = i
    count = 0
    for i in range(initial_count):
        repair(states[i], capacities, limits, apart, scratch, random)
        hashes[count] = _hash(states[i])
        if not (hashes[:count] == hashes[count]).any():
            states[count] = states[i]
            evaluate(states[count], base, capacities, speedups, factors, values[count])
            count += 1
    rank(values, order[:count], fronts, crowding)
    for _ in range(generations - 1):
        grown = count
        pairs = 0
        while grown < count + half and pairs < _ROUNDS_MAX * half:
            pairs += 1
            first = states[_parent(values, crowding, order, count, random)]
            second = states[_parent(values, crowding, order, count, random)]
            _cross(first, second, child, random)
            for twin in range(2):
                if grown == count + half:
                    break
                _mutate(child[twin], base, capacities, random)
                repair(child[twin], capacities, limits, apart, scratch, random)
                digest = _hash(child[twin])
                if not (hashes[order[:grown]] == digest).any():
                    new = order[grown]
                    states[new] = child[twin]
                    hashes[new] = digest
                    evaluate(states[new], base, capacities, speedups, factors, values[new])
                    grown += 1
        rank(values, order[:grown], fronts, crowding)
        _sort(order[:grown], fronts, crowding, random)
        count = min(grown, half)
    rank(values, order[:count], fronts, crowding)
    _sort(order[:count], fronts, -values[:, 0], random)
    best = 0
    while best < count and fronts[order[best]] == 0:
        best += 1
    return best
