"""The API server in memory under the service's own client: reflectors, bindings, events."""

import asyncio

import pytest

from scheduler.cluster.binding import Binding, BindOutcome, bind
from scheduler.cluster.errors import ApiError
from scheduler.cluster.events import Recorder, Reference
from scheduler.cluster.one_node import OneNode
from scheduler.cluster.reflector import Reflector
from scheduler.cluster.resource import PODS as WATCHED_PODS
from tests.cluster.fakes import Listener
from tests.waiting import running, until
from workbench.cluster.api_requests import EVENTS, LEASES, NODES, PODS

KEY = ("default", "a")


def pod(name, **metadata):
    return {"metadata": {"name": name, "namespace": "default", **metadata}, "spec": {}}


def binding(created, node="n1"):
    metadata = created["metadata"]
    return Binding("default", metadata["name"], metadata["uid"], node, {"granted": "yes"})


async def test_a_reflector_lists_and_follows(store, api):
    """It gets the list first, and then every change in its order."""
    listener = Listener()
    store.create(PODS, pod("a"))
    async with running(Reflector(api, WATCHED_PODS, listener)):
        assert await listener.next() == ("replace", ["a"])
        store.create(PODS, pod("b"))
        store.patch(PODS, KEY, {"spec": {"nodeName": "n1"}})
        store.delete(PODS, ("default", "b"))
        reports = [await listener.next() for _ in range(3)]
    assert reports == [("upsert", "b"), ("upsert", "a"), ("delete", "b")]
    assert listener.objects["a"]["spec"]["nodeName"] == "n1"


async def test_a_reflector_lists_again_after_410(store, api):
    """A version that is forgotten while no watch is open leads to a second list."""
    listener = Listener()
    store.create(PODS, pod("a"))
    async with asyncio.timeout(60):
        reflector = Reflector(api, WATCHED_PODS, listener, watch_s=(1.0, 1.0))
        async with running(reflector):
            assert await listener.next() == ("replace", ["a"])
        store.delete(PODS, KEY)
        store.compact()
        async with running(reflector):
            assert await listener.next() == ("replace", [])


async def test_a_quiet_watch_sends_bookmarks(store, api):
    """They carry the newest version, so that the next watch starts there."""
    store.create(NODES, {"metadata": {"name": "n1"}})
    query = {"watch": "true", "allowWatchBookmarks": "true", "resourceVersion": "0"}
    async with api.stream(PODS, query=query, silence_s=30) as lines:
        line = await anext(aiter(lines))
    assert b"BOOKMARK" in line
    assert f'"{store.version}"'.encode() in line


async def test_a_pod_is_bound_once(store, api):
    """A second Binding and one for another UID change nothing."""
    created = store.create(PODS, pod("a"))
    first = await bind(api, binding(created), timeout_s=10)
    again = await bind(api, binding(created, "n2"), timeout_s=10)
    other_uid = Binding("default", "a", "another", "n1", {})
    wrong = await bind(api, other_uid, timeout_s=10)
    assert (first.outcome, again.outcome, wrong.outcome) == (
        BindOutcome.BOUND,
        BindOutcome.REFUSED,
        BindOutcome.REFUSED,
    )
    bound = store.get(PODS, KEY)
    assert bound["spec"]["nodeName"] == "n1"
    assert bound["metadata"]["annotations"] == {"granted": "yes"}


async def test_a_watch_by_node_begins_with_the_binding(store, api):
    """For a watch with a field selector, a pod is new once it matches."""
    nodes, pods = Listener(), Listener()
    store.create(NODES, {"metadata": {"name": "n1"}})
    created = store.create(PODS, pod("a"))
    async with running(OneNode(api, "n1", node=nodes, pods=pods)):
        assert await nodes.next() == ("replace", ["n1"])
        assert await pods.next() == ("replace", [])
        await bind(api, binding(created), timeout_s=10)
        assert await pods.next() == ("upsert", "a")


async def test_a_pod_on_a_node_terminates_until_its_kubelet_removes_it(store, api):
    """Without a node it is gone at once."""
    path = "/api/v1/namespaces/default/pods"
    store.create(PODS, pod("a"))
    store.create(PODS, pod("b"))
    store.patch(PODS, KEY, {"spec": {"nodeName": "n1"}})
    await api.delete(f"{path}/a")
    await api.delete(f"{path}/b")
    assert [p["metadata"]["name"] for p in store.list(PODS)] == ["a"]
    assert store.get(PODS, KEY)["metadata"]["deletionTimestamp"]


async def test_an_outdated_patch_of_a_lease_is_refused(store, api):
    """Two replicas have read the same version, and one gets the lease."""
    path = "/apis/coordination.k8s.io/v1/namespaces/default/leases"
    lease = await api.post(path, {"metadata": {"name": "owner"}, "spec": {}})
    version = lease["metadata"]["resourceVersion"]

    def claim(holder):
        metadata = {"resourceVersion": version}
        return {"metadata": metadata, "spec": {"holderIdentity": holder}}

    await api.patch(f"{path}/owner", claim("first"))
    with pytest.raises(ApiError) as refused:
        await api.patch(f"{path}/owner", claim("second"))
    assert refused.value.status == 409
    assert store.list(LEASES)[0]["spec"] == {"holderIdentity": "first"}


async def test_the_recorder_writes_and_counts_events(store, api):
    """A repetition is a merge patch of the first event."""
    now_s = [1000.0]
    recorder = Recorder(api, clock=lambda: now_s[0])
    reference = Reference.pod("default", "a", "uid")
    async with running(recorder):
        recorder.record(reference, type="Normal", reason="Planned", message="first")
        await until(lambda: len(store.list(EVENTS)) == 1)
        now_s[0] += 100
        recorder.record(reference, type="Normal", reason="Planned", message="second")
        await until(lambda: store.list(EVENTS)[0]["count"] == 2)
    assert store.list(EVENTS)[0]["message"] == "second"


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("get", "/api/v1/namespaces/default/pods/none", 404),
        ("delete", "/api/v1/namespaces/default/pods/none", 404),
        ("get", "/apis/example.org/v1/things", 404),
        ("get", "/api/v1/pods?labelSelector=a", 400),
        ("get", "/", 404),
    ],
)
async def test_refusals_have_a_status_object(api, method, path, status):
    """The client reads reason and message from it."""
    with pytest.raises(ApiError) as refused:
        await getattr(api, method)(path)
    assert refused.value.status == status
    assert refused.value.message


async def test_a_binding_over_another_version_is_refused(store, api):
    """The pod has changed since the version that the Binding names."""
    created = store.create(PODS, pod("a"))
    store.patch(PODS, KEY, {"metadata": {"labels": {"changed": "yes"}}})
    outdated = {"name": "a", "resourceVersion": created["metadata"]["resourceVersion"]}
    with pytest.raises(ApiError) as refused:
        await api.post(
            "/api/v1/namespaces/default/pods/a/binding",
            {"metadata": outdated, "target": {"name": "n1"}},
        )
    assert refused.value.status == 409
    assert "nodeName" not in store.get(PODS, KEY)["spec"]


async def test_all_pages_of_a_list_show_one_version(store, api):
    """An object that is created between two pages comes with the watch after the list."""
    for name in "abc":
        store.create(PODS, pod(name))
    first = await api.get(PODS, query={"limit": 2})
    store.create(PODS, pod("d"))
    second = await api.get(PODS, query={"limit": 2, "continue": first["metadata"]["continue"]})
    assert [p["metadata"]["name"] for p in first["items"] + second["items"]] == ["a", "b", "c"]
    assert second["metadata"] == {"resourceVersion": first["metadata"]["resourceVersion"]}


async def test_a_forced_deletion_is_immediate_and_only_of_that_pod(store, api):
    """Without a grace period nothing waits for the kubelet; a wrong UID deletes nothing.

    As on the real server, the pod has a grace of 0 s first, and so in its last state.
    """
    store.create(PODS, pod("a"))
    store.patch(PODS, KEY, {"spec": {"nodeName": "n1"}})
    path = "/api/v1/namespaces/default/pods/a"
    with pytest.raises(ApiError):
        await api.delete(path, {"preconditions": {"uid": "another"}, "gracePeriodSeconds": 0})
    await api.delete(path, {"gracePeriodSeconds": 0})
    assert store.list(PODS) == []
    last = store.collection(PODS).history[-1].before["metadata"]
    assert last["deletionTimestamp"]
    assert last["deletionGracePeriodSeconds"] == 0


@pytest.mark.parametrize(
    ("options", "phase", "grace_s"),
    [({}, "Running", 30), ({"gracePeriodSeconds": 5}, "Running", 5), ({}, "Failed", 0)],
)
async def test_the_grace_of_a_deletion(store, api, options, phase, grace_s):
    """The pod's own or that of the request; none where its containers have ended."""
    store.create(PODS, pod("a"))
    store.patch(PODS, KEY, {"spec": {"nodeName": "n1"}, "status": {"phase": phase}})
    await api.delete("/api/v1/namespaces/default/pods/a", options)
    change = store.collection(PODS).history[-1]
    last = change.after or change.before
    assert last["metadata"]["deletionGracePeriodSeconds"] == grace_s
    assert (change.after is None) == (grace_s == 0)
