"""The first minute of a pool: gateway and simulator begin without a pod, and know no rate."""

from math import inf

import numpy as np
import pytest

from scheduler.model.catalogue import Catalogue
from tests.gateway.virtual_cluster import VirtualGateway
from tests.virtual_loop import run_virtually
from workbench.profiles.generated import FUNCTIONS, WORKFLOWS, generated_profile, generated_workflow
from workbench.simulation.engine import simulate
from workbench.simulation.loop import Observers
from workbench.simulation.scenario import Scenario
from workbench.simulation.scenario_catalogue import shaped
from workbench.simulation.workloads.arrivals import Extent
from workbench.simulation.workloads.paper import Paper

NODES, CPUS, NOISE_RATIO = 16, 16, 0.05
REQUESTS = 600  # of half a minute
SEEDS = range(2)
SAMPLES = Catalogue.of([*map(generated_workflow, WORKFLOWS), *map(generated_profile, FUNCTIONS)])
KEYS = tuple(SAMPLES.workflows)
CLUSTER = Scenario(
    nodes=NODES,
    cpus=CPUS,
    warm_containers=0,
    warmup_ms=0.0,
    noise_ratio=NOISE_RATIO,
    bandwidth_mib_s=inf,
    pool=True,
)


def arrivals():
    """Return the requests of both."""
    return Paper(load="light").arrivals(KEYS, seed=0, extent=Extent(requests=REQUESTS))


def simulated(seed):
    """Return the ratio of requests in time, and the number of processes, in the simulator."""
    records = []
    result = simulate(
        CLUSTER,
        shaped(SAMPLES, CLUSTER, KEYS),
        arrivals(),
        "warm",
        seed=seed,
        rates_rps=dict.fromkeys(KEYS, 0.0),
        observers=Observers(on_request=records.append),
    )
    return sum(record.outcome == "hit" for record in records) / REQUESTS, result.prewarmed


async def served(seed):
    """Return the same of the gateway, and the percent of its slices."""
    catalogue = shaped(SAMPLES, CLUSTER, KEYS)
    gateway = VirtualGateway(catalogue, nodes=NODES, cpus=CPUS, noise_ratio=NOISE_RATIO, seed=seed)
    chunks = [(times_ms.tolist(), indices.tolist()) for times_ms, indices in arrivals().chunks()]
    times_ms = [time_ms for chunk, _ in chunks for time_ms in chunk]
    workflows = [KEYS[index] for _, indices in chunks for index in indices]
    latencies_ms = await gateway.serve(times_ms, workflows)
    slos_ms = [catalogue.workflow(*key).spec.slo.latency_ms for key in workflows]
    created = gateway.cluster.created
    percents = [share.gpu_percent for share in created["holder"]]
    return np.mean(np.array(latencies_ms) <= slos_ms), len(created["member"]), percents


@pytest.mark.slow
def test_the_gateway_keeps_what_the_simulator_says_from_the_first_request_on():
    """In time within one point, where a pod has its node and runs a tenth of a second later.

    Each further tenth costs up to a point: a holder and then its members are placed, and the pool
    is enlarged twice.
    """
    live = [run_virtually(served(seed)) for seed in SEEDS]
    simulations = [simulated(seed) for seed in SEEDS]
    in_time, processes = np.mean([run[:2] for run in live], axis=0)
    simulated_in_time, simulated_processes = np.mean(simulations, axis=0)
    assert in_time == pytest.approx(simulated_in_time, abs=0.01)
    assert processes <= 1.1 * simulated_processes
    for _, _, percents in live:  # one for the first request, and whole GPUs when others follow
        assert percents[0] < 100
        assert set(percents[1:]) == {100}
