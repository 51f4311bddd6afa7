"""2,000 requests of the sample workflows through the whole system, next to the simulator."""

import asyncio
from concurrent.futures import ThreadPoolExecutor

import pytest

from scheduler.model.catalogue import Catalogue
from scheduler.model.documents import to_manifest
from tests.e2e.documents import API_VERSION, documents_in
from tests.e2e.gateway_process import RBAC, answers, gateway, running
from tests.e2e.played_models import server_of
from tests.e2e.served_trace import serve, table
from tests.simulation.simulated_trace import ServedTrace, scenario, simulated
from tests.testbed.api import apply_all, wait_until
from tests.testbed.nodes import use_addresses
from workbench.cluster.process import free_port
from workbench.profiles.generated import samples
from workbench.simulation.scenario_catalogue import shaped

pytestmark = pytest.mark.nightly
NODES, CPUS = 16, 16
NOISE_SEEDS = 10  # of run times: each is another course of the same trace


def test_requests_are_served_as_simulated(esg, capsys):
    """Every request gets the answer to its own values; hits and cost stand next to the simulator's.

    Hits depend on the machine's speed, so they are printed and not asserted.
    """
    served, simulations, trace = served_beside(esg)
    with capsys.disabled():
        print(f"\n{table(served, simulations, trace)}")  # noqa: T201 - for people
    check_answers(served, trace)


def served_beside(esg, *, then=2_000, pooled=False):
    """Serve a trace, and simulate it; return the served one, the simulations and the trace."""
    cluster, catalogue = scenario(nodes=NODES, cpus=CPUS, pool=pooled), Catalogue.of(samples())
    catalogue = shaped(catalogue, cluster, tuple(catalogue.workflows))  # p95Ms of its noise
    trace = ServedTrace(catalogue=catalogue, load="light", first=600, then=then, seed=0)
    documents = [
        {"apiVersion": API_VERSION, "kind": type(document).__name__, **to_manifest(document)}
        for document in (*catalogue.profiles.values(), *catalogue.workflows.values())
    ]
    harness = esg(nodes=NODES, gpus=1, cpu=CPUS, documents=documents)
    port, model_port = free_port(), free_port()
    url = f"http://127.0.0.1:{port}"
    servers = [server_of(function, model_port, maxPods=1_000) for function in catalogue.profiles]
    apply_all(harness.api, documents_in(RBAC))
    use_addresses(harness.api)
    environment = {"ESG_GATEWAY_HOLDER_IMAGE": "none", "ESG_GATEWAY_SHARE": "pooled"}
    process = gateway(harness.plane, port, environment=environment if pooled else None)
    with ThreadPoolExecutor(1) as executor, running(process, f"{url}/v2/health/ready"):
        apply_all(harness.api, servers)
        for _, name in catalogue.workflows:
            wait_until(lambda name=name: answers(f"{url}/v2/models/{name}/ready"), what=name)
        simulations = [
            executor.submit(simulated, trace, cluster, noise_seed=seed).result()
            for seed in range(NOISE_SEEDS)
        ]
        served = asyncio.run(serve(trace, harness.plane, port=port, model_port=model_port))
    return served, simulations, trace


def check_answers(served, trace):
    """Check that each request has one answer, and none that of another."""
    assert sorted(outcome.number for outcome in served.outcomes) == [*range(1, trace.requests + 1)]
    assert [o for o in served.outcomes if o.status in {0, 200} and not o.is_right] == []
