"""Other exact searches over a chain of stages, compiled: peers of the planner's kernel.

Both have the options of each stage that no other one dominates, and nothing that spans stages
except sums of each stage's fastest and cheapest option.
"""

from heapq import heapify, heappop, heappush

import numpy as np
from numba import njit

from scheduler.search.chains.astar import StageChain
from scheduler.search.frontiers.arrays import Floats, Integers


@njit(nogil=True)
def merge_per_call(
    first_ms: Floats, first_cost: Floats, chain: StageChain, budget_ms: float, costs: Floats
) -> None:
    """Set the K lowest costs of three stages; the options of the last two are merged per call.

    ``first_cost`` rises; times of an option list rise and costs fall.
    """
    middle, last = chain.option_start[1], chain.option_start[2] - 1
    costs[:] = np.inf
    for i in range(len(first_ms)):
        if first_cost[i] + chain.cheapest_cost[0] > costs[-1]:
            break
        cheapest, option = np.inf, last
        for o in range(middle):
            remaining_ms = budget_ms - first_ms[i] - chain.option_ms[o]
            while option >= middle and chain.option_ms[option] > remaining_ms:
                option -= 1
            if option < middle:
                break
            cheapest = min(cheapest, chain.option_cost[o] + chain.option_cost[option])
        at = np.searchsorted(costs, first_cost[i] + cheapest, side="right")
        if at < len(costs):
            costs[at + 1 :] = costs[at:-1].copy()
            costs[at] = first_cost[i] + cheapest


@njit(nogil=True)
def _is_dominated(times_ms: Floats, firsts: Integers, time_ms: float, first: int) -> bool:
    """Compare with the K fastest of cheaper states, each of another first configuration; add it."""
    at = len(firsts) - 1
    for i in range(len(firsts)):
        if firsts[i] == first:
            at = i
    if times_ms[at] <= time_ms:
        return True
    while at > 0 and times_ms[at - 1] > time_ms:
        times_ms[at], firsts[at] = times_ms[at - 1], firsts[at - 1]
        at -= 1
    times_ms[at], firsts[at] = time_ms, first
    return False


@njit(nogil=True)
def astar_with_dominance(
    first_ms: Floats, first_cost: Floats, chain: StageChain, budget_ms: float, costs: Floats
) -> None:
    """Set the K lowest costs by A* with the additive bound and dominance between states.

    States of a stage are expanded by rising cost. One is dominated if a state of the same first
    configuration, or of K others, was expanded before and is not slower.
    """
    stages, k = len(chain.option_start) - 1, len(costs)
    times_ms = np.full((stages + 1, k), np.inf)
    firsts = np.full((stages + 1, k), -1)
    costs[:] = np.inf
    count = 0
    heap = [
        (first_cost[i] + chain.cheapest_cost[0], first_ms[i], first_cost[i], 0, i)
        for i in range(len(first_ms))
        if first_ms[i] + chain.fastest_ms[0] <= budget_ms
    ]
    heapify(heap)
    while len(heap) > 0 and count < k:
        _, time_ms, cost, stage, first = heappop(heap)
        if _is_dominated(times_ms[stage], firsts[stage], time_ms, first):
            continue
        if stage == stages:
            costs[count] = cost
            count += 1
            continue
        for o in range(chain.option_start[stage], chain.option_start[stage + 1]):
            end_ms = time_ms + chain.option_ms[o]
            if end_ms + chain.fastest_ms[stage + 1] > budget_ms:
                break
            cost_so_far = cost + chain.option_cost[o]
            bound = cost_so_far + chain.cheapest_cost[stage + 1]
            # At the end only the cost counts.
            state_ms = 0.0 if stage + 1 == stages else end_ms
            heappush(heap, (bound, state_ms, cost_so_far, stage + 1, first))
