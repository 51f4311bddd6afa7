"""Factories of small profiles and workflows, for decisions without a cluster."""

from scheduler.model.documents import FunctionProfile, Workflow

GPU = "gpu"
Row = tuple[int, int, int, float]  # batch, cpu, gpu_percent, latency_ms


def profile(name, rows, *, cold_start_ms=0.0, output_mib=0.0, memory_mib=100):
    """A profile from rows, or from rows by GPU model; memory is so many MiB per unit of batch."""
    models = rows if isinstance(rows, dict) else {GPU: rows}
    gpus = [
        {
            "model": model,
            "sparse": True,
            "configurations": [
                {
                    "batch": batch,
                    "cpu": cpu,
                    "gpuPercent": percent,
                    "latencyMs": float(latency_ms),
                    "memoryMib": memory_mib * batch,
                }
                for batch, cpu, percent, latency_ms in listed
            ],
        }
        for model, listed in models.items()
    ]
    spec = {"coldStartMs": cold_start_ms, "outputMib": output_mib, "gpus": gpus}
    return FunctionProfile.model_validate({"metadata": {"name": name}, "spec": spec})


def workflow(after, *, name="w", slo_ms=1_000.0, functions=None):
    """Workflow ``name`` of stages s0, s1, ... of functions f0, f1, ... or as given."""
    stages = [
        {
            "name": f"s{i}",
            "function": functions[i] if functions else f"f{i}",
            "after": [f"s{p}" for p in before],
        }
        for i, before in enumerate(after)
    ]
    return Workflow.model_validate(
        {
            "metadata": {"name": name, "namespace": "default"},
            "spec": {"slo": {"latencyMs": float(slo_ms)}, "stages": stages},
        }
    )
