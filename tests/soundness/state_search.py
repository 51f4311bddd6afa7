"""Breadth-first search through all states of a model, with the shortest way to a bad one."""

from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class StateSearch:
    """Result of a search.

    Attributes:
        states: number of different states.
        steps: to the first bad state, in order; None: all states are good.
    """

    states: int
    steps: list[str] | None


def search(
    initial: Hashable,
    successors: Callable[[Any], Iterable[tuple[str, Hashable]]],
    is_bad: Callable[[Any], bool],
) -> StateSearch:
    """Visit every reachable state until one is bad."""
    origins: dict[Hashable, tuple[str, Hashable] | None] = {initial: None}
    frontier = [initial]
    while frontier:
        following = []
        for state in frontier:
            for step, successor in successors(state):
                if successor in origins:
                    continue
                origins[successor] = step, state
                if is_bad(successor):
                    return StateSearch(len(origins), _steps(origins, successor))
                following.append(successor)
        frontier = following
    return StateSearch(len(origins), None)


def _steps(origins: dict[Any, tuple[str, Any] | None], state: Any) -> list[str]:
    steps = []
    while (origin := origins[state]) is not None:
        steps.append(origin[0])
        state = origin[1]
    return steps[::-1]
