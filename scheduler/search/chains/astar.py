"""Arrays of A* over a chain of stages: the chain, a query, working memory and result."""

from typing import NamedTuple, Self

import numpy as np

from scheduler.search.frontiers.arrays import Floats, Integers


class StageChain(NamedTuple):
    """The m later stages, which run one after the other, and their options."""

    option_start: Integers  # (m+1,) CSR of the options, each list by rising time and falling cost
    option_ms: Floats
    option_cost: Floats
    fastest_ms: Floats  # (m+1,) time of stages v.. with each at its fastest
    fastest_cost: Floats  # (m+1,) cost of the same
    cheapest_cost: Floats  # (m+1,) cost of stages v.. with each at its cheapest


class ChainQuery(NamedTuple):
    """One search over a chain."""

    first_ms: Floats  # (n,) configurations of the current stage, by rising time; not pruned,
    first_cost: Floats  # (n,) because each of them is a possible result
    budget_ms: float  # for all stages; inf without a limit
    expansions_max: int  # states that may be expanded


class States(NamedTuple):
    """Working memory of one search; states are rows, and the heap holds row numbers."""

    stage: Integers  # (states,) the next open stage
    first: Integers  # (states,) configuration of the current stage
    time_ms: Floats  # (states,) of the fixed stages
    cost: Floats  # (states,) dollars per request of the fixed stages
    bound: Floats  # (states,) lower bound of the total cost
    heap: Integers  # (states,)

    @classmethod
    def of(cls, count: int) -> Self:
        """Allocate memory for a number of states: 48 bytes per state."""
        stage, first, heap = (np.empty(count, np.int64) for _ in range(3))
        time_ms, cost, bound = (np.empty(count) for _ in range(3))
        return cls(stage, first, time_ms, cost, bound, heap)


class SearchResult(NamedTuple):
    """The best known completion of each of the n first configurations."""

    cost: Floats  # (n,) dollars per request; inf if none is known
    path_ms: Floats  # (n,)
    leaders: Integers  # (K,) first configurations by rising cost; leader_count[0] of them are set
    leader_count: Integers  # (1,)
    counts: Integers  # (3,) states expanded, cut by time, cut by cost

    @classmethod
    def of(cls, firsts: int, k: int) -> Self:
        """Return an empty result for a number of first configurations."""
        cost, path_ms = np.full(firsts, np.inf), np.full(firsts, np.inf)
        leaders, count, counts = (np.zeros(size, np.int64) for size in (k, 1, 3))
        return cls(cost, path_ms, leaders, count, counts)
