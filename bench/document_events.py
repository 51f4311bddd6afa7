"""Time that the event loop is busy with one changed document, among many."""

import statistics
import time
from collections.abc import Mapping
from copy import deepcopy
from typing import Any

from scheduler.model.documents import to_manifest
from scheduler.planning.document_store import DocumentHandler
from scheduler.planning.metrics import Metrics
from scheduler.planning.state import State
from scheduler.search.planner import PlanRequest
from scheduler.settings import Settings
from tests.extender.factories import profile, workflow

WORKFLOWS = 1_000
STAGES = 10
FUNCTIONS = 100
EVENTS = 30


def document_events_ms() -> dict[str, float]:
    """Measure, print and return median times, with the first stage of each workflow prepared."""
    state = State(Settings(), Metrics())
    functions = [f"f{i}" for i in range(FUNCTIONS)]
    profiles = [
        to_manifest(profile(name, *[(percent, 1000 / percent) for percent in range(1, 101)]))
        for name in functions
    ]
    chains = [
        [functions[(7 * i + stage) % FUNCTIONS] for stage in range(STAGES)]
        for i in range(WORKFLOWS)
    ]
    workflows = [
        to_manifest(workflow(f"w{i}", 1_000 + i, *chain)) for i, chain in enumerate(chains)
    ]
    documents = state.documents
    documents.workflows.replace(workflows)
    documents.profiles.replace(profiles)
    for i, chain in enumerate(chains):
        state.planner.stage(PlanRequest(namespace="default", workflow=f"w{i}", stage=chain[0]))
    results = {
        "workflow_event_ms": _median_ms(documents.workflows, workflows, "slo", "latencyMs"),
        "cold_start_event_ms": _median_ms(documents.profiles, profiles, "coldStartMs"),
        "profile_event_ms": _median_ms(
            documents.profiles, profiles, "gpus", 0, "configurations", 0, "latencyMs"
        ),
    }
    print(
        f"\none of {WORKFLOWS:,} workflows changed: {results['workflow_event_ms']:.2f} ms; "
        f"one of {FUNCTIONS} profiles: {results['profile_event_ms']:.2f} ms, its cold start alone: "
        f"{results['cold_start_event_ms']:.2f} ms"
    )
    return results


def _median_ms(
    handler: DocumentHandler[Any, Any], manifests: list[dict[str, Any]], *path: str | int
) -> float:
    times_ms = []
    for number, manifest in enumerate(manifests[:EVENTS], start=1):
        changed = _with_number(manifest, path, 0.5 + number)
        began_s = time.perf_counter()
        handler.upsert(changed)
        times_ms.append(1000 * (time.perf_counter() - began_s))
    return statistics.median(times_ms)


def _with_number(
    manifest: Mapping[str, Any], path: tuple[str | int, ...], number: float
) -> dict[str, Any]:
    changed = deepcopy(dict(manifest))
    parent: Any = changed["spec"]
    for part in path[:-1]:
        parent = parent[part]
    parent[path[-1]] = number
    return changed
