"""Candidates of a single stage: all configurations of its function.

They serve policies that ignore the rest of the workflow: a candidate's path is its stage alone, and
it is valid on every node, however long a start takes there.
"""

from collections.abc import Sequence

from scheduler.model.documents import GpuProfile
from scheduler.model.plan import Candidate
from workbench.simulation.containers.configurations import anywhere, configurations_of
from workbench.simulation.policy import PolicyContext, QueueKey

NEARLY_RATIO = 1.05  # of the fastest time


def candidates_of(context: PolicyContext, key: QueueKey) -> tuple[Candidate, ...]:
    """Return all candidates of a stage, on every GPU model of the cluster."""
    return tuple(c for gpu in _gpus(context, key) for c in _candidates(context, gpu))


def candidates_on_one_model(context: PolicyContext, key: QueueKey) -> tuple[Candidate, ...]:
    """Return a stage's candidates on the GPU model whose minimum configuration is cheapest.

    Policies that walk over a grid of configurations need a single model.
    """
    models = [_candidates(context, gpu) for gpu in _gpus(context, key)]
    return min(models, key=lambda model: minimum(model).path_cost_dollars)


def nearly_fastest(candidates: Sequence[Candidate]) -> list[Candidate]:
    """Return the candidates within 5 % of the fastest, the cheapest first.

    For a stage whose part of the SLO none meets: the last 0.1 ms may cost half of a GPU.
    """
    limit_ms = NEARLY_RATIO * min(candidate.stage_ms for candidate in candidates)
    near = [candidate for candidate in candidates if candidate.stage_ms <= limit_ms]
    return sorted(near, key=lambda candidate: (candidate.path_cost_dollars, candidate.stage_ms))


def minimum(candidates: Sequence[Candidate]) -> Candidate:
    """Return the smallest candidate: by share, then vCPUs, then batch."""
    return min(candidates, key=lambda candidate: size(candidate)[::-1])


def size(candidate: Candidate) -> tuple[int, int, int]:
    """Batch, vCPUs and share."""
    configuration = candidate.configuration
    return configuration.batch, configuration.cpu, configuration.gpu_percent


def _gpus(context: PolicyContext, key: QueueKey) -> list[GpuProfile]:
    return [gpu for gpu in context.profile(key).spec.gpus if gpu.model in context.fleet.models]


def _candidates(context: PolicyContext, gpu: GpuProfile) -> tuple[Candidate, ...]:
    prices = context.rules.prices
    return tuple(
        anywhere(
            c,
            gpu.model,
            prices.request_cost_dollars(c.latency_ms, c.cpu, c.gpu_percent, c.batch, gpu.model),
        )
        for c in configurations_of(gpu)
    )
