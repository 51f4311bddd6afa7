"""What A* is given: a DAG of stages as arrays, its scratch memory, and its answer.

Stages are numbered 0..m-1 in topological order; 0 is the stage at hand and precedes all others. Its
options come with each question, so its list here is empty. Named tuples of arrays pass into
Numba as they are; ``*_TYPE`` are their types for the kernels' signatures.
"""

from typing import NamedTuple, Self

import numpy as np
from numba import types

from scheduler.search.arrays import Floats, Integers

_FLOATS = types.Array(types.float64, 1, "C")
_INTEGERS = types.Array(types.int64, 1, "C")


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
    cheapest_cost: Floats  # (m+1,) cost of the stages v.. with each at its cheapest


class Scratch(NamedTuple):
    """Working memory of one search; states are rows, and the heap holds their numbers."""

    parent: Integers  # (states,) the state it extends; -1 for a first configuration
    stage: Integers  # (states,) the last fixed stage
    option: Integers  # (states,) what that stage is fixed to
    first: Integers  # (states,) the configuration of the stage at hand
    cost: Floats  # (states,) dollars per request of the fixed stages
    bound: Floats  # (states,) lower bound of the cost of all
    low_ms: Floats  # (states,) lower bound of the time of all
    heap: Integers  # (states,)
    finish_ms: Floats  # (m,) of the fixed stages
    earliest_ms: Floats  # (m,) earliest start of the open ones

    @classmethod
    def of(cls, states: int, stages: int) -> Self:
        """Room for so many states of so many stages: 64 bytes a state."""
        return cls(
            parent=np.empty(states, np.int64),
            stage=np.empty(states, np.int64),
            option=np.empty(states, np.int64),
            first=np.empty(states, np.int64),
            cost=np.empty(states),
            bound=np.empty(states),
            low_ms=np.empty(states),
            heap=np.empty(states, np.int64),
            finish_ms=np.empty(stages),
            earliest_ms=np.empty(stages),
        )


class Answer(NamedTuple):
    """The best completion known of each of the n first configurations."""

    cost: Floats  # (n,) dollars per request; inf where none is known
    path_ms: Floats  # (n,)
    leaders: Integers  # (K,) first configurations by rising cost; found[0] of them are set
    found: Integers  # (1,)
    counts: Integers  # (3,) expanded, cut by time, cut by cost

    @classmethod
    def of(cls, firsts: int, k: int) -> Self:
        """An empty answer over so many first configurations."""
        return cls(
            np.full(firsts, np.inf),
            np.full(firsts, np.inf),
            np.zeros(k, np.int64),
            np.zeros(1, np.int64),
            np.zeros(3, np.int64),
        )


def _type_of(tuple_class: type) -> types.NamedTuple:
    """Numba's type of a named tuple whose fields are Floats or Integers."""
    kinds = tuple_class.__annotations__.values()
    arrays = [_FLOATS if kind is Floats else _INTEGERS for kind in kinds]
    return types.NamedTuple(arrays, tuple_class)  # type: ignore[no-untyped-call]


GRAPH_TYPE = _type_of(Graph)
SCRATCH_TYPE = _type_of(Scratch)
ANSWER_TYPE = _type_of(Answer)
