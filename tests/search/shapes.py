"""Shapes of workflows larger than those for brute force: by name, by seed, by hypothesis.

In each, the first stage precedes all others.
"""

import random
from collections.abc import Sequence

from hypothesis import strategies as st

from tests.search.documents import dags

Shape = list[list[int]]  # the stages right before each stage

# Of a layer of two stages: which of the two in the layer before it each one follows. Most are an N.
LAYERS = st.sampled_from(
    (((0, 1), (0,)), ((0, 1), (1,)), ((0,), (0, 1)), ((1,), (0, 1)), ((0, 1), (0, 1)), ((0,), (1,)))
)


def chain(stages: int) -> Shape:
    """One after the other."""
    return [[v - 1] if v else [] for v in range(stages)]


def fork_join(stages: int) -> Shape:
    """One, then many side by side, then one."""
    return [[], *([0] for _ in range(stages - 2)), list(range(1, stages - 1))]


def any_order(stages: int, seed: int) -> Shape:
    """Each stage after one to three earlier ones."""
    chance = random.Random(seed)
    counts = [min(v, chance.choice((1, 1, 2, 2, 3))) for v in range(stages)]
    return [sorted(chance.sample(range(v), count)) for v, count in enumerate(counts)]


@st.composite
def rooted_dags(draw: st.DrawFn, most: int) -> Shape:
    """One stage, then any DAG of up to so many."""
    return [[], *([p + 1 for p in before] or [0] for before in draw(dags(most)))]


@st.composite
def layered(draw: st.DrawFn, layers: Sequence[int]) -> Shape:
    """One stage, two more, then one of these numbers of layers of two: few are series-parallel."""
    shape: Shape = [[], [0], [0]]
    for _ in range(draw(st.sampled_from(layers))):
        first = len(shape) - 2
        shape += [[first + p for p in before] for before in draw(LAYERS)]
    return shape
