"""Reflectors, binds, events and rights against the real API server."""

import asyncio

import pytest

from scheduler.cluster.api import connect
from scheduler.cluster.binding import Binding, BindOutcome, BindResult, bind, get_pod
from scheduler.cluster.events import Recorder, Reference
from scheduler.cluster.link import Handlers, LiveCluster
from scheduler.cluster.reflector import Reflector
from scheduler.cluster.resource import NODES, PODS, WORKFLOWS
from tests.cluster.fakes import Listener
from tests.cluster.harness import wait_for_storage
from tests.testbed.pods import function_pod
from tests.waiting import running, until
from workbench.cluster.mocked_nodes import gpu_nodes

pytestmark = pytest.mark.e2e

GRANT = {"esg-scheduler.io/gpu": "GPU-1", "esg-scheduler.io/gpu-percent": "30"}


@pytest.fixture
async def live(cluster):
    async with connect(str(cluster.kubeconfig)) as api:
        yield api


@pytest.fixture
def bindable(cluster):
    """Create a pod that no scheduler binds."""
    for node in gpu_nodes(2, 1):
        cluster.api.apply(node)
    return cluster.api.create(function_pod("a", function="f", scheduler_name="nobody"))


async def bind_to(api, pod, node, *, uid=""):
    """Bind the pod."""
    return await bind(
        api,
        Binding(
            namespace=pod["metadata"]["namespace"],
            name=pod["metadata"]["name"],
            uid=uid or pod["metadata"]["uid"],
            node=node,
            annotations=GRANT,
        ),
        timeout_s=5,
    )


def node_names(cluster):
    """List the names of all nodes."""
    return [node["metadata"]["name"] for node in cluster.api.items(NODES.path)]


async def test_list_and_watch(cluster, live, listener):
    """Nodes are listed in pages; each later change comes through the watch."""
    for node in gpu_nodes(5, 2):
        cluster.api.apply(node)
    expected = sorted(node_names(cluster))
    async with running(Reflector(live, NODES, listener, page=2)):
        first = await listener.next()
        await asyncio.to_thread(cluster.api.delete, f"{NODES.path}/{expected[0]}")
        await until(lambda: expected[0] not in listener.objects)

    assert first == ("replace", expected)
    assert "esg-scheduler.io/gpus" in listener.objects[expected[1]]["metadata"]["annotations"]


async def test_410(cluster, live, listener):
    """A version from before the server's watch cache is answered with 410, and leads to a list."""
    cluster.api.apply(gpu_nodes(1, 1)[0])
    cluster.stop_api_server()  # its watch cache starts empty
    cluster.start_api_server()
    wait_for_storage(cluster)
    reflector = Reflector(live, NODES, listener)
    reflector._version = "1"
    async with running(reflector):
        report = await listener.next()

    assert report == ("replace", node_names(cluster))
    assert reflector.trouble is None


async def test_version_from_the_future(cluster, live, listener):
    """After a restore of etcd from a backup no watch reports anything, but a list does."""
    first, second = gpu_nodes(2, 1)
    cluster.api.apply(first)
    reflector = Reflector(live, NODES, listener, silence_s=0.5)
    reflector._version = "999999999"
    async with running(reflector):
        report = await listener.next()
        cluster.api.apply(second)
        await until(lambda: second["metadata"]["name"] in listener.objects)
        await until(lambda: reflector.trouble is None)

    assert report == ("replace", [first["metadata"]["name"]])


async def test_bind(cluster, live, bindable):
    """One write sets node and annotations; a second is ALREADY_BOUND, elsewhere REFUSED."""
    node, another = node_names(cluster)

    bound = await bind_to(live, bindable, node)
    again = await bind_to(live, bindable, node)
    elsewhere = await bind_to(live, bindable, another)

    assert bound == BindResult(BindOutcome.BOUND)
    assert again.outcome is BindOutcome.ALREADY_BOUND
    assert (elsewhere.outcome, elsewhere.message) == (
        BindOutcome.REFUSED,
        f"the pod is bound to node {node}",
    )
    stored = cluster.api.get("/api/v1/namespaces/default/pods/a")
    assert stored["spec"]["nodeName"] == node
    assert GRANT.items() <= stored["metadata"]["annotations"].items()
    assert (await get_pod(live, "default", "a")) is not None


async def test_bind_another_uid(cluster, live, bindable):
    """A recreated pod is not bound by the bind of its predecessor."""
    cluster.api.delete("/api/v1/namespaces/default/pods/a", grace_s=0)
    cluster.api.create(function_pod("a", function="f", scheduler_name="nobody"))

    result = await bind_to(live, bindable, node_names(cluster)[0])

    assert result.outcome is BindOutcome.REFUSED
    assert "nodeName" not in cluster.api.get("/api/v1/namespaces/default/pods/a")["spec"]


async def test_bind_deleted_pod(cluster, live, bindable):
    """A deleted pod is refused with the server's message."""
    cluster.api.delete("/api/v1/namespaces/default/pods/a", grace_s=0)

    result = await bind_to(live, bindable, node_names(cluster)[0])

    assert result == BindResult(BindOutcome.REFUSED, 'pods "a" not found')


async def test_concurrent_binds(cluster, live, bindable):
    """One of many concurrent binds wins; the others see the same node and the grant."""
    node = node_names(cluster)[0]

    results = await asyncio.gather(*(bind_to(live, bindable, node) for _ in range(20)))

    outcomes = [result.outcome for result in results]
    assert outcomes.count(BindOutcome.BOUND) == 1
    assert outcomes.count(BindOutcome.ALREADY_BOUND) == 19


async def test_events(cluster, live, bindable, time):
    """Events on a pod and on a node are stored; a repetition has a count and the new message."""
    recorder = Recorder(live, clock=time.clock_s, sleep=time.sleep)
    pod = Reference.pod("default", "a", bindable["metadata"]["uid"])

    def stored():
        items = cluster.api.items("/api/v1/namespaces/default/events")
        return [e for e in items if e["source"].get("component") == "esg-scheduler"]

    async with running(recorder):
        recorder.record(pod, type="Warning", reason="SloOutOfReach", message="first")
        recorder.record(
            Reference.node("n1"), type="Warning", reason="Overcommitted", message="GPU 0"
        )
        await until(lambda: len(stored()) == 2)
        time.now_s += 60
        recorder.record(pod, type="Warning", reason="SloOutOfReach", message="second")
        await until(lambda: {e["count"] for e in stored()} == {1, 2})

    repeated = next(e for e in stored() if e["count"] == 2)
    assert repeated["message"] == "second"
    assert repeated["involvedObject"]["uid"] == bindable["metadata"]["uid"]
    assert recorder.dropped == 0


async def test_no_rights(cluster, bindable, listener):
    """The messages for a user without rights name the verbs and resources to grant."""
    path = cluster.kubeconfig_for("nobody-in-particular")
    async with connect(str(path)) as api:
        reflector = Reflector(api, PODS, listener)
        async with running(reflector):
            await until(lambda: reflector.trouble is not None)
        refused = await bind_to(api, bindable, node_names(cluster)[0])

    assert reflector.trouble is not None
    assert reflector.trouble.startswith("RBAC: may not list pods in all namespaces")
    assert refused.message.startswith("RBAC: grant the verb create on pods/binding")


async def test_no_crds(live, listener):
    """A resource that the server does not have is reported as a missing CRD."""
    missing = type(WORKFLOWS)(
        "nothings", "Nothing", WORKFLOWS.root, WORKFLOWS.group, WORKFLOWS.trim
    )
    reflector = Reflector(live, missing, listener)
    async with running(reflector):
        await until(lambda: reflector.trouble is not None)

    assert reflector.trouble is not None
    assert reflector.trouble.startswith("Nothing CRD is not installed: kubectl apply -f")


async def test_server_restart(cluster, live, bindable):
    """While the API server is down binds are refused; after its start everything recovers."""
    nodes, pods = Listener(), Listener()
    link = LiveCluster(live)
    link.follow(Handlers(nodes=nodes, pods=pods))
    node = node_names(cluster)[0]
    async with running(link):
        await until(link.synced)
        await asyncio.to_thread(cluster.stop_api_server)
        away = await bind(
            live,
            Binding(
                namespace="default",
                name="a",
                uid=bindable["metadata"]["uid"],
                node=node,
                annotations=GRANT,
            ),
            timeout_s=0.5,
        )
        await until(lambda: set(link.troubles()) == {"nodes", "pods"})
        await asyncio.to_thread(cluster.start_api_server)
        back = await bind_to(live, bindable, node)
        await until(lambda: pods.objects["a"]["spec"].get("nodeName") == node)
        await until(lambda: not link.troubles())
    wait_for_storage(cluster)

    assert away.outcome is BindOutcome.REFUSED
    assert back.outcome is BindOutcome.BOUND


async def test_in_process_token(cluster, tmp_path):
    """A service account's token is accepted like in a pod, with the rights of the account."""
    token = cluster.api.request(
        "POST",
        "/api/v1/namespaces/default/serviceaccounts/default/token",
        {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}},
    )["status"]["token"]
    (tmp_path / "token").write_text(token, encoding="ascii")
    (tmp_path / "ca.crt").write_bytes(cluster.ca.read_bytes())
    host, port = cluster.url.removeprefix("https://").split(":")
    environ = {"KUBERNETES_SERVICE_HOST": host, "KUBERNETES_SERVICE_PORT": port}

    async with connect(environ=environ, service_account=tmp_path) as api:
        who = await api.post(
            "/apis/authentication.k8s.io/v1/selfsubjectreviews",
            {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"},
        )

    assert who["status"]["userInfo"]["username"] == "system:serviceaccount:default:default"
