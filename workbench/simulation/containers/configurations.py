"""A profile's configurations as candidates, for policies that choose without a plan."""

from bisect import bisect_right
from collections.abc import Iterable
from math import inf

from scheduler.model.documents import FunctionProfile, GpuProfile
from scheduler.model.plan import Candidate, Configuration, Prices


def configurations_of(gpu: GpuProfile) -> list[Configuration]:
    """All configurations on one GPU model."""
    return [
        Configuration(c.batch, c.cpu, c.gpu_percent, c.memory_mib, c.latency_ms)
        for c in gpu.configurations
    ]


def batches_filled(profile: FunctionProfile) -> tuple[int, ...]:
    """By number of jobs that wait: the largest batch that they fill, else the smallest there is.

    The last one is that of all longer queues.
    """
    profiled = sorted({c.batch for gpu in profile.spec.gpus for c in gpu.configurations})
    return tuple(
        profiled[max(bisect_right(profiled, queued) - 1, 0)] for queued in range(profiled[-1] + 1)
    )


def anywhere(configuration: Configuration, gpu_model: str, cost_dollars: float = 0.0) -> Candidate:
    """A configuration as a candidate that holds on every node, whatever a start takes there."""
    latency_ms = configuration.latency_ms
    return Candidate(configuration, gpu_model, latency_ms, latency_ms, cost_dollars, inf)


def warm_first(
    candidates: Iterable[Candidate], starts_ms: Iterable[float]
) -> tuple[Candidate, ...]:
    """The candidates on nodes of the shortest start, then on those of the next, and so on.

    For policies that do not weigh starts: without it the node that ran the predecessor would be
    taken for a cold start, before one where the function is warm.
    """
    listed = tuple(candidates)
    return tuple(c._replace(start_ms=start_ms) for start_ms in starts_ms for c in listed)


def minimum_candidates(profile: FunctionProfile, prices: Prices) -> tuple[Candidate, ...]:
    """On each GPU model the least share, then the fewest vCPUs, then the smallest batch.

    The model comes first on which that is cheapest.
    """
    smallest = [
        (min(configurations_of(gpu), key=lambda c: (c.gpu_percent, c.cpu, c.batch)), gpu.model)
        for gpu in profile.spec.gpus
    ]
    return cheapest_first((anywhere(*pair) for pair in smallest), prices)


def cheapest_first(candidates: Iterable[Candidate], prices: Prices) -> tuple[Candidate, ...]:
    """By what a request costs, run to its end."""

    def dollars(candidate: Candidate) -> float:
        c = candidate.configuration
        return prices.request_cost_dollars(
            c.latency_ms, c.cpu, c.gpu_percent, c.batch, candidate.gpu_model
        )

    return tuple(sorted(candidates, key=dollars))
