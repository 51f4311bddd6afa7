"""Arrays of the A* search: the remaining stages, one query, its scratch memory and its result.

Stages are numbered 0..m-1 in topological order. Stage 0 is the current stage and precedes all
others. Its options are part of the query, so its list in the graph is empty. Numba takes named
tuples of arrays as they are; ``*_TYPE`` are their types in the signatures of the kernels.
"""

from typing import NamedTuple, Self

import numpy as np
from numba import types

from scheduler.search.arrays import Floats, Integers, Matrix

_TYPES = {
    Floats: types.Array(types.float64, 1, "C"),
    Integers: types.Array(types.int64, 1, "C"),
    Matrix: types.Array(types.float64, 2, "C"),
    float: types.float64,
    int: types.int64,
    bool: types.boolean,
}

# In SearchResult.option: a greedy completion, and the lower bound by which it chose options.
BY_CHAINS, BY_PRICES = -1, -2


class Graph(NamedTuple):
    """The remaining stages (m of them), their options, and precomputed data for the bounds."""

    before_start: Integers  # (m+1,) CSR: direct predecessors of v: before[start[v]:start[v+1]]
    before: Integers
    after_ms: Floats  # (m,) longest path after v, all stages at their fastest
    fastest_ms: Floats  # (m,) of each stage; 0 for the current stage
    option_start: Integers  # (m+1,) CSR of the options, each list by rising time and falling cost
    option_ms: Floats
    option_cost: Floats
    head_start: Integers  # (m+1,) CSR: with 0..d-1 fixed, the first open stage of each chain
    head: Integers
    window_end_ms: Floats  # (m,) after_ms of the last stage of v's chain
    chain_start: Integers  # (m+1,) CSR: the joint frontier of v and its successors in the chain
    chain_ms: Floats
    chain_cost: Floats
    fastest_cost: Floats  # (m+1,) cost of stages v.. with each at its fastest
    row_ms: Floats  # (r,) falling: row i of the prices is for a downstream time of at least this
    price: Matrix  # (r, m) dollars per ms of each stage; column 0: of all stages together
    priced_cost: Matrix  # (r, m) minimum of cost + price x time over the options of a stage
    row_cost: Floats  # (r,) sums of priced_cost


class Query(NamedTuple):
    """One search over a graph."""

    first_ms: Floats  # (n,) options of the current stage, by rising time; not pruned, because
    first_cost: Floats  # (n,) each of them is a possible result
    budget_ms: float  # for all stages; inf without a limit
    expansions_max: int  # states that may be expanded
    additive: bool = False  # bound each open stage by its cheapest option, as the paper does


class Scratch(NamedTuple):
    """Working memory of one search; states are rows, and the heap holds row numbers."""

    parent: Integers  # (states,) the state it extends; -1 for a first configuration
    stage: Integers  # (states,) the last fixed stage
    option: Integers  # (states,) option of that stage
    first: Integers  # (states,) configuration of the current stage
    cost: Floats  # (states,) dollars per request of the fixed stages
    priced: Floats  # (states,) lower bound of the total cost, by the prices of time alone
    bound: Floats  # (states,) lower bound of the total cost
    low_ms: Floats  # (states,) lower bound of the total time
    heap: Integers  # (states,)
    row: Integers  # (states,) row of the prices, of a first configuration
    finish_ms: Floats  # (m,) of the fixed stages
    earliest_ms: Floats  # (m,) earliest start of the open stages
    latest_ms: Floats  # (m,) latest finish of each stage in a greedy completion
    chosen: Integers  # (m,) option of each stage in a greedy completion

    @classmethod
    def of(cls, states: int, stages: int) -> Self:
        """Allocate memory for a number of states and stages: 80 bytes per state."""
        return cls(
            parent=np.empty(states, np.int64),
            stage=np.empty(states, np.int64),
            option=np.empty(states, np.int64),
            first=np.empty(states, np.int64),
            cost=np.empty(states),
            priced=np.empty(states),
            bound=np.empty(states),
            low_ms=np.empty(states),
            heap=np.empty(states, np.int64),
            row=np.empty(states, np.int64),
            finish_ms=np.empty(stages),
            earliest_ms=np.empty(stages),
            latest_ms=np.empty(stages),
            chosen=np.empty(stages, np.int64),
        )


class SearchResult(NamedTuple):
    """The best known completion of each of the n first configurations."""

    cost: Floats  # (n,) dollars per request; inf if none is known
    path_ms: Floats  # (n,)
    state: Integers  # (n,) the state that the completion extends
    option: Integers  # (n,) of the next stage, the rest at their fastest; or BY_CHAINS, BY_PRICES
    leaders: Integers  # (K,) first configurations by rising cost; leader_count[0] of them are set
    leader_count: Integers  # (1,)
    counts: Integers  # (3,) states expanded, cut by time, cut by cost

    @classmethod
    def of(cls, firsts: int, k: int) -> Self:
        """Return an empty result for a number of first configurations."""
        return cls(
            np.full(firsts, np.inf),
            np.full(firsts, np.inf),
            np.zeros(firsts, np.int64),
            np.zeros(firsts, np.int64),
            np.zeros(k, np.int64),
            np.zeros(1, np.int64),
            np.zeros(3, np.int64),
        )


def _type_of(tuple_class: type) -> types.NamedTuple:
    """Return Numba's type of a named tuple of arrays and numbers."""
    fields = [_TYPES[kind] for kind in tuple_class.__annotations__.values()]
    return types.NamedTuple(fields, tuple_class)  # type: ignore[no-untyped-call]


GRAPH_TYPE = _type_of(Graph)
QUERY_TYPE = _type_of(Query)
SCRATCH_TYPE = _type_of(Scratch)
RESULT_TYPE = _type_of(SearchResult)
