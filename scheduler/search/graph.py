"""What A* is given: a DAG of stages as arrays, its scratch memory, and its answer.

Stages are numbered 0..m-1 in topological order; 0 is the stage at hand and precedes all others. Its
options come with each question, so its list here is empty. Named tuples of arrays pass into
Numba as they are; ``*_TYPE`` are their types for the kernels' signatures.
"""

from typing import NamedTuple, Self

import numpy as np
from numba import types

from scheduler.search.arrays import Floats, Integers, Matrix

_TYPES = {
    Floats: types.Array(types.float64, 1, "C"),
    Integers: types.Array(types.int64, 1, "C"),
    Matrix: types.Array(types.float64, 2, "C"),
}


BY_CHAINS, BY_PRICES = -1, -2  # in Answer.option: a dive, and what it went by


class Graph(NamedTuple):
    """The stages left (m of them), their options, and what the bounds need, computed once."""

    before_start: Integers  # (m+1,) CSR: the stages right before v are before[start[v]:start[v+1]]
    before: Integers
    after_ms: Floats  # (m,) longest path after v, all at their fastest
    fastest_ms: Floats  # (m,) of each stage; 0 for the stage at hand
    option_start: Integers  # (m+1,) CSR of the options, each list by rising time and falling cost
    option_ms: Floats
    option_cost: Floats
    head_start: Integers  # (m+1,) CSR: once 0..d-1 are fixed, the first open stage of each chain
    head: Integers
    window_end_ms: Floats  # (m,) after_ms of the last stage of v's chain
    chain_start: Integers  # (m+1,) CSR: the frontier of v and what follows it in its chain
    chain_ms: Floats
    chain_cost: Floats
    fastest_cost: Floats  # (m+1,) cost of the stages v.. with each at its fastest
    row_ms: Floats  # (r,) falling: row i of the prices is for tails of at least so long
    price: Matrix  # (r, m) dollars per ms of each stage; of stage 0: of all together
    priced_cost: Matrix  # (r, m) least of cost + price x time over the stage's options
    row_cost: Floats  # (r,) sums of priced_cost


class Scratch(NamedTuple):
    """Working memory of one search; states are rows, and the heap holds their numbers."""

    parent: Integers  # (states,) the state it extends; -1 for a first configuration
    stage: Integers  # (states,) the last fixed stage
    option: Integers  # (states,) what that stage is fixed to
    first: Integers  # (states,) the configuration of the stage at hand
    cost: Floats  # (states,) dollars per request of the fixed stages
    priced: Floats  # (states,) lower bound of the cost of all, by the prices of time alone
    bound: Floats  # (states,) lower bound of the cost of all
    low_ms: Floats  # (states,) lower bound of the time of all
    heap: Integers  # (states,)
    row: Integers  # (states,) of the prices; of a first configuration
    finish_ms: Floats  # (m,) of the fixed stages
    earliest_ms: Floats  # (m,) earliest start of the open ones
    latest_ms: Floats  # (m,) latest finish of each, of a dive
    chosen: Integers  # (m,) option of each, of a dive

    @classmethod
    def of(cls, states: int, stages: int) -> Self:
        """Room for so many states of so many stages: 80 bytes a state."""
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


class Answer(NamedTuple):
    """The best completion known of each of the n first configurations."""

    cost: Floats  # (n,) dollars per request; inf where none is known
    path_ms: Floats  # (n,)
    least: Floats  # (n,) no completion of it costs less, unless it costs more than the K-th leader
    state: Integers  # (n,) the state whose completion it is
    option: Integers  # (n,) of its next stage, the rest being at their fastest; or which dive
    leaders: Integers  # (K,) first configurations by rising cost; found[0] of them are set
    found: Integers  # (1,)
    counts: Integers  # (3,) expanded, cut by time, cut by cost

    @classmethod
    def of(cls, firsts: int, k: int) -> Self:
        """An empty answer over so many first configurations."""
        return cls(
            np.full(firsts, np.inf),
            np.full(firsts, np.inf),
            np.full(firsts, np.inf),
            np.zeros(firsts, np.int64),
            np.zeros(firsts, np.int64),
            np.zeros(k, np.int64),
            np.zeros(1, np.int64),
            np.zeros(3, np.int64),
        )


def _type_of(tuple_class: type) -> types.NamedTuple:
    """Numba's type of a named tuple of arrays."""
    arrays = [_TYPES[kind] for kind in tuple_class.__annotations__.values()]
    return types.NamedTuple(arrays, tuple_class)  # type: ignore[no-untyped-call]


GRAPH_TYPE = _type_of(Graph)
SCRATCH_TYPE = _type_of(Scratch)
ANSWER_TYPE = _type_of(Answer)
