# ruff: noqa: PLR0913, PLR0917, FBT001 - kernels take plain arrays, and no keywords in compiled code
"""A* with both blades over a DAG of stages, for what no Pareto frontier answers exactly.

A state fixes stages 0..d: its cost per request, and the finish times that its stages have then. Its
children fix stage d+1.

- Blade 1, time: with every open stage at its fastest, the longest path would exceed the budget. The
  options of a stage are sorted by time, so the rest of the list goes with it.
- Blade 2, cost: the all-fastest completion of a state is a real one, hence an upper bound *of its
  first configuration*. A state goes whose lower bound exceeds the upper bound of its own first
  configuration, or the K-th smallest over all first configurations. Bounds per first configuration
  cannot count one path twice, as one heap of states of several depths does.
- The lower bound: the open stages are split into chains. A chain must end in time for what
  follows it at its fastest, so it costs at least what its own frontier says for that window. With
  ``additive`` set it is the paper's instead: each open stage at its cheapest.
- Before a first configuration is expanded, one greedy dive from it gives a good upper bound.

When the expansion budget or the scratch memory is used up, the best open state and every first
configuration are completed by dives: what is answered then still consists of real completions
within the time budget.
"""

import numpy as np
from numba import b1, f8, i8, njit, void

from scheduler.search.arrays import Floats
from scheduler.search.frontier_kernels import ROUNDING
from scheduler.search.graph import ANSWER_TYPE, GRAPH_TYPE, SCRATCH_TYPE, Answer, Graph, Scratch

EXACT = 0
EXHAUSTED = 1


@njit(b1(SCRATCH_TYPE, i8, i8), nogil=True, cache=True)
def _before(states: Scratch, one: int, other: int) -> bool:
    """The order of states: lower bound of the cost, then of the time, then age."""
    if states.bound[one] != states.bound[other]:
        return bool(states.bound[one] < states.bound[other])
    if states.low_ms[one] != states.low_ms[other]:
        return bool(states.low_ms[one] < states.low_ms[other])
    return one < other


@njit(void(SCRATCH_TYPE, i8, i8), nogil=True, cache=True)
def _push(states: Scratch, size: int, state: int) -> None:
    """Put a state into the heap of ``size`` states."""
    heap = states.heap
    at = size
    while at > 0 and _before(states, state, heap[(at - 1) // 2]):
        heap[at] = heap[(at - 1) // 2]
        at = (at - 1) // 2
    heap[at] = state


@njit(i8(SCRATCH_TYPE, i8), nogil=True, cache=True)
def _pop(states: Scratch, size: int) -> int:
    """Take the best state out of the heap of ``size`` states."""
    heap = states.heap
    best = heap[0]
    moved = heap[size - 1]
    at = 0
    while True:
        child = 2 * at + 1
        if child >= size - 1:
            break
        if child + 1 < size - 1 and _before(states, heap[child + 1], heap[child]):
            child += 1
        if not _before(states, heap[child], moved):
            break
        heap[at] = heap[child]
        at = child
    heap[at] = moved
    return int(best)


@njit(void(ANSWER_TYPE, i8, f8, f8), nogil=True, cache=True)
def _record(answer: Answer, first: int, cost: float, path_ms: float) -> None:
    """Note a completion, if it is the best of its first configuration."""
    known = answer.cost[first]
    if cost > known or (cost == known and path_ms >= answer.path_ms[first]):
        return
    answer.cost[first] = cost
    answer.path_ms[first] = path_ms
    leaders = answer.leaders
    count = answer.found[0]
    at = 0
    while at < count and leaders[at] != first:
        at += 1
    if at == count:
        if count < leaders.shape[0]:
            answer.found[0] += 1
        elif cost < answer.cost[leaders[count - 1]]:
            at = count - 1
        else:
            return
    while at > 0 and answer.cost[leaders[at - 1]] > cost:
        leaders[at] = leaders[at - 1]
        at -= 1
    leaders[at] = first


@njit(b1(ANSWER_TYPE, i8, f8, f8), nogil=True, cache=True)
def _too_costly(answer: Answer, first: int, bound: float, low_ms: float) -> bool:
    """Blade 2: nothing below this state can be better than what is known."""
    known = answer.cost[first]
    if bound > known * (1.0 + ROUNDING):
        return True
    if bound >= known * (1.0 - ROUNDING) and low_ms >= answer.path_ms[first]:
        return True
    k = answer.leaders.shape[0]
    if answer.found[0] < k:
        return False
    return bool(bound > answer.cost[answer.leaders[k - 1]] * (1.0 + ROUNDING))


@njit(f8(GRAPH_TYPE, SCRATCH_TYPE, i8), nogil=True, cache=True)
def _start_ms(graph: Graph, states: Scratch, stage: int) -> float:
    """When a stage can start, the stages before it being fixed."""
    start = 0.0
    for edge in range(graph.before_start[stage], graph.before_start[stage + 1]):
        start = max(start, states.finish_ms[graph.before[edge]])
    return start


@njit(f8(GRAPH_TYPE, SCRATCH_TYPE, i8, f8, b1), nogil=True, cache=True)
def _open_cost(
    graph: Graph, states: Scratch, fixed: int, budget_ms: float, additive: bool
) -> float:
    """A lower bound of the cost of the stages from ``fixed`` on, all before it being fixed."""
    if additive:
        return float(graph.cheapest_cost[fixed])
    for v in range(fixed, graph.after_ms.shape[0]):
        start = 0.0
        for edge in range(graph.before_start[v], graph.before_start[v + 1]):
            p = graph.before[edge]
            if p < fixed:
                start = max(start, states.finish_ms[p])
            else:
                start = max(start, states.earliest_ms[p] + graph.fastest_ms[p])
        states.earliest_ms[v] = start
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


@njit(void(GRAPH_TYPE, SCRATCH_TYPE, ANSWER_TYPE, i8, f8, b1), nogil=True, cache=True)
def _dive(
    graph: Graph, states: Scratch, answer: Answer, state: int, budget_ms: float, additive: bool
) -> None:
    """Complete a state greedily by the least lower bound; ``finish_ms`` must be the state's."""
    cost = states.cost[state]
    low_ms = states.low_ms[state]
    for v in range(states.stage[state] + 1, graph.after_ms.shape[0]):
        start = _start_ms(graph, states, v)
        best = graph.option_start[v]
        best_bound = np.inf
        for o in range(graph.option_start[v], graph.option_start[v + 1]):
            finish = start + graph.option_ms[o]
            if finish + graph.after_ms[v] > budget_ms:
                break
            states.finish_ms[v] = finish
            bound = graph.option_cost[o] + _open_cost(graph, states, v + 1, budget_ms, additive)
            if bound < best_bound:
                best = o
                best_bound = bound
        states.finish_ms[v] = start + graph.option_ms[best]
        low_ms = max(low_ms, states.finish_ms[v] + graph.after_ms[v])
        cost += graph.option_cost[best]
    if low_ms <= budget_ms:
        _record(answer, states.first[state], cost, low_ms)


@njit(void(GRAPH_TYPE, SCRATCH_TYPE, i8, f8[::1]), nogil=True, cache=True)
def _load(graph: Graph, states: Scratch, state: int, first_ms: Floats) -> None:
    """Set ``finish_ms`` of the state's fixed stages."""
    finish_ms = states.finish_ms
    at = state
    while states.stage[at] > 0:
        finish_ms[states.stage[at]] = graph.option_ms[states.option[at]]
        at = states.parent[at]
    finish_ms[0] = first_ms[states.first[state]]
    for v in range(1, states.stage[state] + 1):
        finish_ms[v] += _start_ms(graph, states, v)


@njit(i8(GRAPH_TYPE, SCRATCH_TYPE, ANSWER_TYPE, i8, i8, i8, f8, b1), nogil=True, cache=True)
def _expand(
    graph: Graph,
    states: Scratch,
    answer: Answer,
    state: int,
    used: int,
    size: int,
    budget_ms: float,
    additive: bool,
) -> int:
    """Make the children of a state; return how many were kept, or -1 without memory for them."""
    v = states.stage[state] + 1
    first = states.first[state]
    last = v + 1 == graph.after_ms.shape[0]
    start = _start_ms(graph, states, v)
    begin, end = graph.option_start[v], graph.option_start[v + 1]
    if used + end - begin > states.parent.shape[0]:
        return -1
    kept = 0
    for o in range(begin, end):
        finish = start + graph.option_ms[o]
        if finish + graph.after_ms[v] > budget_ms:
            answer.counts[1] += end - o
            break
        states.finish_ms[v] = finish
        cost = states.cost[state] + graph.option_cost[o]
        low_ms = max(states.low_ms[state], finish + graph.after_ms[v])
        _record(answer, first, cost + graph.fastest_cost[v + 1], low_ms)
        if last:
            continue
        bound = cost + _open_cost(graph, states, v + 1, budget_ms, additive)
        bound = max(bound, states.bound[state])
        if _too_costly(answer, first, bound, low_ms):
            answer.counts[2] += 1
            continue
        child = used + kept
        states.parent[child] = state
        states.stage[child] = v
        states.option[child] = o
        states.first[child] = first
        states.cost[child] = cost
        states.bound[child] = bound
        states.low_ms[child] = low_ms
        _push(states, size + kept, child)
        kept += 1
    return kept


@njit(
    i8(GRAPH_TYPE, SCRATCH_TYPE, ANSWER_TYPE, f8[::1], f8[::1], f8, i8, b1), nogil=True, cache=True
)
def search(
    graph: Graph,
    states: Scratch,
    answer: Answer,
    first_ms: Floats,
    first_cost: Floats,
    budget_ms: float,
    expansions_max: int,
    additive: bool,
) -> int:
    """Find the K first configurations with the cheapest completions within the budget.

    - graph: of at least two stages.
    - states: scratch with room for more states than there are first configurations.
    - answer: empty; filled in place. Where the search is exact, ``cost`` and ``path_ms`` of a first
      configuration are true if they are among the K least.
    - first_ms, first_cost: (n,) options of the stage at hand, by rising time; not pruned, for each
      of them is an answer of its own.
    - budget_ms: time for all stages; inf for none.
    - expansions_max: how many states may be expanded.
    - additive: bound by each open stage's cheapest option rather than by chains.

    Returns EXACT, or EXHAUSTED where the expansions or the states did not suffice.
    """
    size = 0
    for i in range(first_ms.shape[0]):
        low_ms = first_ms[i] + graph.after_ms[0]
        if low_ms > budget_ms:
            answer.counts[1] += first_ms.shape[0] - i
            break
        _record(answer, i, first_cost[i] + graph.fastest_cost[1], low_ms)
        states.finish_ms[0] = first_ms[i]
        states.parent[size] = -1
        states.stage[size] = 0
        states.option[size] = i
        states.first[size] = i
        states.cost[size] = first_cost[i]
        states.low_ms[size] = low_ms
        states.bound[size] = first_cost[i] + _open_cost(graph, states, 1, budget_ms, additive)
        _push(states, size, size)
        size += 1
    roots = size
    used = size
    while size > 0:
        state = _pop(states, size)
        size -= 1
        if _too_costly(answer, states.first[state], states.bound[state], states.low_ms[state]):
            answer.counts[2] += 1
            continue
        _load(graph, states, state, first_ms)
        kept = -1
        if answer.counts[0] < expansions_max:
            if states.stage[state] == 0:
                _dive(graph, states, answer, state, budget_ms, additive)
            answer.counts[0] += 1
            kept = _expand(graph, states, answer, state, used, size, budget_ms, additive)
        if kept < 0:
            _dive(graph, states, answer, state, budget_ms, additive)
            for root in range(roots):
                if _too_costly(answer, root, states.bound[root], states.low_ms[root]):
                    continue
                states.finish_ms[0] = first_ms[root]
                _dive(graph, states, answer, root, budget_ms, additive)
            return EXHAUSTED
        used += kept
        size += kept
    return EXACT
