"""The slow, obvious twin of the planner: every combination, in Python floats.

It shares no code with ``scheduler.search``; it knows the same documents and the same question.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from math import inf

from scheduler.model.catalogue import Catalogue
from scheduler.model.documents import ProfiledConfiguration, Stage
from scheduler.model.plan import Prices
from scheduler.search.planner import PlanRequest

MARGIN = 1e-12  # relative: a budget is met where only the order of summation says otherwise

Point = tuple[int, int, int]  # batch, cpu, gpu_percent


@dataclass(frozen=True)
class Completion:
    """One way to run all stages left; ``model`` is that of the stage at hand."""

    model: str
    first: Point
    path_ms: float
    path_cost_dollars: float
    throughput: float  # of the stage at hand, requests per ms

    @property
    def key(self) -> tuple[str, Point]:
        """The GPU model and the first configuration."""
        return self.model, self.first


def stages_left(stages: tuple[Stage, ...], name: str) -> list[Stage]:
    """The stage and its descendants, in an order in which all predecessors come first."""
    left = {name}
    while True:
        more = {s.name for s in stages if left & set(s.after)} - left
        if not more:
            break
        left |= more
    ordered: list[Stage] = []
    while len(ordered) < len(left):
        done = {s.name for s in ordered}
        ordered.extend(
            s
            for s in stages
            if s.name in left and s.name not in done and set(s.after) & left <= done
        )
    return ordered


def longest_path(stages: list[Stage], times: tuple[float, ...]) -> float:
    """The finish time of the last stage, each starting when its predecessors have ended."""
    finish: dict[str, float] = {}
    for stage, time in zip(stages, times, strict=True):
        finish[stage.name] = max((finish.get(p, 0.0) for p in stage.after), default=0.0) + time
    return max(finish.values())


def completions(catalogue: Catalogue, prices: Prices, request: PlanRequest) -> list[Completion]:
    """All completions within the ceilings, whatever the budget."""
    return [
        completion
        for model in sorted(_models(catalogue, request, request.stage))
        for completion in _on_model(catalogue, prices, request, model)
    ]


def best_by_first(
    found: list[Completion], budget_ms: float | None, *, fastest: bool = False
) -> list[Completion]:
    """For each first configuration its best completion within the budget, the best first."""
    limit = inf if budget_ms is None else budget_ms + abs(budget_ms) * MARGIN
    best: dict[tuple[str, Point], Completion] = {}
    for completion in sorted(found, key=lambda c: _order(c, fastest=fastest)):
        if completion.path_ms <= limit:
            best.setdefault(completion.key, completion)
    return list(best.values())


def keeping_up(found: list[Completion], rate: float | None) -> list[Completion]:
    """Those whose first stage has the throughput for the rate."""
    if rate is None:
        return found
    return [c for c in found if c.throughput * 1000.0 * (1 + MARGIN) >= rate]


def _order(completion: Completion, *, fastest: bool) -> tuple[float, float]:
    c = completion
    return (c.path_ms, c.path_cost_dollars) if fastest else (c.path_cost_dollars, c.path_ms)


def _stages(catalogue: Catalogue, request: PlanRequest) -> list[Stage]:
    if request.workflow is None:
        return [Stage(name=request.stage, function=request.stage)]
    workflow = catalogue.workflows[request.namespace, request.workflow]
    return stages_left(workflow.spec.stages, request.stage)


def _models(catalogue: Catalogue, request: PlanRequest, name: str) -> set[str]:
    function = next(s.function for s in _stages(catalogue, request) if s.name == name)
    models = {gpu.model for gpu in catalogue.profiles[function].spec.gpus}
    return models if request.gpu_models is None else models & request.gpu_models


def _configurations(
    catalogue: Catalogue, function: str, model: str
) -> tuple[ProfiledConfiguration, ...]:
    profile = catalogue.profiles[function].gpu(model)
    assert profile is not None
    return profile.configurations


def _allowed(request: PlanRequest, c: ProfiledConfiguration) -> bool:
    return (
        (request.cpu_max is None or c.cpu <= request.cpu_max)
        and (request.gpu_percent_max is None or c.gpu_percent <= request.gpu_percent_max)
        and (request.memory_mib_max is None or c.memory_mib <= request.memory_mib_max)
    )


def _batch_max(catalogue: Catalogue, request: PlanRequest) -> float:
    if request.queued is None:
        return inf
    function = _stages(catalogue, request)[0].function
    batches = [
        c.batch
        for model in _models(catalogue, request, request.stage)
        for c in _configurations(catalogue, function, model)
        if _allowed(request, c)
    ]
    return max(request.queued, min(batches, default=0))


def _on_model(
    catalogue: Catalogue, prices: Prices, request: PlanRequest, model: str
) -> Iterator[Completion]:
    stages = _stages(catalogue, request)
    batch_max = _batch_max(catalogue, request)
    lists = [
        [
            (m, c)
            for m in sorted(_models(catalogue, request, s.name))
            for c in _configurations(catalogue, s.function, m)
        ]
        for s in stages
    ]
    lists[0] = [
        (m, c) for m, c in lists[0] if m == model and _allowed(request, c) and c.batch <= batch_max
    ]
    for choice in product(*lists):
        _, first = choice[0]
        times = [c.latency_ms for _, c in choice]
        if request.rate is not None:
            times[0] += (first.batch - 1) * (1000.0 / request.rate)
        yield Completion(
            model,
            (first.batch, first.cpu, first.gpu_percent),
            longest_path(stages, tuple(times)),
            sum(
                prices.request_cost_dollars(c.latency_ms, c.cpu, c.gpu_percent, c.batch, m)
                for m, c in choice
            ),
            first.batch / first.latency_ms,
        )
