"""Slow, obvious twin of the planner: every combination, in Python floats.

It shares no code with ``scheduler.search``, only documents and requests.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from math import inf

from scheduler.model.catalogue import Catalogue
from scheduler.model.documents import ProfiledConfiguration, Stage
from scheduler.model.plan import Prices
from scheduler.search.planner import PlanRequest

ROUNDING = 1e-12  # relative; a budget is met if only the order of summation exceeds it

Point = tuple[int, int, int]  # batch, cpu, gpu_percent


@dataclass(frozen=True)
class NaiveCompletion:
    """One way to run all unfinished stages; ``model`` is that of the current stage."""

    model: str
    first: Point
    path_ms: float  # the longest path through the current stage
    others_ms: float  # the longest path that avoids it
    path_cost_dollars: float
    requests_per_ms: float  # throughput of the current stage

    @property
    def key(self) -> tuple[str, Point]:
        """Return the GPU model and the first configuration."""
        return self.model, self.first


def unfinished_stages(stages: tuple[Stage, ...], request: PlanRequest) -> list[Stage]:
    """Return the current stage, then the others that have not ended, predecessors first."""
    after = {s.name: set(s.after) for s in stages}
    ended: set[str] = set()
    pending = [request.stage, *request.progress.ended, *request.progress.running_ms]
    while pending:
        for name in after[pending.pop()] - ended:
            ended.add(name)
            pending.append(name)
    ended |= request.progress.ended
    first = next(s for s in stages if s.name == request.stage)
    ordered = [first]
    while len(ordered) + len(ended) < len(stages):
        done = ended | {s.name for s in ordered}
        ordered.extend(s for s in stages if s.name not in done and after[s.name] <= done)
    return ordered


def longest_path_ms(stages: list[Stage], times: tuple[float, ...], *, through: bool) -> float:
    """Return the length of the longest path that starts with the first stage, or that avoids it."""
    first = stages[0].name
    finish: dict[str, float] = {}
    for stage, time in zip(stages, times, strict=True):
        before = [finish[p] for p in stage.after if p in finish]
        if through and stage.name != first and not before:
            continue
        if through or stage.name != first:
            finish[stage.name] = max(before, default=0.0) + time
    return max(finish.values(), default=0.0)


def completions(
    catalogue: Catalogue, prices: Prices, request: PlanRequest
) -> list[NaiveCompletion]:
    """List all completions within the ceilings, regardless of the budget."""
    return [
        completion
        for model in sorted(_models(catalogue, request, request.stage))
        for completion in _on_model(catalogue, prices, request, model)
    ]


def best_by_first(
    candidates: list[NaiveCompletion],
    budget_ms: float | None,
    start_ms: float = 0.0,
    *,
    fastest: bool = False,
) -> list[NaiveCompletion]:
    """Return the best completion of each first configuration within the budget, best first.

    The current stage starts after ``start_ms``, its siblings at once.
    """
    limit = inf if budget_ms is None else budget_ms + abs(budget_ms) * ROUNDING
    best: dict[tuple[str, Point], NaiveCompletion] = {}
    for completion in sorted(candidates, key=lambda c: _order(c, fastest=fastest)):
        if completion.path_ms <= limit - start_ms and completion.others_ms <= limit:
            best.setdefault(completion.key, completion)
    return list(best.values())


def serving_rate(
    candidates: list[NaiveCompletion], rate_rps: float | None
) -> list[NaiveCompletion]:
    """Return the completions whose first stage has the throughput for the rate."""
    if rate_rps is None:
        return candidates
    return [c for c in candidates if c.requests_per_ms * 1000.0 * (1 + ROUNDING) >= rate_rps]


def _order(completion: NaiveCompletion, *, fastest: bool) -> tuple[float, float]:
    c = completion
    return (c.path_ms, c.path_cost_dollars) if fastest else (c.path_cost_dollars, c.path_ms)


def _stages(catalogue: Catalogue, request: PlanRequest) -> list[Stage]:
    if request.workflow is None:
        return [Stage(name=request.stage, function=request.stage)]
    workflow = catalogue.workflows[request.namespace, request.workflow]
    return unfinished_stages(workflow.spec.stages, request)


def _models(catalogue: Catalogue, request: PlanRequest, name: str) -> set[str]:
    function = next(s.function for s in _stages(catalogue, request) if s.name == name)
    models = {gpu.model for gpu in catalogue.profiles[function].spec.gpus}
    return {m for m in models if request.fleet is None or m in request.fleet.models}


def _configurations(
    catalogue: Catalogue, request: PlanRequest, function: str, model: str
) -> list[ProfiledConfiguration]:
    """List the configurations that some node holds if the pod has no other containers."""
    profile = catalogue.profiles[function].gpu(model)
    assert profile is not None
    fleet = request.fleet
    return [c for c in profile.configurations if fleet is None or fleet.holds(model, c)]


def _allowed(request: PlanRequest, model: str, c: ProfiledConfiguration) -> bool:
    beside = request.fleet and request.fleet.beside(request.other_cpu_milli)
    return (
        (beside is None or beside.holds(model, c))
        and (request.cpu_max is None or c.cpu <= request.cpu_max)
        and (request.gpu_percent_max is None or c.gpu_percent <= request.gpu_percent_max)
        and (request.memory_mib_max is None or c.memory_mib <= request.memory_mib_max)
        and (
            (point := request.configuration) is None
            or (c.batch, c.cpu, c.gpu_percent) == (point.batch, point.cpu, point.gpu_percent)
        )
    )


def _batch_max(catalogue: Catalogue, request: PlanRequest) -> int | None:
    if request.queued is None:
        return None
    function = _stages(catalogue, request)[0].function
    batches = [
        c.batch
        for model in _models(catalogue, request, request.stage)
        for c in _configurations(catalogue, request, function, model)
        if _allowed(request, model, c)
    ]
    return max(request.queued, min(batches, default=0))


def _smallest_batch(catalogue: Catalogue, request: PlanRequest, stage: Stage) -> int:
    return min(
        c.batch
        for model in _models(catalogue, request, stage.name)
        for c in _configurations(catalogue, request, stage.function, model)
    )


def _on_model(
    catalogue: Catalogue, prices: Prices, request: PlanRequest, model: str
) -> Iterator[NaiveCompletion]:
    stages = _stages(catalogue, request)
    batch_max = _batch_max(catalogue, request)
    running_ms = request.progress.running_ms
    lists: list[list[tuple[str, ProfiledConfiguration | None]]] = [
        [(model, None)]
        if s.name in running_ms
        else [
            (m, c)
            for m in sorted(_models(catalogue, request, s.name))
            for c in _configurations(catalogue, request, s.function, m)
        ]
        for s in stages
    ]
    lists[0] = [(model, c) for c in _configurations(catalogue, request, stages[0].function, model)]
    lists[0] = [
        (m, c)
        for m, c in lists[0]
        if c is not None
        and m == model
        and _allowed(request, m, c)
        and (batch_max is None or c.batch <= batch_max)
    ]
    for choice in product(*lists):
        _, first = choice[0]
        assert first is not None
        times = [
            running_ms[s.name] if c is None else c.latency_ms
            for s, (_, c) in zip(stages, choice, strict=True)
        ]
        if request.rate_rps is not None:
            times[0] += (first.batch - 1) * (1000.0 / request.rate_rps)
        yield NaiveCompletion(
            model,
            (first.batch, first.cpu, first.gpu_percent),
            longest_path_ms(stages, tuple(times), through=True),
            longest_path_ms(stages, tuple(times), through=False),
            sum(
                prices.request_cost_dollars(c.latency_ms, c.cpu, c.gpu_percent, c.batch, m)
                for m, c in choice
                if c is not None
            ),
            first.batch / first.latency_ms,
        )
