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
- Two lower bounds, the larger of which counts. By prices of time (`price_kernels`): each open stage
  takes the option of the least cost + price x time, and what the budget is worth is taken off
  again. By chains: the open stages are split into chains, and a chain must end in time for what
  follows it at its fastest, so it costs at least what its own frontier says for that window. The
  first sees all paths at once and is two additions a state; the second sees that a stage runs under
  one configuration or another, and nothing in between.
- ``additive`` leaves the paper's bound: time costs nothing, so each open stage is at its cheapest.
- Before a first configuration is expanded, one greedy dive from it gives a good upper bound.

When the expansion budget or the scratch memory is used up, the best open state and every first
configuration are completed by dives: what is answered then still consists of real completions
within the time budget, and the bounds of the states left open say how far from the least they are.

Its kernels stand together although they are many: Numba's cache keeps a compiled kernel by the file
it is in, so it would not see an edit of one that it calls in another.
"""

import numpy as np
from numba import b1, f8, i8, njit, void

from scheduler.search.arrays import Floats, Integers
from scheduler.search.frontier_kernels import ROUNDING
from scheduler.search.graph import (
    ANSWER_TYPE,
    BY_CHAINS,
    BY_PRICES,
    GRAPH_TYPE,
    SCRATCH_TYPE,
    Answer,
    Graph,
    Scratch,
)

EXACT = 0
EXHAUSTED = 1
DIVE_EVERY = 8  # expansions; such a dive costs about as much as one of them


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


@njit(void(ANSWER_TYPE, i8, f8, f8, i8, i8), nogil=True, cache=True)
def _record(
    answer: Answer, first: int, cost: float, path_ms: float, state: int, option: int
) -> None:
    """Note a completion, if it is the best of its first configuration."""
    known = answer.cost[first]
    if cost > known or (cost == known and path_ms >= answer.path_ms[first]):
        return
    answer.cost[first] = cost
    answer.path_ms[first] = path_ms
    answer.state[first] = state
    answer.option[first] = option
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
    """What the stages from ``fixed`` on cost at least, by their chains; all before are fixed."""
    if additive:
        return 0.0
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


@njit(void(GRAPH_TYPE, SCRATCH_TYPE, i8, i8, f8, i8, b1), nogil=True, cache=True)
def _choose(
    graph: Graph,
    states: Scratch,
    v: int,
    row: int,
    budget_ms: float,
    rule: int,
    additive: bool,
) -> None:
    """Fix a stage to the option of the least lower bound, all stages before it being fixed."""
    start = _start_ms(graph, states, v)
    best = graph.option_start[v]
    best_bound = np.inf
    for o in range(graph.option_start[v], graph.option_start[v + 1]):
        finish = start + graph.option_ms[o]
        if finish + graph.after_ms[v] > budget_ms:
            break
        if rule == BY_PRICES:
            bound = graph.option_cost[o] + graph.price[row, v] * graph.option_ms[o]
        else:
            states.finish_ms[v] = finish
            bound = graph.option_cost[o] + _open_cost(graph, states, v + 1, budget_ms, additive)
        if bound < best_bound:
            best = o
            best_bound = bound
    states.finish_ms[v] = start + graph.option_ms[best]
    states.chosen[v] = best


@njit(void(GRAPH_TYPE, SCRATCH_TYPE, i8, f8), nogil=True, cache=True)
def _relax(graph: Graph, states: Scratch, fixed: int, budget_ms: float) -> None:
    """From the last stage on, take the cheapest option that still ends in time for what follows.

    The stages from ``fixed`` on are chosen, and none starts later than before.
    """
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


@njit(void(GRAPH_TYPE, SCRATCH_TYPE, ANSWER_TYPE, i8, f8, i8, b1), nogil=True, cache=True)
def _dive(
    graph: Graph,
    states: Scratch,
    answer: Answer,
    state: int,
    budget_ms: float,
    rule: int,
    additive: bool,
) -> None:
    """Complete a state greedily; ``finish_ms`` must be the state's."""
    first = states.first[state]
    fixed = states.stage[state] + 1
    stages = graph.after_ms.shape[0]
    for v in range(fixed, stages):
        _choose(graph, states, v, states.row[first], budget_ms, rule, additive)
    _relax(graph, states, fixed, budget_ms)
    cost = states.cost[state]
    low_ms = states.low_ms[state]
    for v in range(fixed, stages):
        finish = _start_ms(graph, states, v) + graph.option_ms[states.chosen[v]]
        states.finish_ms[v] = finish
        cost += graph.option_cost[states.chosen[v]]
        low_ms = max(low_ms, finish + graph.after_ms[v])
    if low_ms <= budget_ms:
        _record(answer, first, cost, low_ms, state, rule)


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
    row = states.row[first]
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
        _record(answer, first, cost + graph.fastest_cost[v + 1], low_ms, state, o)
        if last:
            continue
        reduced = graph.option_cost[o] + graph.price[row, v] * graph.option_ms[o]
        priced = states.priced[state] + reduced - graph.priced_cost[row, v]
        bound = max(priced, states.bound[state])
        if not _too_costly(answer, first, bound, low_ms):
            by_chains = _open_cost(graph, states, v + 1, budget_ms, additive)
            bound = max(bound, cost + by_chains)
        if _too_costly(answer, first, bound, low_ms):
            answer.counts[2] += 1
            continue
        child = used + kept
        states.parent[child] = state
        states.stage[child] = v
        states.option[child] = o
        states.first[child] = first
        states.cost[child] = cost
        states.priced[child] = priced
        states.bound[child] = bound
        states.low_ms[child] = low_ms
        _push(states, size + kept, child)
        kept += 1
    return kept


@njit(i8(GRAPH_TYPE, f8), nogil=True, cache=True)
def _row_for(graph: Graph, tail_ms: float) -> int:
    """The prices of time that are right for a tail of that length."""
    low = 0
    high = graph.row_ms.shape[0] - 1
    while low < high:
        middle = (low + high) // 2
        if graph.row_ms[middle] <= tail_ms:
            high = middle
        else:
            low = middle + 1
    return low


@njit(i8(GRAPH_TYPE, SCRATCH_TYPE, ANSWER_TYPE, f8[::1], f8[::1], f8, b1), nogil=True, cache=True)
def _root(
    graph: Graph,
    states: Scratch,
    answer: Answer,
    first_ms: Floats,
    first_cost: Floats,
    budget_ms: float,
    additive: bool,
) -> int:
    """Make a state of each first configuration that is in time; return how many."""
    size = 0
    for i in range(first_ms.shape[0]):
        low_ms = first_ms[i] + graph.after_ms[0]
        if low_ms > budget_ms:
            answer.counts[1] += first_ms.shape[0] - i
            break
        tail_ms = budget_ms - first_ms[i]
        row = 0 if additive else _row_for(graph, tail_ms)
        worth = 0.0 if row == 0 else graph.price[row, 0] * tail_ms
        states.finish_ms[0] = first_ms[i]
        states.parent[i] = -1
        states.stage[i] = 0
        states.option[i] = i
        states.first[i] = i
        states.row[i] = row
        states.cost[i] = first_cost[i]
        states.priced[i] = first_cost[i] + graph.row_cost[row] - worth
        states.low_ms[i] = low_ms
        by_chains = first_cost[i] + _open_cost(graph, states, 1, budget_ms, additive)
        states.bound[i] = max(by_chains, states.priced[i])
        _record(answer, i, first_cost[i] + graph.fastest_cost[1], low_ms, i, graph.option_start[1])
        _push(states, size, i)
        size += 1
    return size


@njit(void(SCRATCH_TYPE, ANSWER_TYPE, i8), nogil=True, cache=True)
def _tell_least(states: Scratch, answer: Answer, size: int) -> None:
    """What each first configuration costs at least, ``size`` states being open."""
    answer.least[:] = answer.cost
    for at in range(size):
        state = states.heap[at]
        first = states.first[state]
        answer.least[first] = min(answer.least[first], states.bound[state])


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
    - additive: bound by each open stage's cheapest option alone, as the paper does.

    Returns EXACT, or EXHAUSTED where the expansions or the states did not suffice.
    """
    roots = _root(graph, states, answer, first_ms, first_cost, budget_ms, additive)
    size = roots
    used = roots
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
                _dive(graph, states, answer, state, budget_ms, BY_CHAINS, additive)
            if answer.counts[0] % DIVE_EVERY == 0:
                _dive(graph, states, answer, state, budget_ms, BY_PRICES, additive)
            answer.counts[0] += 1
            kept = _expand(graph, states, answer, state, used, size, budget_ms, additive)
        if kept < 0:
            _dive(graph, states, answer, state, budget_ms, BY_CHAINS, additive)
            for root in range(roots):
                if _too_costly(answer, root, states.bound[root], states.low_ms[root]):
                    continue
                states.finish_ms[0] = first_ms[root]
                _dive(graph, states, answer, root, budget_ms, BY_CHAINS, additive)
                _dive(graph, states, answer, root, budget_ms, BY_PRICES, additive)
            _push(states, size, state)
            _tell_least(states, answer, size + 1)
            return EXHAUSTED
        used += kept
        size += kept
    _tell_least(states, answer, 0)
    return EXACT


@njit(
    void(GRAPH_TYPE, SCRATCH_TYPE, ANSWER_TYPE, i8, f8[::1], f8, b1, i8[::1]),
    nogil=True,
    cache=True,
)
def trace(
    graph: Graph,
    states: Scratch,
    answer: Answer,
    first: int,
    first_ms: Floats,
    budget_ms: float,
    additive: bool,
    out_option: Integers,
) -> None:
    """The options of the best completion known of a first configuration.

    - graph, states, answer, first_ms, budget_ms, additive: as `search` had and left them.
    - out_option: (m,) set to the option of each stage, into the graph's lists; of stage 0: first.
    """
    state = answer.state[first]
    _load(graph, states, state, first_ms)
    at = state
    while at >= 0:
        out_option[states.stage[at]] = states.option[at]
        at = states.parent[at]
    v = states.stage[state] + 1
    rule = answer.option[first]
    if rule < 0:
        _dive(graph, states, answer, state, budget_ms, rule, additive)
        out_option[v:] = states.chosen[v:]
        return
    out_option[v] = answer.option[first]
    for later in range(v + 1, graph.after_ms.shape[0]):
        out_option[later] = graph.option_start[later]
