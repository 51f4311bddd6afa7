"""A* over a chain of stages with the paper's bounds, for policy ``esg``.

A state fixes the configuration of the current stage and the options of the first later stages; its
children fix the next stage. The paper calls its two rules for cutting states blades:

- By time: a state is cut if it exceeds the budget even with every open stage at its fastest. The
  options of a stage are sorted by time, so the rest of its list is cut as well.
- By cost: the completion of a state with every open stage at its fastest is a real one, hence an
  upper bound *of its first configuration*. A state is cut if its lower bound, with every open stage
  at its cheapest, exceeds the upper bound of its own first configuration, or the K-th smallest over
  all first configurations. A bound per first configuration cannot count one path twice, which one
  heap of states of several depths would do.

If expansions or memory run out, all open states are completed greedily. The result is then still
real completions within the budget, and the lower bounds of the open states limit their distance
from the minimum.
"""

from numba import b1, f8, i8, njit, void

from scheduler.search.chains.astar import ChainQuery, SearchResult, StageChain, States
from scheduler.search.frontiers.array_types import type_of
from scheduler.search.frontiers.frontier_arrays import ROUNDING

_CHAIN = type_of(StageChain)
_QUERY = type_of(ChainQuery)
_STATES = type_of(States)
_RESULT = type_of(SearchResult)


@njit(b1(_STATES, i8, i8), nogil=True, cache=True)
def _precedes(states: States, a: int, b: int) -> bool:
    """Compare two states by lower bound, then by age."""
    return bool(states.bound[a] < states.bound[b] or (states.bound[a] == states.bound[b] and a < b))


@njit(void(_STATES, i8, i8), nogil=True, cache=True)
def _push(states: States, size: int, state: int) -> None:
    """Add a state to the heap of ``size`` states."""
    heap = states.heap
    at = size
    while at > 0 and _precedes(states, state, heap[(at - 1) // 2]):
        heap[at] = heap[(at - 1) // 2]
        at = (at - 1) // 2
    heap[at] = state


@njit(i8(_STATES, i8), nogil=True, cache=True)
def _pop(states: States, size: int) -> int:
    """Remove the best state from the heap of ``size`` states."""
    heap = states.heap
    best = heap[0]
    moved = heap[size - 1]
    at = 0
    while True:
        child = 2 * at + 1
        if child >= size - 1:
            break
        if child + 1 < size - 1 and _precedes(states, heap[child + 1], heap[child]):
            child += 1
        if not _precedes(states, heap[child], moved):
            break
        heap[at] = heap[child]
        at = child
    heap[at] = moved
    return int(best)


@njit(void(_RESULT, i8, f8, f8), nogil=True, cache=True)
def _record(best: SearchResult, first: int, cost_dollars: float, path_ms: float) -> None:
    """Store a completion if it is the best one of its first configuration."""
    previous_dollars = best.cost[first]
    if cost_dollars > previous_dollars or (
        cost_dollars == previous_dollars and path_ms >= best.path_ms[first]
    ):
        return
    best.cost[first] = cost_dollars
    best.path_ms[first] = path_ms
    leaders = best.leaders
    count = best.leader_count[0]
    at = 0
    while at < count and leaders[at] != first:
        at += 1
    if at == count:
        if count < leaders.shape[0]:
            best.leader_count[0] += 1
        elif cost_dollars < best.cost[leaders[count - 1]]:
            at = count - 1
        else:
            return
    while at > 0 and best.cost[leaders[at - 1]] > cost_dollars:
        leaders[at] = leaders[at - 1]
        at -= 1
    leaders[at] = first


@njit(b1(_RESULT, i8, f8, f8), nogil=True, cache=True)
def _is_cut_by_cost(best: SearchResult, first: int, bound_dollars: float, low_ms: float) -> bool:
    """Return true if no completion of a state with these lower bounds improves the result."""
    upper_dollars = best.cost[first]
    if bound_dollars > upper_dollars * (1.0 + ROUNDING):
        return True
    if bound_dollars >= upper_dollars * (1.0 - ROUNDING) and low_ms >= best.path_ms[first]:
        return True
    k = best.leaders.shape[0]
    if best.leader_count[0] < k:
        return False
    return bool(bound_dollars > best.cost[best.leaders[k - 1]] * (1.0 + ROUNDING))


@njit(i8(_CHAIN, _STATES, _RESULT, i8, i8, i8, i8, f8, f8), nogil=True, cache=True)
def _add(
    chain: StageChain,
    states: States,
    best: SearchResult,
    size: int,
    state: int,
    stage: int,
    first: int,
    time_ms: float,
    cost_dollars: float,
) -> int:
    """Record the fastest completion of a new state, and push it unless it is cut by cost.

    Returns the new size of the heap.
    """
    low_ms = time_ms + chain.fastest_ms[stage]
    _record(best, first, cost_dollars + chain.fastest_cost[stage], low_ms)
    if stage == chain.fastest_ms.shape[0] - 1:
        return size
    bound = cost_dollars + chain.cheapest_cost[stage]
    if _is_cut_by_cost(best, first, bound, low_ms):
        best.counts[2] += 1
        return size
    states.stage[state] = stage
    states.first[state] = first
    states.time_ms[state] = time_ms
    states.cost[state] = cost_dollars
    states.bound[state] = bound
    _push(states, size, state)
    return size + 1


@njit(void(_CHAIN, _STATES, _RESULT, i8, f8), nogil=True, cache=True)
def _complete_greedily(
    chain: StageChain, states: States, best: SearchResult, state: int, budget_ms: float
) -> None:
    """Give each open stage its cheapest option that leaves the later ones enough time."""
    time_ms, cost = states.time_ms[state], states.cost[state]
    for v in range(states.stage[state], chain.fastest_ms.shape[0] - 1):
        option = chain.option_start[v]
        while (
            option + 1 < chain.option_start[v + 1]
            and time_ms + chain.option_ms[option + 1] + chain.fastest_ms[v + 1] <= budget_ms
        ):
            option += 1
        time_ms += chain.option_ms[option]
        cost += chain.option_cost[option]
    _record(best, states.first[state], cost, time_ms)


@njit(i8(_CHAIN, _STATES, _RESULT, _QUERY), nogil=True, cache=True)
def search(chain: StageChain, states: States, best: SearchResult, query: ChainQuery) -> int:
    """Find the K first configurations with the cheapest completions within the budget.

    - chain: of at least one stage.
    - states: memory for at least as many states as there are first configurations.
    - best: an empty result, filled in place. If the search is exact, ``cost`` and ``path_ms`` are
      exact for the K cheapest first configurations.

    Returns the number of open states: 0 if the search is exact; otherwise the expansions or the
    states did not suffice, and the open states are in the heap.
    """
    budget_ms = query.budget_ms
    size = 0
    used = query.first_ms.shape[0]
    for i in range(used):
        if query.first_ms[i] + chain.fastest_ms[0] > budget_ms:
            best.counts[1] += used - i
            break
        size = _add(chain, states, best, size, i, 0, i, query.first_ms[i], query.first_cost[i])
    while size > 0:
        state = _pop(states, size)
        size -= 1
        v, first = states.stage[state], states.first[state]
        low_ms = states.time_ms[state] + chain.fastest_ms[v]
        if _is_cut_by_cost(best, first, states.bound[state], low_ms):
            best.counts[2] += 1
            continue
        begin, end = chain.option_start[v], chain.option_start[v + 1]
        if best.counts[0] == query.expansions_max or used + end - begin > states.stage.shape[0]:
            _push(states, size, state)
            size += 1
            break
        best.counts[0] += 1
        for o in range(begin, end):
            time_ms = states.time_ms[state] + chain.option_ms[o]
            if time_ms + chain.fastest_ms[v + 1] > budget_ms:
                best.counts[1] += end - o
                break
            cost = states.cost[state] + chain.option_cost[o]
            before = size
            size = _add(chain, states, best, size, used, v + 1, first, time_ms, cost)
            used += size - before
    for at in range(size):
        _complete_greedily(chain, states, best, states.heap[at], budget_ms)
    return size
