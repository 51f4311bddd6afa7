"""What a stage may run under, taken by itself: all configurations of its function.

For policies that know no tail of a workflow: a candidate's path is its stage alone, and it holds
wherever the stage may start, however long that takes.
"""

from collections.abc import Sequence

from scheduler.model.documents import GpuProfile
from scheduler.model.plan import Candidate
from workbench.simulation.configurations import anywhere, configurations_of
from workbench.simulation.policy import PolicyContext, QueueKey


def candidates_of(world: PolicyContext, key: QueueKey) -> tuple[Candidate, ...]:
    """All of a stage, on every GPU model of the cluster."""
    return tuple(each for gpu in _gpus(world, key) for each in _candidates(world, gpu))


def candidates_on_one_model(world: PolicyContext, key: QueueKey) -> tuple[Candidate, ...]:
    """Those of a stage on the GPU model where its minimum configuration costs least.

    For policies that walk over a grid of configurations, which is a grid on one model alone.
    """
    models = [_candidates(world, gpu) for gpu in _gpus(world, key)]
    return min(models, key=lambda model: minimum(model).path_cost)


def minimum(candidates: Sequence[Candidate]) -> Candidate:
    """The least share, then the fewest vCPUs, then the smallest batch."""
    return min(candidates, key=lambda candidate: size(candidate)[::-1])


def size(candidate: Candidate) -> tuple[int, int, int]:
    """Batch, vCPUs and share."""
    asked = candidate.configuration
    return asked.batch, asked.cpu, asked.gpu_percent


def _gpus(world: PolicyContext, key: QueueKey) -> list[GpuProfile]:
    return [gpu for gpu in world.profile(key).spec.gpus if gpu.model in world.gpu_models]


def _candidates(world: PolicyContext, gpu: GpuProfile) -> tuple[Candidate, ...]:
    prices = world.rules.prices
    return tuple(
        anywhere(
            c, gpu.model, prices.per_request(c.latency_ms, c.cpu, c.gpu_percent, c.batch, gpu.model)
        )
        for c in configurations_of(gpu)
    )
