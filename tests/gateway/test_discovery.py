"""Discovery reports the pods that a FunctionServer selects, with their share and their state."""

import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from structlog.testing import capture_logs

from scheduler.gateway.discovery.function_servers import Discovery
from tests.gateway.factories import A100, T4, grant, pod, profile, server
from tests.gateway.listeners import RecordingListener

BOTH_PORTS = ({"containerPort": 8000}, {"containerPort": 9000})


class World:
    """A discovery over profiles that the test changes, and its listener."""

    def __init__(self, *profiles):
        self.profiles = {p.metadata.name: p for p in profiles or (profile(),)}
        self.listener = RecordingListener()
        self.discovery = Discovery(self.listener, self.profiles.get)
        self.servers, self.pods = self.discovery.servers, self.discovery.pods

    def set_profile(self, name, changed):
        self.profiles.pop(name, None)
        if changed is not None:
            self.profiles[name] = changed
        self.discovery.profile_changed(name)


@pytest.fixture
def world():
    return World()


def test_a_granted_pod(world):
    """A pod has the address and port of its server, and the share of its Binding."""
    world.servers.upsert(server(model="m", slots=2))
    world.pods.upsert(pod())

    served = world.listener.pods["n/p"]
    assert (served.function, served.host, served.server.port, served.server.slots) == (
        ("n", "f"),
        "10.0.0.1",
        8000,
        2,
    )
    assert (served.gpu_model, served.cpu, served.gpu_percent, served.memory_mib) == (
        A100,
        2,
        28,
        1000,
    )
    assert (served.node, served.gpu, served.ready, served.draining) == (
        "node-1",
        "GPU-1",
        True,
        False,
    )


def test_pods_before_their_server(world):
    """The order in which pods, servers and profiles are reported does not matter."""
    world.set_profile("f", None)
    world.pods.replace([pod()])
    world.servers.replace([server()])
    assert world.listener.calls == []
    assert world.discovery.problems == {
        ("FunctionServer", "n", "s"): "function f has no FunctionProfile; create one with that name"
    }

    world.set_profile("f", profile())

    assert world.listener.calls == [("set_server", "s"), ("add_pod", "n/p")]
    assert world.discovery.problems == {}


@pytest.mark.parametrize(
    "unselected",
    [pod(app="g"), pod(namespace="m"), pod(host=""), pod(phase="Succeeded"), pod(phase="Failed")],
    ids=["another label", "another namespace", "no address", "succeeded", "failed"],
)
def test_a_pod_that_serves_nothing(world, unselected):
    """A pod with another label or namespace, without an address, or after its end is not used."""
    world.servers.upsert(server())
    world.pods.upsert(unselected)
    assert world.listener.pods == {}


def test_readiness(world):
    """A pod gets batches while its condition Ready is true and it is not being deleted."""
    world.servers.upsert(server())
    for changed in (
        pod(ready=False),
        pod(),
        pod(),
        pod(ready=False),
        pod(),
        pod(deleted=True),
        pod(deleted=True, ready=False),
    ):
        world.pods.upsert(changed)
    world.pods.delete(pod(deleted=True))

    assert [call for call, _ in world.listener.calls] == [
        "set_server", "add_pod", "pod_ready", "drain_pod", "pod_ready", "drain_pod", "remove_pod",
    ]  # fmt: skip


@pytest.mark.parametrize(
    "changed",
    [pod(uid="v"), pod(host="10.0.0.2"), pod(annotations=grant(56))],
    ids=["recreated", "a new address", "a new share"],
)
def test_another_pod_of_the_same_name(world, changed):
    """A pod whose process or share is another one is removed and added."""
    world.servers.upsert(server())
    world.pods.upsert(pod())
    world.pods.upsert(changed)
    assert [call for call, _ in world.listener.calls[2:]] == ["remove_pod", "add_pod"]


def test_a_changed_server(world):
    """A changed port reaches the pods; a deleted server takes them along."""
    world.servers.upsert(server())
    world.pods.upsert(pod(ports=BOTH_PORTS))
    world.servers.upsert(server(port=9000))
    assert world.listener.pods["n/p"].server.port == 9000

    world.servers.delete(server())
    assert (world.listener.pods, world.listener.servers) == ({}, {})


@pytest.mark.parametrize("port", [22, 8000, 10250])
@pytest.mark.parametrize(
    "ports",
    [
        (),
        ({"containerPort": 8001}, {"containerPort": 9000}),
        [{"containerPort": port, "protocol": "UDP"} for port in (22, 8000, 10250)],
    ],
    ids=["no port", "other ports", "another protocol"],
)
def test_a_port_that_the_pod_does_not_declare(world, port, ports):
    """A FunctionServer has the gateway send requests only to what the pod's author serves."""
    world.servers.upsert(server(port=port))
    world.pods.upsert(pod(ports=ports))
    assert world.listener.pods == {}
    assert world.discovery.problems == {
        ("Pod", "n", "p"): f"none of its containers declares TCP port {port}, which FunctionServer "
        "s has; add it to the container's ports, or correct the FunctionServer"
    }
    world.pods.upsert(pod(ports=[{"containerPort": port, "protocol": "TCP"}]))
    assert (list(world.listener.pods), world.discovery.problems) == (["n/p"], {})


def test_a_changed_profile(world):
    """A changed profile reaches the server's receiver once, and no pod is interrupted."""
    world.servers.upsert(server())
    world.pods.upsert(pod())
    world.set_profile("f", profile(models=(A100, T4)))
    assert [call for call, _ in world.listener.calls] == ["set_server", "add_pod", "set_server"]


def test_two_servers_of_a_function(world):
    """The older server of a function counts; the other one is told, and follows it."""
    world.servers.replace([server("a", created="2026-01-02T00:00:00Z"), server("b", port=9000)])
    world.pods.upsert(pod(ports=BOTH_PORTS))
    assert world.listener.pods["n/p"].server.port == 9000
    assert world.discovery.problems == {
        ("FunctionServer", "n", "a"): "function f is served by the older FunctionServer b; "
        "delete one of them"
    }

    world.servers.delete(server("b"))

    assert world.listener.pods["n/p"].server.port == 8000
    assert world.discovery.problems == {}


def test_a_pod_that_two_servers_select():
    """A pod serves one function, that of the older server."""
    world = World(profile("f"), profile("g"))
    labels = {"matchLabels": {"tier": "x"}}
    world.servers.upsert(server("young", "g", "2026-01-02T00:00:00Z", selector=labels))
    world.pods.upsert(pod())
    world.servers.upsert(server("old", "f", selector=labels))
    assert {p.function for p in world.listener.pods.values()} == {("n", "f")}


def test_a_template_needs_a_gateway_that_creates_pods(world):
    """Without one the problem says how to get it."""
    template = {"spec": {"containers": [{"name": "c"}]}}
    world.servers.upsert(server(selector=None, template=template))
    assert world.listener.servers == {}
    assert "gateway.pods.namespaces" in world.discovery.problems["FunctionServer", "n", "s"]


def test_a_member_needs_a_gateway_that_creates_holders(world):
    """Without slices it would never get a batch; the problem says so."""
    member = pod()
    member["metadata"]["labels"]["esg-scheduler.io/pool"] = "member"
    annotations = member["metadata"]["annotations"]
    plan = json.loads(annotations["esg-scheduler.io/plan"]) | {"pool": "member"}
    annotations["esg-scheduler.io/plan"] = json.dumps(plan)
    world.discovery.servers.upsert(server())
    world.discovery.pods.upsert(member)
    assert world.listener.pods == {}
    assert "creates no holders" in world.discovery.problems["Pod", "n", "p"]


def test_a_pod_without_a_grant(world):
    """It counts as on a whole GPU of the profile's only model; the log says so once."""
    world.servers.upsert(server())
    with capture_logs() as logs:
        world.pods.upsert(pod("p", annotations={}, cpu="3500m"))
        world.pods.upsert(pod("q", annotations={}))

    shares = {name: (p.gpu_model, p.cpu, p.gpu_percent) for name, p in world.listener.pods.items()}
    assert shares == {"n/p": (A100, 3, 100), "n/q": (A100, 1024, 100)}
    assert len(logs) == 1
    assert logs[0]["pod"] == "n/p"
    assert logs[0]["log_level"] == "warning"


@pytest.mark.parametrize(
    ("annotations", "text"),
    [
        ({}, "its GPU model is unknown, and FunctionProfile f has several"),
        (grant(model=""), "its GPU model is unknown, and FunctionProfile f has several"),
        (grant() | {"esg-scheduler.io/gpu-memory": "much"}, "is not of the form 0=4096M"),
    ],
)
def test_a_share_that_cannot_be_read(annotations, text):
    """A pod whose share is unknown is not used, with the reason, until it is known."""
    world = World(profile(models=(A100, T4)))
    world.servers.upsert(server())
    world.pods.upsert(pod(annotations=annotations))
    assert world.listener.pods == {}
    assert text in world.discovery.problems["Pod", "n", "p"]

    world.pods.upsert(pod())
    assert set(world.listener.pods) == {"n/p"}
    assert world.discovery.problems == {}


def test_an_invalid_server(world):
    """An invalid document is set aside with its problem; what it was before is gone."""
    world.servers.upsert(server())
    world.pods.upsert(pod())
    world.servers.upsert(server(port=0))
    assert (world.listener.pods, world.listener.servers) == ({}, {})
    assert "spec.port" in world.servers.problems["n", "s"][0]


NAMES = st.sampled_from(["a", "b", "c"])
FUNCTIONS = st.sampled_from(["f", "g"])


def created_server(name, function, created, namespace, **spec):
    """Create a FunctionServer; one that is created later has another UID."""
    document = server(name, function, created, namespace, **spec)
    document["metadata"]["uid"] = created
    return document


SERVERS = st.builds(
    created_server,
    NAMES,
    FUNCTIONS,
    st.sampled_from(["2026-01-01T00:00:00Z", "2026-01-02T00:00:00Z"]),
    st.sampled_from(["n", "n", "m"]),
    port=st.sampled_from([8000, 8000, 9000, 0]),
    batching=st.sampled_from(["gateway", "none"]),
    selector=st.sampled_from([{"matchLabels": labels} for labels in ({"app": "f"}, {"tier": "x"})]),
)
PODS = st.builds(
    pod,
    NAMES,
    namespace=st.sampled_from(["n", "n", "m"]),
    uid=st.sampled_from(["u", "u", "v"]),
    app=FUNCTIONS,
    annotations=st.sampled_from(
        [grant(), grant(), grant(56), {}, {"esg-scheduler.io/gpu": "GPU-1"}]
    ),
    host=st.sampled_from(["10.0.0.1", "10.0.0.1", ""]),
    ready=st.booleans(),
    deleted=st.booleans(),
    phase=st.sampled_from(["Running", "Running", "Failed"]),
    ports=st.sampled_from([BOTH_PORTS, BOTH_PORTS, ({"containerPort": 8000},), ()]),
)
EVENTS = st.one_of(
    st.tuples(st.sampled_from(["upsert", "delete"]), st.just("servers"), SERVERS),
    st.tuples(st.sampled_from(["upsert", "upsert", "delete"]), st.just("pods"), PODS),
    st.tuples(st.just("replace"), st.just("servers"), st.lists(SERVERS, max_size=3)),
    st.tuples(st.just("replace"), st.just("pods"), st.lists(PODS, max_size=3)),
    st.tuples(st.just("profile"), FUNCTIONS, st.sampled_from([None, (A100,), (T4,), (A100, T4)])),
)


def as_added(listener):
    """Return the pods without their state, which later calls change."""
    return {name: replace(pod, ready=False, draining=False) for name, pod in listener.pods.items()}


@given(st.lists(EVENTS, min_size=10, max_size=40))
def test_any_order_of_events(events):
    """After any events the listener knows what a new discovery of the final objects reports."""
    world = World(profile("f"))
    objects = {"servers": {}, "pods": {}}
    for verb, kind, item in events:
        if verb == "profile":
            world.set_profile(kind, item and profile(kind, item))
            continue
        items = item if verb == "replace" else [item]
        keyed = {(i["metadata"]["namespace"], i["metadata"]["name"]): i for i in items}
        if verb == "replace":
            objects[kind] = keyed
        elif verb == "upsert":
            objects[kind] |= keyed
        else:
            objects[kind] = {k: v for k, v in objects[kind].items() if k not in keyed}
        getattr(getattr(world, kind), verb)(list(keyed.values()) if verb == "replace" else item)

    fresh = World(*world.profiles.values()) if world.profiles else World()
    fresh.profiles.clear()
    fresh.profiles |= world.profiles
    fresh.servers.replace(objects["servers"].values())
    fresh.pods.replace(objects["pods"].values())

    assert as_added(world.listener) == as_added(fresh.listener)
    assert world.listener.open == fresh.listener.open
    assert world.listener.servers == fresh.listener.servers
    assert world.discovery.problems == fresh.discovery.problems
