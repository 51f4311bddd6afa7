"""Overview and functions of the live page: figures of the last minutes, computed when asked for."""

import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from functools import partial
from math import inf
from typing import Any

from scheduler.dispatch.pods import FunctionKey
from scheduler.dispatch.requests import WorkflowKey
from scheduler.gateway.metrics import Gauges
from scheduler.gateway.page_history import HOUR_S, WINDOW_S, PageHistory, Sample, StageKey
from scheduler.gateway.service import GatewayService
from scheduler.gateway.state_report import gauges_of, unusable_documents
from scheduler.model.documents import Workflow


class PageReport:
    """Figures of one gateway for the live page.

    Args:
        service: gateway that is shown.
    """

    def __init__(self, service: GatewayService) -> None:
        self._service = service
        self.history = PageHistory(service.metrics, partial(gauges_of, service))

    async def sample(self) -> None:
        """Add a sample, and compute the cost limits of documents that have changed."""
        await self.history.sample()
        await self._service.cost_limits.update()

    def overview(self) -> dict[str, Any]:
        """Describe workflows, functions, the pods that run a batch, and problems."""
        service, gauges = self._service, gauges_of(self._service)
        now = self.history.now(gauges)
        recent, hour = self.history.before(now, WINDOW_S), self.history.before(now, HOUR_S)
        workflows = service.documents.store.catalogue.workflows
        set_aside = _set_aside_dollars(workflows, recent, now)
        return {
            "time": time.time(),
            "seconds": now.at_s - hour.at_s,
            "workflows": [
                self._workflow(workflow, set_aside[workflow.key], recent, hour, now)
                for workflow in workflows.values()
            ],
            "functions": self._functions(gauges, recent, now),
            "group": service.gateway.group,
            "pools": {name: pool.dollars_per_hour for name, pool in gauges.pools.items()},
            "running_pods": [pod.name for pod in service.runtime.dispatcher.pods if pod.runs],
            "problems": unusable_documents(service),
            "not_ready": service.not_ready_reason(),
        }

    def _workflow(
        self, workflow: Workflow, set_aside: float, recent: Sample, hour: Sample, now: Sample
    ) -> dict[str, Any]:
        key, slo = workflow.key, workflow.spec.slo
        counts = _requests(recent, now, key)
        answered = counts["hit"] + counts["miss"]
        seconds = now.at_s - recent.at_s
        in_slo_hour = _in_slo(_requests(hour, now, key))
        allowed = 1.0 - slo.objective
        burnt = None
        if in_slo_hour is not None and allowed > 0:
            burnt = (1.0 - in_slo_hour) / allowed
        ran = now.dollars.get(key, 0.0) - recent.dollars.get(key, 0.0)
        limit = self._service.cost_limits.dollars.get(key)
        return {
            "namespace": key[0],
            "name": key[1],
            "slo_ms": slo.latency_ms,
            "objective": slo.objective,
            "in_slo_5m": _in_slo(counts),
            "in_slo_1h": in_slo_hour,
            "budget_burnt_1h": burnt,
            "per_s": sum(counts.values()) / seconds if seconds else 0.0,
            "p50_ms": _quantile_ms(recent, now, key, 0.5),
            "p99_ms": _quantile_ms(recent, now, key, 0.99),
            "cold_starts_1h": now.cold_starts.get(key, 0.0) - hour.cold_starts.get(key, 0.0),
            "ran_per_1000": 1000 * ran / answered if answered else None,
            "set_aside_per_1000": 1000 * set_aside / answered if answered else None,
            "bound_per_1000": None if limit is None else 1000 * limit,
            "stages": [
                {"name": stage.name, "function": stage.function, "after": list(stage.after)}
                for stage in workflow.spec.stages
            ],
            "minutes": [
                [_in_slo(minute), sum(minute.values()) / max(end.at_s - begin.at_s, 1.0)]
                for begin, end in self.history.minutes(now)
                for minute in [_requests(begin, end, key)]
            ],
        }

    def _functions(self, gauges: Gauges, recent: Sample, now: Sample) -> list[dict[str, Any]]:
        service = self._service
        shares: defaultdict[FunctionKey, Counter[str]] = defaultdict(Counter)
        for pod in service.discovery.known_pods():
            kind = "pooled" if pod.pooled else pod.gpu_model
            shares[pod.function][f"{pod.gpu_percent} %, {pod.cpu} vCPU, {kind}"] += 1
        stages = _stages_of(service.documents.store.catalogue.workflows.values())
        described = []
        for server in service.discovery.in_use():
            function = server.function_key
            keys = stages[function]
            batches, rows = (_sum(name, recent, now, keys) for name in ("batches", "rows"))
            runs = [now.run_ratios.get(key, (0.0, 0.0)) for key in keys]
            earlier = [recent.run_ratios.get(key, (0.0, 0.0)) for key in keys]
            number, total = (sum(r[i] for r in runs) - sum(r[i] for r in earlier) for i in (0, 1))
            described.append(
                {
                    "namespace": function[0],
                    "name": function[1],
                    "ready": gauges.pods[function]["ready"],
                    "starting": gauges.pods[function]["starting"],
                    "draining": gauges.pods[function]["draining"],
                    "wanted": gauges.pods_wanted[function],
                    "queued_rows": sum(gauges.queued_rows.get(key, 0) for key in keys),
                    "shares": dict(shares[function]),
                    "rows_per_batch": rows / batches if batches else None,
                    "run_over_profile": total / number if number else None,
                    # Without a pod that holds a share of its own, its price is the pool's.
                    "dollars_per_hour": gauges.dollars_per_hour.get(
                        function, None if shares[function] else 0.0
                    ),
                }
            )
        return described


def _requests(begin: Sample, end: Sample, key: WorkflowKey) -> dict[str, float]:
    first, last = begin.requests.get(key, {}), end.requests.get(key, {})
    return {
        result: max(last.get(result, 0.0) - first.get(result, 0.0), 0.0)
        for result in ("hit", "miss", "dropped")
    }


def _in_slo(counts: Mapping[str, float]) -> float | None:
    total = sum(counts.values())
    return counts["hit"] / total if total else None


def _quantile_ms(begin: Sample, end: Sample, key: WorkflowKey, ratio: float) -> float | None:
    """Return a quantile of the latency, interpolated within its bucket."""
    first, last = begin.durations.get(key, {}), end.durations.get(key, {})
    counts = [(edge, count - first.get(edge, 0.0)) for edge, count in sorted(last.items())]
    total = counts[-1][1] if counts else 0.0
    if total <= 0:
        return None
    below_s, below = 0.0, 0.0
    for edge_s, count in counts:
        if count >= ratio * total:
            if edge_s == inf:
                break
            part = (ratio * total - below) / (count - below) if count > below else 1.0
            return 1000 * (below_s + part * (edge_s - below_s))
        below_s, below = edge_s, count
    return 1000 * below_s


def _stages_of(
    workflows: Iterable[Workflow],
) -> defaultdict[FunctionKey, list[tuple[str, str, str]]]:
    stages: defaultdict[FunctionKey, list[tuple[str, str, str]]] = defaultdict(list)
    for workflow in workflows:
        for stage in workflow.spec.stages:
            stages[workflow.key[0], stage.function].append((*workflow.key, stage.name))
    return stages


def _sum(name: str, begin: Sample, end: Sample, keys: Iterable[StageKey]) -> float:
    first: Mapping[StageKey, float] = getattr(begin, name)
    last: Mapping[StageKey, float] = getattr(end, name)
    return sum(last.get(key, 0.0) - first.get(key, 0.0) for key in keys)


def _set_aside_dollars(
    workflows: Mapping[WorkflowKey, Workflow], begin: Sample, end: Sample
) -> defaultdict[WorkflowKey, float]:
    """Divide what pods and pools held among workflows, by the rows and the dollars that ran."""
    dollars: defaultdict[WorkflowKey, float] = defaultdict(float)
    for function, keys in _stages_of(workflows.values()).items():
        paid = end.held_dollars.get(function, 0.0) - begin.held_dollars.get(function, 0.0)
        rows = {key: _sum("rows", begin, end, [key]) for key in keys}
        _divide(paid, {key: rows[key] for key in keys}, dollars)
    for namespace, pool in end.pool_dollars.items():
        paid = pool - begin.pool_dollars.get(namespace, 0.0)
        ran = {
            key: end.dollars.get(key, 0.0) - begin.dollars.get(key, 0.0)
            for key in workflows
            if key[0] == namespace
        }
        _divide(paid, ran, dollars)
    return dollars


def _divide(
    paid: float, weights: Mapping[Any, float], dollars: defaultdict[WorkflowKey, float]
) -> None:
    total = sum(weights.values())
    for key, weight in weights.items():
        dollars[key[0], key[1]] += paid * (weight / total if total else 1 / len(weights))
