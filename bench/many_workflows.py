"""Filter calls for many workflows whose order is not series-parallel.

    python -m bench.many_workflows

Two hundred workflows of ten stages in any order share a hundred functions. All are prepared first,
as the extender does it in a thread, and one pod of each stage is filtered. The times are CPU times
of the thread, so that other load of the machine does not count.
"""

import asyncio
import random
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np

from bench import synthetic_load
from scheduler.model.catalogue import Catalogue
from scheduler.model.documents import FunctionProfile, Workflow
from scheduler.planning.pods import PendingPod, describe
from scheduler.search.planner import Planner, prepare
from scheduler.settings import Settings
from tests.extender.embedded_service import EmbeddedService, embedded_service
from tests.search.factories import any_order, noisy_rows
from workbench.profiles.builders import profile, workflow

WORKFLOWS = 200
STAGES = 10
FUNCTIONS = 100
CONFIGURATIONS = 64
MODEL = "NVIDIA A100-SXM4-80GB"  # of the synthetic nodes
NODES = 8
FACTORS = (1.2, 1.5, 2.0, 3.0)  # of a workflow's SLO over the time of its fastest completion


@dataclass(frozen=True, slots=True)
class FilterTimes:
    """CPU times of the first plan of a pod and of its filter call, in ms."""

    filter_ms: float
    plan_ms: float
    exact: bool


def many() -> dict[str, float]:
    """Measure and print preparation, plans and filter calls."""
    prepare_ms, times = asyncio.run(_measured())
    plans_ms = [t.plan_ms for t in times]
    p99_ms = float(np.percentile(plans_ms, 99, method="inverted_cdf"))
    filters_ms = [t.filter_ms for t in times]
    filter_p99_ms = float(np.percentile(filters_ms, 99, method="inverted_cdf"))
    exact_percent = 100 * statistics.mean(t.exact for t in times)
    print(
        f"\n{WORKFLOWS} workflows of {STAGES} stages in any order, {CONFIGURATIONS} configurations"
        f"\n  preparation of a workflow: median {statistics.median(prepare_ms):.1f} ms, "
        f"maximum {max(prepare_ms):.1f} ms"
        f"\n  a plan: median {statistics.median(plans_ms):.2f} ms, maximum {max(plans_ms):.2f} ms; "
        f"{exact_percent:.0f} % are exact"
        f"\nmany: p99_ms: {p99_ms:.2f}  filter_p99_ms: {filter_p99_ms:.2f}  "
        f"prepare_ms: {statistics.mean(prepare_ms):.1f}",
        flush=True,
    )
    return {
        "many_p99_ms": p99_ms,
        "many_filter_p99_ms": filter_p99_ms,
        "many_prepare_ms": statistics.mean(prepare_ms),
        "many_prepare_max_ms": max(prepare_ms),
        "many_exact_percent": exact_percent,
    }


async def _measured() -> tuple[list[float], list[FilterTimes]]:
    """Return the preparation time of each workflow, and the times of each stage's pod."""
    nodes = synthetic_load.nodes(NODES, 1)
    workflows, profiles = _documents()
    service = embedded_service(Settings(), nodes, [*workflows, *profiles])
    async with service.running():
        planner, fleet = service.state.planner, service.planning.planner.fleet()
        prepare_ms = [_cpu_ms(partial(planner.workflow(*w.key).prepare, fleet)) for w in workflows]
        names = [node["metadata"]["name"] for node in nodes]
        pods = [
            describe(synthetic_load.pod(number, w, stage.name))
            for number, (w, stage) in enumerate((w, s) for w in workflows for s in w.spec.stages)
        ]
        return prepare_ms, [_filtered(service, pod, names) for pod in pods]


def _filtered(service: EmbeddedService, pod: PendingPod, names: list[str]) -> FilterTimes:
    """Measure the first plan of a pod, as at its admission, and then its filter call."""
    if pod.function_pod is None:
        raise RuntimeError(f"pod {pod.name} is not a function pod: {pod.problem}")
    node_rows = service.state.ledger.fleet.rows(names)
    plan = partial(service.planning.planner.plan_for_nodes, pod.function_pod, node_rows)
    plan_ms = _cpu_ms(plan)
    filter_ms = _cpu_ms(partial(service.scheduler.schedule, pod, names))
    return FilterTimes(filter_ms, plan_ms, plan()[0].exact)


def _cpu_ms(call: Callable[[], object]) -> float:
    began_s = time.thread_time()
    call()
    return 1000 * (time.thread_time() - began_s)


def _documents() -> tuple[list[Workflow], list[FunctionProfile]]:
    """Create the workflows and the profiles of their functions."""
    rng = random.Random(1)
    profiles = [
        profile(f"f{i}", {MODEL: noisy_rows(rng, CONFIGURATIONS, 3)}) for i in range(FUNCTIONS)
    ]
    workflows = []
    for seed in range(WORKFLOWS):
        functions = [f"f{i}" for i in rng.sample(range(FUNCTIONS), STAGES)]
        draft = workflow(any_order(STAGES, seed), functions=functions)
        fastest_ms = Planner(Catalogue.of([draft, *profiles])).fastest_ms(*draft.key)
        slo = draft.spec.slo.model_copy(
            update={"latency_ms": FACTORS[seed % len(FACTORS)] * fastest_ms}
        )
        metadata = draft.metadata.model_copy(update={"name": f"w{seed}"})
        spec = draft.spec.model_copy(update={"slo": slo})
        workflows.append(draft.model_copy(update={"metadata": metadata, "spec": spec}))
    return workflows, profiles


if __name__ == "__main__":
    prepare()
    many()
