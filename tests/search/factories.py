"""Small workflows and profiles, fixed and from hypothesis, and larger ones by seed.

A shape lists the direct predecessors of each stage.
"""

import random
from collections.abc import Callable, Mapping, Sequence
from itertools import product

from hypothesis import strategies as st

from scheduler.model.catalogue import Catalogue
from scheduler.model.plan import Prices
from workbench.profiles.builders import Row, profile, workflow

Shape = list[list[int]]

FEW_TIMES_MS = (1.0, 2.0, 3.0, 10.0)  # so that sums and costs tie
TIMES_MS = st.one_of(
    st.sampled_from(FEW_TIMES_MS),
    st.floats(0.001, 3_600_000.0),  # 1 microsecond to 1 hour
    st.sampled_from((0.001, 3_600_000.0)),
)
CHAIN = ((), (0,), (1,), (2,))
FORKS = ((), (), (0,), (0,), (2, 3), (1, 4))  # two entries, a fork within a branch, two joins
N_SHAPE = ((), (0,), (0,), (1, 2), (2,))  # the smallest order that is not series-parallel
N_OF_MODULES = ((), (0,), (0,), (1, 2), (3,), (2,), (2,), (4, 5, 6))
# Predecessors of the two stages of a layer in the layer before it. Most of them form an N.
LAYERS = st.sampled_from(
    (((0, 1), (0,)), ((0, 1), (1,)), ((0,), (0, 1)), ((1,), (0, 1)), ((0, 1), (0, 1)), ((0,), (1,)))
)

BATCHES = (1, 2, 3, 4, 6, 8, 12, 16)
GRID = tuple(product(BATCHES, (1, 2, 3, 4, 6, 8), range(14, 101, 2)))
NOISE = 0.05
PRICES = Prices()


def catalogue(
    after: Sequence[Sequence[int]],
    rows: Sequence[Mapping[str, Sequence[Row]] | Sequence[Row]],
    *,
    slo_ms: float = 1000.0,
) -> Catalogue:
    """Create workflow "w" with one function per stage."""
    return Catalogue.of(
        [
            workflow(after, slo_ms=slo_ms),
            *(profile(f"f{i}", function_rows) for i, function_rows in enumerate(rows)),
        ]
    )


@st.composite
def rows(draw: st.DrawFn, rows_max: int = 6) -> list[Row]:
    """Draw configurations at distinct points."""
    points = draw(
        st.lists(
            st.tuples(
                st.sampled_from((1, 2, 3, 4, 8)),
                st.sampled_from((1, 2, 4)),
                st.sampled_from((10, 20, 50, 100)),
            ),
            min_size=1,
            max_size=rows_max,
            unique=True,
        )
    )
    return [(*point, draw(TIMES_MS)) for point in points]


@st.composite
def dags(draw: st.DrawFn, stages_max: int = 4) -> Shape:
    """Draw a DAG; stages may be unconnected."""
    count = draw(st.integers(1, stages_max))
    return [sorted(draw(st.sets(st.integers(0, v - 1)))) if v > 0 else [] for v in range(count)]


@st.composite
def rooted_dags(draw: st.DrawFn, stages_max: int) -> Shape:
    """Draw one stage, followed by any DAG."""
    return [[], *([p + 1 for p in before] or [0] for before in draw(dags(stages_max)))]


@st.composite
def layered(draw: st.DrawFn, layers: Sequence[int]) -> Shape:
    """Draw one stage, two more, then layers of two, few of which are series-parallel."""
    shape: Shape = [[], [0], [0]]
    for _ in range(draw(st.sampled_from(layers))):
        first = len(shape) - 2
        shape += [[first + p for p in before] for before in draw(LAYERS)]
    return shape


@st.composite
def catalogues(
    draw: st.DrawFn,
    after: Sequence[Sequence[int]] | None = None,
    models: Sequence[str] = ("gpu",),
    configurations_max: int = 6,
) -> Catalogue:
    """Draw workflow "w" with up to 4 stages, or with this shape, and its functions' profiles."""
    shape = draw(dags()) if after is None else after
    function_rows = [{m: draw(rows(configurations_max)) for m in models} for _ in shape]
    return catalogue(shape, function_rows, slo_ms=draw(st.floats(0.01, 10_000_000.0)))


def fork_join(stages: int) -> Shape:
    """Create one stage, many parallel stages, and one stage."""
    return [[], *([0] for _ in range(stages - 2)), list(range(1, stages - 1))]


def any_order(stages: int, seed: int) -> Shape:
    """Create a DAG in which each stage follows one to three earlier ones."""
    rng = random.Random(seed)
    counts = [min(v, rng.choice((1, 1, 2, 2, 3))) for v in range(stages)]
    return [sorted(rng.sample(range(v), count)) for v, count in enumerate(counts)]


def noisy_rows(rng: random.Random, count: int, digits: int) -> list[Row]:
    """Create configurations whose latencies look measured, hence are not monotone.

    They have the formula of `workbench.profiles.generated` with log-normal noise, are at least 1 ms
    and are rounded to a number of digits.
    """
    t0_ms, phi = rng.uniform(50, 1000), rng.uniform(0.1, 0.3)
    alpha, beta, gamma = (rng.uniform(*ends) for ends in ((0.5, 0.8), (0.5, 0.7), (0.3, 0.8)))
    result = []
    for batch, cpu, percent in rng.sample(GRID, count):
        ratio = phi * batch / cpu**alpha + (1 - phi) * batch**beta / (percent / 14) ** gamma
        latency_ms = round(t0_ms * ratio * rng.lognormvariate(0, NOISE), digits)
        result.append((batch, cpu, percent, max(1.0, latency_ms)))
    return result


def undominated_rows(rng: random.Random, count: int, digits: int) -> list[Row]:
    """Create configurations of which none dominates another: a higher price is faster."""
    t0_ms, power = rng.uniform(50, 1000), rng.uniform(0.3, 0.9)
    single = [(cpu, percent) for batch, cpu, percent in GRID if batch == 1]
    hour_dollars = {
        (cpu, percent): PRICES.vcpu_hour_dollars * cpu + PRICES.gpu_hour_dollars * percent
        for cpu, percent in single
    }
    minimum = min(hour_dollars.values())
    return [
        (1, cpu, percent, round(t0_ms * (minimum / hour_dollars[cpu, percent]) ** power, digits))
        for cpu, percent in rng.sample(single, count)
    ]


def noisy_catalogue(
    after: Sequence[Sequence[int]],
    configurations: int,
    seed: int = 0,
    *,
    digits: int = 3,
    rows_of: Callable[[random.Random, int, int], list[Row]] = noisy_rows,
) -> Catalogue:
    """Create workflow "w" of a shape, with one function and many configurations per stage."""
    rng = random.Random(seed)
    return catalogue(after, [rows_of(rng, configurations, digits) for _ in after], slo_ms=60_000.0)
