"""Groups of gateways: each serves the Workflows of a namespace that have its label."""

import contextlib
import json

import pytest

from scheduler.cluster.api import connect
from scheduler.cluster.watches import Watches
from scheduler.gateway.replicas.shards import SHARDS
from scheduler.gateway.scaling.pool_pod import pool_pod_object
from scheduler.gateway.service import GatewayService
from scheduler.gateway.settings import GatewaySettings
from scheduler.model.documents import to_manifest
from scheduler.model.function_server import FunctionServer
from scheduler.settings import Settings
from tests.gateway.factories import grant, profile, server, workflow
from tests.gateway.harness import eventually, front
from workbench.cluster.api_requests import (
    FUNCTION_PROFILES,
    FUNCTION_SERVERS,
    KINDS,
    LEASES,
    PODS,
    WORKFLOWS,
)
from workbench.cluster.api_server import ApiServer, write_kubeconfig
from workbench.cluster.model_server import PlayedModelServer
from workbench.cluster.object_store import ObjectStore

LABEL = "esg-scheduler.io/gateway-group"
FUNCTIONS = {"a": "f", "b": "g", "": "h"}  # by group
BODY = json.dumps(
    {"inputs": [{"name": "x", "datatype": "FP32", "shape": [1, 1], "data": [1]}]}
).encode()


def of_group(raw, group):
    """Give an object the label of a group."""
    labels = {**raw["metadata"].get("labels", {}), **({LABEL: group} if group else {})}
    return {**raw, "metadata": {**raw["metadata"], "labels": labels}}


class Cluster:
    """One namespace with a Workflow, a FunctionServer and a pod for each group."""

    def __init__(self, store, kubeconfig, port):
        self.store = store
        self.kubeconfig = kubeconfig
        for group, function in FUNCTIONS.items():
            store.create(FUNCTION_PROFILES, to_manifest(profile(function)))
            store.create(FUNCTION_SERVERS, of_group(server(function, function, port=port), group))
            store.create(WORKFLOWS, of_group(workflow(f"w-{function}", [function]), group))
            labels = {"app": function}
            metadata = {"name": function, "namespace": "n", "labels": labels}
            ready = {"type": "Ready", "status": "True"}
            raw = {
                "metadata": {**metadata, "annotations": grant()},
                "spec": {
                    "nodeName": "node",
                    "containers": [{"name": "c", "ports": [{"containerPort": port}]}],
                },
                "status": {"phase": "Running", "podIP": "127.0.0.1", "conditions": [ready]},
            }
            store.create(PODS, of_group(raw, group))

    @contextlib.asynccontextmanager
    async def gateway(self, **settings):
        """Run a gateway until its first lists are complete and the block ends."""
        async with connect(self.kubeconfig) as api:
            service = GatewayService(Settings(), GatewaySettings(**settings), Watches(api))
            async with service.running():
                await eventually(lambda: not service.not_ready_reason())
                yield service


@pytest.fixture
async def cluster(tmp_path, loopback_http):
    store = ObjectStore(KINDS)
    async with contextlib.AsyncExitStack() as stack:
        url = await stack.enter_async_context(ApiServer(store).serving())
        write_kubeconfig(tmp_path / "kubeconfig", url)
        played = PlayedModelServer(slots=10)
        await stack.enter_async_context(played.serving())
        yield Cluster(store, tmp_path / "kubeconfig", played.port)


@pytest.mark.parametrize("group", FUNCTIONS, ids=lambda group: group or "none")
async def test_a_group_serves_its_own(cluster, group):
    """Workflows, servers and pods of other groups, and of none, do not exist for a gateway."""
    async with cluster.gateway(group=group) as service:
        own = FUNCTIONS[group]
        assert [pod.name for pod in service.discovery.known_pods()] == [f"n/{own}"]
        async with front(service.backend) as served:
            for function in FUNCTIONS.values():
                path = f"/n/v2/models/w-{function}/infer"
                status, _, _ = await served.request("POST", path, BODY)
                assert status == (200 if function == own else 404)


async def test_a_function_of_another_group(cluster):
    """A Workflow whose function another group serves says so, and is not ready."""
    cluster.store.create(WORKFLOWS, of_group(workflow("w", ["f", "g"]), "a"))
    async with cluster.gateway(group="a") as service:
        messages = {
            d.name: d.conditions["Ready"].message
            for d in service.conditions.statuses()
            if d.resource.kind == "Workflow"
        }
    assert messages["w"] == "no FunctionServer serves g in the gateway group a"


async def test_each_group_has_its_leases(cluster):
    """The owners of two groups hold the shards of a namespace at the same time."""

    def holders(group):
        leases = cluster.store.collection(LEASES).objects
        names = [f"esg-gateway-{group}-shard-{shard}" for shard in range(SHARDS)]
        held = [leases.get(("esg", name)) for name in names]
        return {lease and lease["spec"].get("holderIdentity") for lease in held}

    def peers(group):
        name = f"gateway-{group}"
        return {"peers": f"app={name}", "pod_name": name, "pod_namespace": "esg", "group": group}

    async with cluster.gateway(**peers("a")) as first, cluster.gateway(**peers("b")) as second:
        await eventually(lambda: holders("a") == {"gateway-a"} and holders("b") == {"gateway-b"})
        for service in (first, second):
            await eventually(lambda: service.replicas.owned.serves("n"))  # noqa: B023 - at once


def test_pods_of_a_template_are_of_its_group():
    """A gateway sees the pods that it creates."""
    template = {"spec": {"containers": [{"name": "c", "image": "i"}]}}
    raw = of_group(server(selector=None, template=template), "a")
    document = FunctionServer.model_validate(raw)
    row = profile().spec.gpus[0].configurations[0]
    pod = pool_pod_object("p", document, row, "esg-scheduler", pooled=False)
    assert pod["metadata"]["labels"][LABEL] == "a"
