"""The first list: complete, in pages, trimmed."""

from scheduler.cluster.reflector import Reflector
from scheduler.cluster.resource import NODES, PODS, WORKFLOWS, trim_node, trim_pod
from scheduler.model.grant import Grant, grant_annotations, grant_of
from scheduler.model.node import node_from_json
from scheduler.model.pod import function_pod, has_ended
from scheduler.model.pod_resources import requested_cpu_milli
from tests.cluster.factories import node, pod
from tests.waiting import running

GPU = (
    '[{"index":0,"uuid":"GPU-1","model":"A100","memory_mib":81920,"multiprocessors":108,'
    '"healthy":true}]'
)


async def test_pages_are_one_list(server, api, listener):
    """A list of several pages is passed on once, complete, with the server's continue tokens."""
    for number in range(5):
        server.put(PODS, pod(f"p{number}"))

    async with running(Reflector(api, PODS, listener, page=2)):
        report = await listener.next()

    assert report == ("replace", ["p0", "p1", "p2", "p3", "p4"])
    assert [s.query["limit"] for s in server.list_requests(PODS)] == ["2", "2", "2"]


async def test_consistent(server, api, listener):
    """The list asks for the newest state: an older one could show granted shares as free."""
    async with running(Reflector(api, PODS, listener)):
        await listener.next()

    assert "resourceVersion" not in server.list_requests(PODS)[0].query


async def test_synced_after_the_list(api, listener):
    """It is synced after the list has been passed on, not before, and an empty one counts."""
    reflector = Reflector(api, NODES, listener)
    assert not reflector.synced.is_set()

    async with running(reflector):
        report = await listener.next()
        await reflector.synced.wait()

    assert report == ("replace", [])


async def test_selectors(server, api, listener):
    """The list and the watch have the selectors."""
    reflector = Reflector(
        api, PODS, listener, label_selector="app=x", field_selector="spec.nodeName=n"
    )

    async with running(reflector):
        await server.watched(PODS)

    for seen in server.seen("GET", PODS.path):
        assert seen.query["labelSelector"] == "app=x"
        assert seen.query["fieldSelector"] == "spec.nodeName=n"


async def test_documents_have_their_kind(server, api, listener):
    """A Workflow is passed on as a document that the model can read."""
    server.put(WORKFLOWS, {"metadata": {"name": "w", "namespace": "default"}, "spec": {"slo": 1}})

    async with running(Reflector(api, WORKFLOWS, listener)):
        await listener.next()

    document = listener.objects["w"]
    assert (document["apiVersion"], document["kind"]) == ("esg-scheduler.io/v1alpha1", "Workflow")
    assert document["spec"] == {"slo": 1}


def test_trimmed_pod_reads_the_same():
    """The fields that the model reads survive the trimming; the others do not."""
    grant = Grant("GPU-1", 30, 4096, 2, {"cost": 1})
    raw = pod("a", nodeName="n1", priority=7, volumes=[{"name": "big"}])
    raw["metadata"] |= {
        "labels": {"esg-scheduler.io/function": "f", "app": "a"},
        "annotations": {**grant_annotations(grant), "other.io/notes": "x" * 1000},
        "managedFields": [{"manager": "kubectl"}],
        "deletionTimestamp": "2026-01-01T00:00:00Z",
    }
    raw["spec"]["initContainers"] = [
        {"name": "s", "restartPolicy": "Always", "resources": {"requests": {"cpu": "1"}}},
        {"name": "i", "env": [], "resources": {"requests": {"cpu": "3"}}},
    ]
    raw["spec"]["overhead"] = {"cpu": "500m"}
    raw["spec"]["containers"][0]["env"] = [{"name": "SECRET", "value": "x"}]
    raw["status"] = {"phase": "Running", "conditions": [{"type": "Ready"}]}

    trimmed = trim_pod(raw)

    assert function_pod(trimmed) == function_pod(raw)
    assert grant_of(trimmed) == grant
    assert requested_cpu_milli(trimmed) == requested_cpu_milli(raw) == 4500
    assert trimmed["metadata"]["labels"] == raw["metadata"]["labels"]
    assert trimmed["spec"]["nodeName"] == "n1"
    assert trimmed["metadata"]["deletionTimestamp"] == raw["metadata"]["deletionTimestamp"]
    assert has_ended(trimmed) == has_ended(raw)
    for unread in ("conditions", "managedFields", "other.io/notes", "volumes", "SECRET", "image"):
        assert unread not in str(trimmed)


def test_trimmed_node_reads_the_same():
    """The fields that the model reads survive the trimming; the image list does not."""
    raw = node("n1")
    raw["metadata"]["annotations"] = {"esg-scheduler.io/gpus": GPU, "csi": "x"}
    raw["status"]["images"] = [{"names": ["big"]}]
    raw["spec"] = {"podCIDR": "10.0.0.0/24"}

    trimmed = trim_node(raw)

    assert node_from_json(trimmed) == node_from_json(raw)
    for unread in ("images", "podCIDR", "csi"):
        assert unread not in str(trimmed)


def test_empty_object_is_trimmed():
    """Objects without any of the fields are trimmed to empty ones, not refused."""
    assert trim_pod({}) == {"metadata": {}, "spec": {}, "status": {}}
    assert trim_pod({"spec": {"containers": None}})["spec"] == {"containers": []}
    assert trim_node({"metadata": None}) == {"metadata": {}, "status": {}}
