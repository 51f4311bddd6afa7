"""Choice of the points of a grid to measure, and the end of it.

The first points are corners of the grid and middles between them. A quadratic polynomial of the
logarithms is fitted to what is measured, and predicts the rest. Points that may be the cheapest for
some slack and some queue are measured next, until there are none.

A point is skipped if a measured one with no larger batch is as fast, and costs at most
``error_ratio`` more for each request. The time of the skipped one is taken as the prediction less
the largest error, and at least as that of each measured point with no larger batch and no fewer
resources. The error at a measured point is that of the polynomial fitted to all others: one fitted
to as many points as it has terms passes through them. So for any slack and any queue the planner's
cost with the measured points is at most ``error_ratio`` above that with all points, if the
predictions hold. Ceilings on vCPUs and GPU share may exclude the measured one; they are not
considered.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations_with_replacement, product
from typing import Any

import numpy as np

from scheduler.model.plan import Prices

Point = tuple[int, int, int]
"""Batch, vCPUs and GPU share in percent."""
ERROR_RATIO = 0.02
_ROUNDING = 1e-9
_Array = np.ndarray[Any, np.dtype[np.float64]]
_Mask = np.ndarray[Any, np.dtype[np.bool_]]


def next_points(
    grid: Iterable[Point],
    measured_ms: Mapping[Point, float],
    *,
    prices: Prices,
    gpu_model: str = "",
    error_ratio: float = ERROR_RATIO,
) -> list[Point]:
    """Return the points to measure next, sorted by share, vCPUs and batch; empty at the end.

    Args:
        grid: all points of interest.
        measured_ms: latencies of a whole batch at the measured points.
        prices: prices of vCPUs and GPUs.
        gpu_model: NVML's name of the GPU.
        error_ratio: tolerated error of the planner's cost, as a part of it.
    """
    points = sorted(set(grid))
    unmeasured = [point for point in points if point not in measured_ms]
    first = [point for point in _first_points(points) if point not in measured_ms]
    if first or not unmeasured:
        return sorted(first, key=_by_server)
    least_ms = _least_ms(unmeasured, measured_ms)
    known_ms = np.array([*measured_ms.values()])
    known = _Choices.of([*measured_ms], known_ms, prices, gpu_model)
    choices = _Choices.of(unmeasured, least_ms, prices, gpu_model)
    promising = [
        index
        for index in range(len(unmeasured))
        if not known.as_good(choices, index, error_ratio).any()
    ]
    remaining = _Choices.of(
        [unmeasured[index] for index in promising], least_ms[promising], prices, gpu_model
    )
    return sorted(
        (
            unmeasured[number]
            for index, number in enumerate(promising)
            # What another one may make superfluous waits for a later round.
            if not (remaining.as_good(remaining, index) & ~remaining.equal(index)).any()
        ),
        key=_by_server,
    )


@dataclass(frozen=True, slots=True, eq=False)
class _Choices:
    """Points that the planner may choose, as arrays."""

    batches: _Array
    latencies_ms: _Array
    costs: _Array

    @classmethod
    def of(
        cls, points: Sequence[Point], latencies_ms: _Array, prices: Prices, gpu_model: str
    ) -> "_Choices":
        costs = [
            prices.request_cost_dollars(float(ms), cpu, percent, batch, gpu_model)
            for (batch, cpu, percent), ms in zip(points, latencies_ms, strict=True)
        ]
        return cls(np.array([point[0] for point in points]), latencies_ms, np.array(costs))

    def as_good(self, choices: "_Choices", index: int, error_ratio: float = 0.0) -> _Mask:
        """Return for each point whether the planner can take it in place of one of them."""
        return np.asarray(
            (self.batches <= choices.batches[index])
            & (self.latencies_ms <= choices.latencies_ms[index])
            & (self.costs <= choices.costs[index] * (1 + error_ratio))
        )

    def equal(self, index: int) -> _Mask:
        """Return for each point whether it is the same choice as the one with this index."""
        return np.asarray(
            (self.batches == self.batches[index])
            & (self.latencies_ms == self.latencies_ms[index])
            & (self.costs == self.costs[index])
        )


def _by_server(point: Point) -> Point:
    batch, cpu, percent = point
    return percent, cpu, batch


def _first_points(points: Sequence[Point]) -> list[Point]:
    """Return the combinations of the axes' ends, with one axis or all of them in the middle."""
    axes = [sorted(set(axis)) for axis in zip(*points, strict=True)]
    middles = [axis[len(axis) // 2] if len(axis) > 2 else None for axis in axes]  # noqa: PLR2004
    marks = [{axis[0], axis[len(axis) // 2], axis[-1]} for axis in axes]
    return [
        point
        for point in {*product(*marks)} & {*points}
        if sum(value == middle for value, middle in zip(point, middles, strict=True)) != 2  # noqa: PLR2004
    ]


def _least_ms(points: Sequence[Point], measured_ms: Mapping[Point, float]) -> _Array:
    """Return the shortest latency that each point may have."""
    known = np.array([*measured_ms], float)
    known_ms = np.array([*measured_ms.values()])
    terms = _terms(known)
    inverse = np.linalg.pinv(terms, rcond=_ROUNDING)
    fitted = inverse @ np.log(known_ms)
    # A residual falls with the leverage of its own point on the fit (Allen's PRESS).
    freedom = 1.0 - np.einsum("ij,ji->i", terms, inverse)
    free = freedom > _ROUNDING
    errors = np.abs(terms @ fitted - np.log(known_ms))[free] / freedom[free]
    error = errors.max() if free.any() else np.inf
    least_ms = np.exp(_terms(np.array(points, float)) @ fitted - error)
    for index, (batch, *resources) in enumerate(points):
        faster = (known[:, 0] <= batch) & (known[:, 1:] >= resources).all(axis=1)
        least_ms[index] = max(least_ms[index], known_ms[faster].max(initial=0.0))
    return np.asarray(least_ms)


def _terms(points: _Array) -> _Array:
    """Return the terms of the polynomial, up to the second degree, a row for each point."""
    logs = np.column_stack([np.ones(len(points)), np.log(points)])
    pairs = combinations_with_replacement(range(logs.shape[1]), 2)
    return np.column_stack([logs[:, a] * logs[:, b] for a, b in pairs])
