"""Factories of policy contexts, scheduling requests and demands."""

import numpy as np

from scheduler.model.catalogue import Catalogue
from scheduler.model.fleet_capacity import FleetCapacity
from scheduler.model.plan import Prices
from scheduler.search.rules import Rules
from workbench.profiles.builders import GPU, profile, workflow
from workbench.simulation.containers.configurations import configurations_of
from workbench.simulation.policy import Demand, PolicyContext, SchedulingRequest

KEY = ("default", "w", "s0")
# 10 % of a GPU costs as much as a vCPU.
PLAIN = Prices(vcpu_hour_dollars=1.0, gpu_hour_dollars=10.0)


def catalogue(stages, *, after=None, slo_ms=1_000.0, **about):
    """Workflow "w", a chain by default, from the rows of each stage's function."""
    shape = after or [[i - 1] if i else [] for i in range(len(stages))]
    profiles = [profile(f"f{i}", rows, **about) for i, rows in enumerate(stages)]
    return Catalogue.of([workflow(shape, slo_ms=slo_ms), *profiles])


def context(documents, *, rate_rps=10.0, noise_ratio=0.0, seed=0, models=(GPU,), prices=PLAIN):
    """Return the context of a run with these documents."""
    return PolicyContext(
        catalogue=documents,
        rules=Rules(prices=prices),
        fleet=FleetCapacity.of_models(models),
        noise_ratio=noise_ratio,
        rate_rps=dict.fromkeys(documents.workflows, rate_rps),
        random=np.random.default_rng(seed),
        margin_ratio=0.0,
    )


def request(*, key=KEY, queued=1, waited_ms=0.0, now_ms=5_000.0, starts_ms=(0.0,)):
    """Return a scheduling request for a queue."""
    return SchedulingRequest(key, now_ms, queued, 500.0, waited_ms, 0, starts_ms, 1.0)


def size(candidate):
    """Batch, vCPUs, share."""
    configuration = candidate.configuration
    return configuration.batch, configuration.cpu, configuration.gpu_percent


def sizes(candidates):
    """Batch, vCPUs and share of several candidates."""
    return [size(candidate) for candidate in candidates]


def desired_containers(policy, rate_rps, containers=None, *, queued=0, now_ms=10_000.0, key=KEY):
    """Rescale a queue; return its containers by size."""
    gpu = policy.context.profile(key).spec.gpus[0]
    profiled = {(c.batch, c.cpu, c.gpu_percent): c for c in configurations_of(gpu)}
    counts = {profiled[size_]: n for size_, n in (containers or {}).items()}
    pool, load = policy.pool(key), Demand(rate_rps, queued, counts, (key,))
    desired = policy.desired_containers(now_ms, {pool: load})[pool]
    return {(c.batch, c.cpu, c.gpu_percent): count for c, count in desired.items()}
