"""Groups of gateways with pools on a real control plane: each has its own slices (ADR 59)."""

from collections import Counter
from contextlib import ExitStack

import httpx

from scheduler.model.names import LABEL_GATEWAY_GROUP, LABEL_POOL
from scheduler.model.pools import gateway_group, pool_role
from tests.e2e.documents import configuration, documents_in, profile, workflow
from tests.e2e.gateway_process import RBAC, gateway, running
from tests.e2e.harness import PODS, Harness
from tests.e2e.played_models import server_of
from tests.e2e.test_pods_from_demand import call, player
from tests.testbed.api import Json, wait_until
from workbench.cluster.process import free_port

FUNCTIONS = {"a": "f", "b": "g"}  # by group
SERVERS = "/apis/esg-scheduler.io/v1alpha1/namespaces/default/functionservers"
WORKFLOWS = "/apis/esg-scheduler.io/v1alpha1/namespaces/default/workflows"


def of_group(document: Json, group: str) -> Json:
    """Give a document the label of a group."""
    return {
        **document,
        "metadata": {**document["metadata"], "labels": {LABEL_GATEWAY_GROUP: group}},
    }


def pods_of(harness: Harness, group: str) -> set[str]:
    """Return the UIDs of a group's pods of a pool that nobody has deleted."""
    pods = harness.api.items(PODS, labelSelector=f"{LABEL_POOL},{LABEL_GATEWAY_GROUP}={group}")
    return {p["metadata"]["uid"] for p in pods if "deletionTimestamp" not in p["metadata"]}


def check_slices(harness: Harness) -> None:
    """Check that members are with a holder of their group, and the sum of percent on each GPU."""
    pods = [p for p in harness.api.items(PODS, labelSelector=LABEL_POOL) if p["spec"]["nodeName"]]
    grants = {p["metadata"]["name"]: harness.grant_of(p["metadata"]["name"]) for p in pods}
    holders: Counter[str] = Counter()
    places = set()
    for pod in pods:
        grant = grants[pod["metadata"]["name"]]
        if pool_role(pod) == "holder":
            holders[grant["gpu"]] += int(grant["gpu-percent"])
            places.add((gateway_group(pod), grant["gpu"]))
    members = [p for p in pods if pool_role(p) == "member"]
    assert {(gateway_group(p), grants[p["metadata"]["name"]]["gpu"]) for p in members} == places
    assert {group for group, _ in places} == set(FUNCTIONS)
    assert all(percent <= 100 for percent in holders.values())


def test_two_groups_have_pools_in_one_namespace(esg):
    """A restart leaves the other group's pods; a function that moves is in the other pool."""
    documents = [
        *(profile(function, configuration(50, latency_ms=30)) for function in FUNCTIONS.values()),
        *(of_group(workflow(f"w-{f}", f), group) for group, f in FUNCTIONS.items()),
    ]
    harness = esg(nodes=2, gpus=1, documents=documents)
    for document in documents_in(RBAC):
        harness.api.apply(document)
    model_port = free_port()
    clients, processes = {}, {}
    with ExitStack() as stack:
        url = f"http://127.0.0.1:{model_port}/v2/models/f/ready"
        stack.enter_context(running(player(harness.plane, model_port), url))
        for group, function in FUNCTIONS.items():
            server = server_of(function, model_port, minPods=2, maxPods=2)
            harness.api.apply(of_group(server, group))
            port = free_port()
            environment = {
                "ESG_GATEWAY_GROUP": group,
                "ESG_GATEWAY_SHARE": "pooled",
                "ESG_GATEWAY_HOLDER_IMAGE": "none",
            }
            url = f"http://127.0.0.1:{port}"
            process = gateway(harness.plane, port, name=f"gateway-{group}", environment=environment)
            processes[group] = stack.enter_context(running(process, f"{url}/v2/health/ready"))
            client = httpx.Client(base_url=url, trust_env=False, timeout=120)
            clients[group] = stack.enter_context(client)
        for group, function in FUNCTIONS.items():
            call_group(clients[group], function)
        check_slices(harness)
        harness.wait_agreement()

        before = {group: pods_of(harness, group) for group in FUNCTIONS}
        processes["a"].kill()
        call_group(clients["b"], "g")
        processes["a"].start()
        wait_until(lambda: serves(clients["a"], "w-f"), what="a serves")
        call_group(clients["a"], "f")
        assert {group: pods_of(harness, group) for group in FUNCTIONS} == before

        for path in (f"{SERVERS}/f", f"{WORKFLOWS}/w-f"):
            harness.api.delete(path)
        wait_until(lambda: not pods_of(harness, "a"), what="the old pool is empty")
        harness.api.apply(of_group(server_of("f", model_port, minPods=1, maxPods=1), "b"))
        harness.api.apply(of_group(workflow("w-f", "f"), "b"))
        wait_until(lambda: serves(clients["b"], "w-f"), what="b serves")
        call_group(clients["b"], "f")
        assert not serves(clients["a"], "w-f")
        assert pods_of(harness, "a") == set()
        assert before["b"] <= pods_of(harness, "b")


def serves(client: httpx.Client, name: str) -> bool:
    """Return true if a gateway runs and serves a workflow."""
    try:
        return client.get(f"/v2/models/{name}/ready").is_success
    except httpx.TransportError:
        return False


def call_group(client: httpx.Client, function: str) -> None:
    """Call the workflow of a function."""
    call(client, 1.0, workflow=f"w-{function}")
