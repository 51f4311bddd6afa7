"""The first minute of a pool: gateway and simulator begin without a pod, and know no rate."""

import numpy as np
import pytest

from scheduler.model.catalogue import Catalogue
from tests.gateway.virtual_cluster import VirtualGateway
from tests.simulation.simulated_trace import ServedTrace, scenario, simulated
from tests.virtual_loop import run_virtually
from workbench.profiles.generated import samples
from workbench.simulation.scenario_catalogue import shaped

CLUSTER = scenario(nodes=16, cpus=16, pool=True)
SEEDS = range(2)


def sample_trace():
    """Return half a minute of requests of the sample workflows."""
    catalogue = Catalogue.of(samples())
    catalogue = shaped(catalogue, CLUSTER, tuple(catalogue.workflows))
    return ServedTrace(catalogue=catalogue, load="light", first=300, then=300, seed=0)


async def served(trace, seed):
    """Serve a trace; return the percent in time, the number of processes, and slices' percent."""
    gateway = VirtualGateway(trace.catalogue, CLUSTER, seed=seed)
    keys = tuple(trace.catalogue.workflows)
    times_ms, indices = map(np.concatenate, zip(*trace.arrivals.chunks(), strict=True))
    workflows = [keys[index] for index in indices]
    latencies_ms = await gateway.serve(times_ms.tolist(), workflows)
    slos_ms = [trace.catalogue.workflow(*key).spec.slo.latency_ms for key in workflows]
    created = gateway.cluster.created
    percents = [share.gpu_percent for share in created["holder"]]
    return 100 * np.mean(np.array(latencies_ms) <= slos_ms), len(created["member"]), percents


@pytest.mark.slow
def test_the_gateway_keeps_what_the_simulator_says_from_the_first_request_on():
    """In time within one point, where a pod has its node and runs a tenth of a second later.

    Each further tenth costs up to a point: a holder and then its members are placed, and the pool
    is enlarged twice.
    """
    trace = sample_trace()
    live = [run_virtually(served(trace, seed)) for seed in SEEDS]
    simulations = [simulated(trace, CLUSTER, noise_seed=seed) for seed in SEEDS]
    in_time, processes = np.mean([run[:2] for run in live], axis=0)
    simulated_in_time = np.mean([(s.first_percent, s.then_percent) for s in simulations])
    assert in_time == pytest.approx(simulated_in_time, abs=1)
    assert processes <= 1.1 * np.mean([figures.pods for figures in simulations])
    for _, _, percents in live:  # one for the first request, and whole GPUs when others follow
        assert percents[0] < 100
        assert set(percents[1:]) == {100}
