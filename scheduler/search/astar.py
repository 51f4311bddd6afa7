# ruff: noqa: PLR0913, PLR0917, FBT001 - kernels take plain arrays and no keywords
"""A* over a DAG of stages, for those orders that no Pareto frontier describes exactly.

A state fixes the options of stages 0..d; it has their cost per request and their finish times. Its
children fix stage d+1. The paper calls its two rules for cutting states blades:

- By time: a state is cut if the longest path exceeds the budget even with every open stage at its
  fastest. The options of a stage are sorted by time, so the rest of its list is cut as well.
- By cost: the completion of a state with every open stage at its fastest is a real one, hence an
  upper bound *of its first configuration*. A state is cut if its lower bound exceeds the upper
  bound of its own first configuration, or the K-th smallest over all first configurations. A bound
  per first configuration cannot count one path twice, which one heap of states of several depths
  would do.

There are two lower bounds, and the larger one counts:

- By prices of time (`price_kernels`): each open stage takes the option with the minimum of cost +
  price x time, and the value of the budget at these prices is subtracted. It regards all paths at
  once and takes two additions per state.
- By chains: the open stages are split into chains. A chain must end early enough for its successors
  at their fastest, so it costs at least the value of its own frontier at that time. It regards that
  a stage runs under one of its configurations and not under a mixture of two.

``additive`` selects the paper's bound instead: each open stage costs at least its cheapest option.
Before a first configuration is expanded, one greedy completion gives a good upper bound.

If expansions or memory run out, the best open state and every first configuration are completed
greedily. The result is then still real completions within the budget, and the bounds of the
remaining open states limit their distance from the minimum.

The kernels share one module because Numba's cache ignores edits of callees in other modules.
"""

import numpy as np
from numba import b1, f8, i8, njit, void

from scheduler.search.frontier_kernels import ROUNDING
from scheduler.search.graph import (
    BY_CHAINS,
    BY_PRICES,
    GRAPH_TYPE,
    QUERY_TYPE,
    RESULT_TYPE,
    SCRATCH_TYPE,
    Graph,
    Query,
    Scratch,
    SearchResult,
)

GREEDY_INTERVAL = 8  # expansions; a greedy completion takes about as long as one of them


@njit(b1(SCRATCH_TYPE, i8, i8), nogil=True, cache=True)
def _precedes(states: Scratch, a: int, b: int) -> bool:
    """Compare two states by lower bound of the cost, then of the time, then by age."""
    if states.bound[a] != states.bound[b]:
        return bool(states.bound[a] < states.bound[b])
    if states.low_ms[a] != states.low_ms[b]:
        return bool(states.low_ms[a] < states.low_ms[b])
    return a < b


@njit(void(SCRATCH_TYPE, i8, i8), nogil=True, cache=True)
def _push(states: Scratch, size: int, state: int) -> None:
    """Add a state to the heap of ``size`` states."""
    heap = states.heap
    at = size
    while at > 0 and _precedes(states, state, heap[(at - 1) // 2]):
        heap[at] = heap[(at - 1) // 2]
        at = (at - 1) // 2
    heap[at] = state


@njit(i8(SCRATCH_TYPE, i8), nogil=True, cache=True)
def _pop(states: Scratch, size: int) -> int:
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


@njit(void(RESULT_TYPE, i8, f8, f8, i8, i8), nogil=True, cache=True)
def _record(
    best: SearchResult, first: int, cost_dollars: float, path_ms: float, state: int, option: int
) -> None:
    """Store a completion if it is the best one of its first configuration."""
    known = best.cost[first]
    if cost_dollars > known or (cost_dollars == known and path_ms >= best.path_ms[first]):
        return
    best.cost[first] = cost_dollars
    best.path_ms[first] = path_ms
    best.state[first] = state
    best.option[first] = option
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


@njit(b1(RESULT_TYPE, i8, f8, f8), nogil=True, cache=True)
def _is_cut_by_cost(best: SearchResult, first: int, bound_dollars: float, low_ms: float) -> bool:
    """Tell if no completion of a state with these bounds improves the result."""
    known = best.cost[first]
    if bound_dollars > known * (1.0 + ROUNDING):
        return True
    if bound_dollars >= known * (1.0 - ROUNDING) and low_ms >= best.path_ms[first]:
        return True
    k = best.leaders.shape[0]
    if best.leader_count[0] < k:
        return False
    return bool(bound_dollars > best.cost[best.leaders[k - 1]] * (1.0 + ROUNDING))


@njit(f8(GRAPH_TYPE, SCRATCH_TYPE, i8), nogil=True, cache=True)
def _start_ms(graph: Graph, states: Scratch, stage: int) -> float:
    """Return the earliest start of a stage whose predecessors are fixed."""
    start_ms = 0.0
    for edge in range(graph.before_start[stage], graph.before_start[stage + 1]):
        start_ms = max(start_ms, states.finish_ms[graph.before[edge]])
    return start_ms


@njit(f8(GRAPH_TYPE, SCRATCH_TYPE, i8, f8, b1), nogil=True, cache=True)
def _chain_bound_dollars(
    graph: Graph, states: Scratch, fixed: int, budget_ms: float, additive: bool
) -> float:
    """Return the lower bound by chains of stages ``fixed``.., all before them being fixed."""
    if additive:
        return 0.0
    for v in range(fixed, graph.after_ms.shape[0]):
        start_ms = 0.0
        for edge in range(graph.before_start[v], graph.before_start[v + 1]):
            p = graph.before[edge]
            if p < fixed:
                start_ms = max(start_ms, states.finish_ms[p])
            else:
                start_ms = max(start_ms, states.earliest_ms[p] + graph.fastest_ms[p])
        states.earliest_ms[v] = start_ms
    total = 0.0
    for h in range(graph.head_start[fixed], graph.head_start[fixed + 1]):
        v = graph.head[h]
        end_ms = (budget_ms - graph.window_end_ms[v]) * (1.0 + ROUNDING)
        point = graph.chain_start[v]
        high = graph.chain_start[v + 1]
        while high - point > 1:
            middle = (point + high) // 2
            if states.earliest_ms[v] + graph.chain_ms[middle] <= end_ms:
                point = middle
            else:
                high = middle
        total += graph.chain_cost[point]
    return total


@njit(void(GRAPH_TYPE, SCRATCH_TYPE, i8, i8, i8, f8, b1), nogil=True, cache=True)
def _choose(
    graph: Graph, states: Scratch, v: int, row: int, rule: int, budget_ms: float, additive: bool
) -> None:
    """Fix a stage to the option with the smallest lower bound; all stages before it are fixed."""
    start_ms = _start_ms(graph, states, v)
    best = graph.option_start[v]
    best_bound = np.inf
    for o in range(graph.option_start[v], graph.option_start[v + 1]):
        finish_ms = start_ms + graph.option_ms[o]
        if finish_ms + graph.after_ms[v] > budget_ms:
            break
        if rule == BY_PRICES:
            bound = graph.option_cost[o] + graph.price[row, v] * graph.option_ms[o]
        else:
            states.finish_ms[v] = finish_ms
            by_chains = _chain_bound_dollars(graph, states, v + 1, budget_ms, additive)
            bound = graph.option_cost[o] + by_chains
        if bound < best_bound:
            best = o
            best_bound = bound
    states.finish_ms[v] = start_ms + graph.option_ms[best]
    states.chosen[v] = best


@njit(void(GRAPH_TYPE, SCRATCH_TYPE, i8, f8), nogil=True, cache=True)
def _relax(graph: Graph, states: Scratch, fixed: int, budget_ms: float) -> None:
    """Take cheaper options for stages ``fixed``.., last stage first; none starts later."""
    stages = graph.after_ms.shape[0]
    states.latest_ms[:] = budget_ms
    for v in range(stages - 1, fixed - 1, -1):
        window_ms = states.latest_ms[v] - _start_ms(graph, states, v)
        best = states.chosen[v]
        while best + 1 < graph.option_start[v + 1] and graph.option_ms[best + 1] <= window_ms:
            best += 1
        states.chosen[v] = best
        start_ms = states.latest_ms[v] - graph.option_ms[best]
        for edge in range(graph.before_start[v], graph.before_start[v + 1]):
            p = graph.before[edge]
            states.latest_ms[p] = min(states.latest_ms[p], start_ms)


@njit(void(GRAPH_TYPE, SCRATCH_TYPE, QUERY_TYPE, i8), nogil=True, cache=True)
def _load(graph: Graph, states: Scratch, query: Query, state: int) -> None:
    """Set ``finish_ms`` of the state's fixed stages."""
    finish_ms = states.finish_ms
    at = state
    while states.stage[at] > 0:
        finish_ms[states.stage[at]] = graph.option_ms[states.option[at]]
        at = states.parent[at]
    finish_ms[0] = query.first_ms[states.first[state]]
    for v in range(1, states.stage[state] + 1):
        finish_ms[v] += _start_ms(graph, states, v)


@njit(void(GRAPH_TYPE, SCRATCH_TYPE, RESULT_TYPE, QUERY_TYPE, i8, i8), nogil=True, cache=True)
def complete_greedily(
    graph: Graph, states: Scratch, best: SearchResult, query: Query, state: int, rule: int
) -> None:
    """Choose the open options of a state stage by stage."""
    _load(graph, states, query, state)
    first = states.first[state]
    fixed = states.stage[state] + 1
    stages = graph.after_ms.shape[0]
    row, budget_ms = states.row[first], query.budget_ms
    for v in range(fixed, stages):
        _choose(graph, states, v, row, rule, budget_ms, query.additive)
    _relax(graph, states, fixed, budget_ms)
    cost, low_ms = states.cost[state], states.low_ms[state]
    for v in range(fixed, stages):
        finish_ms = _start_ms(graph, states, v) + graph.option_ms[states.chosen[v]]
        states.finish_ms[v] = finish_ms
        cost += graph.option_cost[states.chosen[v]]
        low_ms = max(low_ms, finish_ms + graph.after_ms[v])
    if low_ms <= budget_ms:
        _record(best, first, cost, low_ms, state, rule)


@njit(i8(GRAPH_TYPE, SCRATCH_TYPE, RESULT_TYPE, QUERY_TYPE, i8, i8, i8), nogil=True, cache=True)
def _expand(
    graph: Graph,
    states: Scratch,
    best: SearchResult,
    query: Query,
    state: int,
    used: int,
    size: int,
) -> int:
    """Add the children of a state; return their number, or -1 if the memory does not suffice."""
    budget_ms, additive = query.budget_ms, query.additive
    v = states.stage[state] + 1
    first = states.first[state]
    row = states.row[first]
    last = v + 1 == graph.after_ms.shape[0]
    start_ms = _start_ms(graph, states, v)
    begin, end = graph.option_start[v], graph.option_start[v + 1]
    if used + end - begin > states.parent.shape[0]:
        return -1
    children = 0
    for o in range(begin, end):
        finish_ms = start_ms + graph.option_ms[o]
        if finish_ms + graph.after_ms[v] > budget_ms:
            best.counts[1] += end - o
            break
        states.finish_ms[v] = finish_ms
        cost = states.cost[state] + graph.option_cost[o]
        low_ms = max(states.low_ms[state], finish_ms + graph.after_ms[v])
        _record(best, first, cost + graph.fastest_cost[v + 1], low_ms, state, o)
        if last:
            continue
        reduced = graph.option_cost[o] + graph.price[row, v] * graph.option_ms[o]
        priced = states.priced[state] + reduced - graph.priced_cost[row, v]
        bound = max(priced, states.bound[state])
        if not _is_cut_by_cost(best, first, bound, low_ms):
            by_chains = _chain_bound_dollars(graph, states, v + 1, budget_ms, additive)
            bound = max(bound, cost + by_chains)
        if _is_cut_by_cost(best, first, bound, low_ms):
            best.counts[2] += 1
            continue
        child = used + children
        states.parent[child] = state
        states.stage[child] = v
        states.option[child] = o
        states.first[child] = first
        states.cost[child] = cost
        states.priced[child] = priced
        states.bound[child] = bound
        states.low_ms[child] = low_ms
        _push(states, size + children, child)
        children += 1
    return children


@njit(i8(GRAPH_TYPE, f8), nogil=True, cache=True)
def _row_for(graph: Graph, downstream_ms: float) -> int:
    """Return the row of the prices of time for this time after the current stage."""
    low = 0
    high = graph.row_ms.shape[0] - 1
    while low < high:
        middle = (low + high) // 2
        if graph.row_ms[middle] <= downstream_ms:
            high = middle
        else:
            low = middle + 1
    return low


@njit(i8(GRAPH_TYPE, SCRATCH_TYPE, RESULT_TYPE, QUERY_TYPE), nogil=True, cache=True)
def _add_roots(graph: Graph, states: Scratch, best: SearchResult, query: Query) -> int:
    """Add a state for each first configuration that is in time; return their number."""
    size = 0
    for i in range(query.first_ms.shape[0]):
        first_ms, first_cost = query.first_ms[i], query.first_cost[i]
        low_ms = first_ms + graph.after_ms[0]
        if low_ms > query.budget_ms:
            best.counts[1] += query.first_ms.shape[0] - i
            break
        downstream_ms = query.budget_ms - first_ms
        row = 0 if query.additive else _row_for(graph, downstream_ms)
        value = 0.0 if row == 0 else graph.price[row, 0] * downstream_ms
        states.finish_ms[0] = first_ms
        states.parent[i] = -1
        states.stage[i] = 0
        states.option[i] = i
        states.first[i] = i
        states.row[i] = row
        states.cost[i] = first_cost
        states.priced[i] = first_cost + graph.row_cost[row] - value
        states.low_ms[i] = low_ms
        by_chains = _chain_bound_dollars(graph, states, 1, query.budget_ms, query.additive)
        states.bound[i] = max(first_cost + by_chains, states.priced[i])
        _record(best, i, first_cost + graph.fastest_cost[1], low_ms, i, graph.option_start[1])
        _push(states, size, i)
        size += 1
    return size


@njit(i8(GRAPH_TYPE, SCRATCH_TYPE, RESULT_TYPE, QUERY_TYPE), nogil=True, cache=True)
def search(graph: Graph, states: Scratch, best: SearchResult, query: Query) -> int:
    """Find the K first configurations with the cheapest completions within the budget.

    - graph: of at least two stages.
    - states: scratch memory for more states than there are first configurations.
    - best: an empty result, filled in place. If the search is exact, ``cost`` and ``path_ms`` are
      exact for the K cheapest first configurations.

    Returns the number of open states: 0 if the search is exact; otherwise the expansions or the
    states did not suffice, and the open states are in the heap.
    """
    roots = _add_roots(graph, states, best, query)
    size = roots
    used = roots
    while size > 0:
        state = _pop(states, size)
        size -= 1
        if _is_cut_by_cost(best, states.first[state], states.bound[state], states.low_ms[state]):
            best.counts[2] += 1
            continue
        _load(graph, states, query, state)
        children = -1
        if best.counts[0] < query.expansions_max:
            if states.stage[state] == 0:
                complete_greedily(graph, states, best, query, state, BY_CHAINS)
            if best.counts[0] % GREEDY_INTERVAL == 0:
                complete_greedily(graph, states, best, query, state, BY_PRICES)
            best.counts[0] += 1
            children = _expand(graph, states, best, query, state, used, size)
        if children < 0:
            complete_greedily(graph, states, best, query, state, BY_CHAINS)
            for root in range(roots):
                if _is_cut_by_cost(best, root, states.bound[root], states.low_ms[root]):
                    continue
                complete_greedily(graph, states, best, query, root, BY_CHAINS)
                complete_greedily(graph, states, best, query, root, BY_PRICES)
            _push(states, size, state)
            return int(size + 1)
        used += children
        size += children
    return 0
