"""Factories of small profiles and workflows, for decisions without a cluster."""

from collections.abc import Mapping, Sequence

from scheduler.model.documents import FunctionProfile, Workflow

GPU = "gpu"
Row = tuple[int, int, int, float]  # batch, cpu, gpu_percent, latency_ms


def profile(
    name: str,
    rows: Mapping[str, Sequence[Row]] | Sequence[Row],
    *,
    cold_start_ms: float = 0.0,
    cold_start_p95_ms: float | None = None,
    output_mib: float = 0.0,
    base_mib: int = 0,
    memory_mib: int = 100,
) -> FunctionProfile:
    """Create a profile from rows, or from rows by GPU model.

    Args:
        name: name of the function.
        rows: configurations, on model "gpu" or per model.
        cold_start_ms: median of a cold start.
        cold_start_p95_ms: 95th percentile of it. Default: each takes the median.
        output_mib: size of the output of one request, in MiB.
        base_mib: memory of a process without its batch, in MiB.
        memory_mib: memory per unit of batch, in MiB.
    """
    models = rows if isinstance(rows, Mapping) else {GPU: rows}
    gpus = [
        {
            "model": model,
            "sparse": True,
            "configurations": [
                {
                    "batch": batch,
                    "cpu": cpu,
                    "gpuPercent": percent,
                    "latencyMs": latency_ms,
                    "memoryMib": base_mib + memory_mib * batch,
                }
                for batch, cpu, percent, latency_ms in model_rows
            ],
        }
        for model, model_rows in models.items()
    ]
    spec = {"coldStartMs": cold_start_ms, "outputMib": output_mib, "gpus": gpus}
    if cold_start_p95_ms is not None:
        spec["coldStartP95Ms"] = cold_start_p95_ms
    return FunctionProfile.model_validate({"metadata": {"name": name}, "spec": spec})


def workflow(
    after: Sequence[Sequence[int]],
    *,
    name: str = "w",
    slo_ms: float = 1_000.0,
    functions: Sequence[str] = (),
) -> Workflow:
    """Create a workflow of stages s0, s1, ... of functions f0, f1, ... or ``functions``."""
    stages = {
        f"s{i}": (functions[i] if functions else f"f{i}", *(f"s{p}" for p in before))
        for i, before in enumerate(after)
    }
    return graph(stages, name=name, slo_ms=slo_ms)


def graph(
    stages: Mapping[str, Sequence[str]],
    *,
    name: str = "w",
    namespace: str = "default",
    slo_ms: float = 1_000.0,
) -> Workflow:
    """Create a workflow; each stage has the name of its function, then the stages before it."""
    described = [
        {"name": stage, "function": function, "after": before}
        for stage, (function, *before) in stages.items()
    ]
    return Workflow.model_validate(
        {
            "metadata": {"name": name, "namespace": namespace},
            "spec": {"slo": {"latencyMs": slo_ms}, "stages": described},
        }
    )


def chain(stages: int) -> list[list[int]]:
    """Return the predecessors of each stage of a sequence, as `workflow` takes them."""
    return [[stage - 1] if stage else [] for stage in range(stages)]
