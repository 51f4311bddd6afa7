"""Least cost of a trace of requests, all of which are known beforehand.

It is a bound for schedules in time by the profile's mean times, whose batches have consecutive
requests at one stage of one workflow, as queues in order of arrival form them. It is none where
stages of several workflows that share a function share its batches too, as with INFless. Nothing
else limits them: batches begin at any time, on processes that cost nothing but while they run.

A batch begins a stage when its youngest request can be there, and its oldest request still has all
later stages before it. So the difference of the two arrivals and the time of the batch fit into the
SLO without the fastest times of the other stages. Under this rule alone a dynamic programme over
the requests groups each stage at the least cost.

Stages are coupled by prices. For each stage of the longest path, the wait of a request for the
youngest of its batch there and its times in this stage and in all later ones fit into the SLO
without the fastest times before. A price on this sum is paid by each request, and given back for
the whole SLO. Any prices leave a bound (Lagrange), so the greatest one that a search finds is
taken, and B0 where that is greater.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import inf

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize

from scheduler.model.catalogue import Catalogue
from scheduler.model.documents import FunctionProfile, Workflow
from scheduler.model.plan import Prices
from scheduler.search.cost_bound import request_bounds_dollars

WorkflowKey = tuple[str, str]
Floats = NDArray[np.float64]
_EVALUATIONS = 120  # of the search for the prices
_DEAREST = 16.0  # price for which a whole SLO costs so many times B0
_ROUNDING = 1e-9


@dataclass(frozen=True, slots=True)
class StageRoom:
    """Configurations of a stage, and the time around it.

    Attributes:
        batches, times_ms, dollars: batch, time and price of a run of each configuration.
        before_ms: fastest time of the stages before.
        window_ms: SLO without the fastest times of the stages before and after.
        place: position on the longest path; -1: it is not on it.
    """

    batches: NDArray[np.int64]
    times_ms: Floats
    dollars: Floats
    before_ms: float
    window_ms: float
    place: int


def trace_bound_dollars(
    catalogue: Catalogue, arrivals_ms: Mapping[WorkflowKey, Sequence[float]], prices: Prices
) -> float:
    """Return the least cost of all requests; inf where a workflow cannot be in time.

    Args:
        catalogue: workflows and the profiles of their functions.
        arrivals_ms: times of the requests of each workflow, ascending.
        prices: prices of vCPUs and GPUs.
    """
    bounds_dollars = request_bounds_dollars(catalogue, prices)
    return sum(
        _workflow_bound_dollars(
            stage_rooms(catalogue.workflow(*key), catalogue.profiles, prices),
            np.array(times_ms, np.float64),
            catalogue.workflow(*key).spec.slo.latency_ms,
            bounds_dollars[key],
        )
        for key, times_ms in arrivals_ms.items()
        if len(times_ms)
    )


def stage_rooms(
    workflow: Workflow, profiles: Mapping[str, FunctionProfile], prices: Prices
) -> list[StageRoom]:
    """Describe the stages of a workflow, by the fastest times of the others."""
    stages = {stage.name: stage for stage in workflow.spec.stages}
    rows_of = {
        name: [
            (gpu.model, c) for gpu in profiles[stage.function].spec.gpus for c in gpu.configurations
        ]
        for name, stage in stages.items()
    }
    fastest_ms = {name: min(c.latency_ms for _, c in rows) for name, rows in rows_of.items()}
    successors: dict[str, list[str]] = {name: [] for name in stages}
    for name, stage in stages.items():
        for before in stage.after:
            successors[before].append(name)
    heads_ms = _longest_ms({name: stage.after for name, stage in stages.items()}, fastest_ms)
    tails_ms = _longest_ms(successors, fastest_ms)
    path = _critical_path(successors, fastest_ms, heads_ms, tails_ms)
    rooms = []
    for name, rows in rows_of.items():
        rooms.append(
            StageRoom(
                np.array([c.batch for _, c in rows]),
                np.array([c.latency_ms for _, c in rows]),
                np.array(
                    [
                        prices.request_cost_dollars(c.latency_ms, c.cpu, c.gpu_percent, 1, model)
                        for model, c in rows
                    ]
                ),
                heads_ms[name],
                workflow.spec.slo.latency_ms - heads_ms[name] - tails_ms[name],
                path.index(name) if name in path else -1,
            )
        )
    return rooms


def least_groups_dollars(
    room: StageRoom, times_ms: Floats, run_price: float = 0.0, wait_price: float = 0.0
) -> float:
    """Return the least cost of a stage's batches, by a dynamic programme; inf: none in time.

    Args:
        room: the stage.
        times_ms: arrivals of the requests, ascending.
        run_price: additional price of each ms that a request is in a batch.
        wait_price: the same of each ms that it waits for the youngest of its batch.
    """
    count = len(times_ms)
    sums_ms = np.concatenate([[0.0], np.cumsum(times_ms)])
    costs = []  # by size of the group, of the groups that begin with each request
    for size in range(1, min(int(room.batches.max()), count) + 1):
        youngest = times_ms[size - 1 :]
        cost = _run_dollars(room, size, youngest - times_ms[: count - size + 1], run_price)
        waits_ms = size * youngest - (sums_ms[size:] - sums_ms[:-size])
        costs.append((cost + wait_price * waits_ms).tolist())
    minimum_dollars = [0.0] * (count + 1)
    for end in range(1, count + 1):
        minimum_dollars[end] = min(
            minimum_dollars[end - size] + costs[size - 1][end - size]
            for size in range(1, min(len(costs), end) + 1)
        )
    return minimum_dollars[count]


def _run_dollars(room: StageRoom, size: int, spans_ms: Floats, price: float) -> Floats:
    """Return the least cost of a run of so many requests, by the span of their arrivals."""
    fits = room.batches >= size
    times_ms, dollars = room.times_ms[fits], room.dollars[fits]
    order = np.argsort(times_ms)
    minimum_dollars = np.minimum.accumulate(dollars[order] + price * size * times_ms[order])
    left_ms = room.window_ms * (1.0 + _ROUNDING) - spans_ms
    places = np.searchsorted(times_ms[order], left_ms, side="right")
    return np.concatenate([[inf], minimum_dollars])[places]


def _workflow_bound_dollars(
    rooms: Sequence[StageRoom], times_ms: Floats, slo_ms: float, bound_dollars: float
) -> float:
    """Return the greatest bound that a search over the prices finds."""
    if bound_dollars == inf:
        return inf
    path = sorted((room for room in rooms if room.place >= 0), key=lambda room: room.place)
    alone = sum(least_groups_dollars(room, times_ms) for room in rooms if room.place < 0)
    unit = bound_dollars / slo_ms

    def dual(units: Floats) -> float:
        prices = unit * units
        on_path = (
            least_groups_dollars(room, times_ms, float(run_price), float(wait_price))
            for room, run_price, wait_price in zip(path, np.cumsum(prices), prices, strict=True)
        )
        given_back = sum(
            price * (slo_ms - room.before_ms) for room, price in zip(path, prices, strict=True)
        )
        return alone + sum(on_path) - len(times_ms) * float(given_back)

    start = np.zeros(len(path))
    start[0] = 1.0
    search = minimize(
        lambda units: -dual(units),
        start,
        method="Powell",
        bounds=[(0.0, _DEAREST)] * len(path),
        options={"maxfev": _EVALUATIONS, "xtol": 1e-3, "ftol": 1e-5},
    )
    nothing = dual(np.zeros(len(path)))
    return max(-float(search.fun), nothing, len(times_ms) * bound_dollars)


def _longest_ms(
    before: Mapping[str, Iterable[str]], fastest_ms: Mapping[str, float]
) -> dict[str, float]:
    """Return the longest path of fastest times to each stage, without the stage's own."""
    longest: dict[str, float] = {}

    def visit(name: str) -> float:
        if name not in longest:
            paths = (visit(stage) + fastest_ms[stage] for stage in before[name])
            longest[name] = max(paths, default=0.0)
        return longest[name]

    for name in before:
        visit(name)
    return longest


def _critical_path(
    successors: Mapping[str, Sequence[str]],
    fastest_ms: Mapping[str, float],
    heads_ms: Mapping[str, float],
    tails_ms: Mapping[str, float],
) -> list[str]:
    """Return the path with the longest fastest time, from its entry."""

    def through_ms(name: str) -> float:
        return fastest_ms[name] + tails_ms[name]

    path = [max((name for name in successors if not heads_ms[name]), key=through_ms)]
    while successors[path[-1]]:
        path.append(max(successors[path[-1]], key=through_ms))
    return path
