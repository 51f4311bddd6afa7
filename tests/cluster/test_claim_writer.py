"""Resource claims of function pods: written once for each unbound pod, again after an error."""

import asyncio
import contextlib

import pytest

from scheduler.cluster.claim_writer import ClaimWriter
from scheduler.cluster.errors import ApiError, ApiTimeoutError
from scheduler.model.names import RESOURCE_CLAIM
from tests.cluster.fakes import Listener

CLAIMS = "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims"


class Claims:
    """An API server of claims alone; `errors` are raised before the next writes take effect."""

    def __init__(self):
        self.objects = {}
        self.errors = []
        self.patched = asyncio.Event()

    def _fail(self):
        if self.errors:
            raise self.errors.pop()

    async def post(self, path, body):
        self._fail()
        key = f"{path}/{body['metadata']['name']}"
        if key in self.objects:
            raise ApiError(409, "AlreadyExists", "exists")
        metadata = {**body["metadata"], "creationTimestamp": "2026-11-23T01:00:00Z"}
        self.objects[key] = {**body, "metadata": metadata}
        return self.objects[key]

    async def get(self, path):
        return self.objects[path]

    async def patch(self, path, body):
        self._fail()
        self.objects[path.removesuffix("/status")] |= body
        self.patched.set()


def pod(name="a", claim="esg-1", **spec):
    """Create a pod with a claim."""
    claims = [{"name": RESOURCE_CLAIM, "resourceClaimName": claim}] if claim else []
    return {
        "metadata": {"name": name, "namespace": "default", "uid": f"uid-{name}"},
        "spec": {"resourceClaims": claims, **spec},
    }


@pytest.fixture
def api():
    return Claims()


@contextlib.asynccontextmanager
async def writer(api):
    """Run a writer that does not pause."""
    listener = Listener()
    pauses = []

    async def sleep(pause_s):
        pauses.append(pause_s)
        await asyncio.sleep(0)

    writer = ClaimWriter(api, listener, sleep=sleep)
    task = asyncio.create_task(writer.run())
    try:
        yield writer, listener, pauses
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def settle():
    """Let the writer do what it can do now."""
    for _ in range(20):
        await asyncio.sleep(0)


async def test_a_claim_is_allocated_and_reserved_for_its_pod(api):
    """It belongs to the pod, so that Kubernetes deletes it; its allocation names no GPU."""
    async with writer(api) as (claims, listener, _):
        claims.upsert(pod())
        await api.patched.wait()
    claim = api.objects[f"{CLAIMS}/esg-1"]
    [owner] = claim["metadata"]["ownerReferences"]
    assert (owner["kind"], owner["name"], owner["uid"]) == ("Pod", "a", "uid-a")
    [result] = claim["status"]["allocation"]["devices"]["results"]
    assert result["driver"] == "esg-scheduler.io"
    created = claim["metadata"]["creationTimestamp"]
    assert claim["status"]["allocation"]["allocationTimestamp"] == created
    assert claim["status"]["reservedFor"] == [{"resource": "pods", "name": "a", "uid": "uid-a"}]
    assert list(listener.objects) == ["a"]


async def test_only_pods_with_a_claim_that_have_not_started_get_one(api):
    """Other pods are passed on alone."""
    running = pod("b", nodeName="n") | {"status": {"phase": "Running"}}
    ended = pod("d") | {"status": {"phase": "Failed"}}
    async with writer(api) as (claims, listener, _):
        claims.replace([pod("a", claim=""), running, ended])
        claims.upsert(pod("a", claim=""))
        await settle()
    assert api.objects == {}
    assert sorted(listener.objects) == ["a", "b", "d"]


async def test_a_list_after_a_restart_completes_what_is_there(api):
    """A claim that an earlier process created is allocated, and all that exist stay as they are."""
    async with writer(api) as (claims, _, _):
        claims.upsert(pod())
        await api.patched.wait()
    complete = api.objects[f"{CLAIMS}/esg-1"].copy()
    del api.objects[f"{CLAIMS}/esg-1"]["status"]
    async with writer(api) as (claims, _, _):
        claims.replace([pod()])
        await settle()
    assert api.objects == {f"{CLAIMS}/esg-1": complete}


@pytest.mark.parametrize(
    "error",
    [ApiError(500, "InternalError", "no"), ApiTimeoutError("no answer", sent=True)],
)
async def test_a_failed_write_is_repeated(api, error):
    """After a pause, while the pod is unbound."""
    api.errors = [error, error]
    async with writer(api) as (claims, _, pauses):
        claims.upsert(pod())
        await api.patched.wait()
    assert len(pauses) == 2


async def test_nothing_is_written_for_a_deleted_pod(api):
    """Attempts end when the pod is deleted, or another list lacks it."""
    for end in ("delete", "replace"):
        api.errors = [ApiError(403, "Forbidden", "no")] * 100
        async with writer(api) as (claims, _, pauses):
            claims.upsert(pod())
            await settle()
            claims.delete(pod()) if end == "delete" else claims.replace([])
            await settle()
            attempts = len(pauses)
            await settle()
            assert len(pauses) == attempts > 0
    assert api.objects == {}


def claim(name="esg-1"):
    """Create a claim as the watch of claims reports it."""
    return {"metadata": {"name": name, "namespace": "default"}}


@pytest.mark.parametrize("bound", [{}, {"nodeName": "n"}])
@pytest.mark.parametrize("way", ["watch", "list"])
async def test_a_claim_that_was_deleted_is_written_again(api, bound, way):
    """Until the pod's containers start; the kubelet has prepared it then."""
    path = f"{CLAIMS}/esg-1"
    async with writer(api) as (claims, _, _):
        claims.upsert(pod(**bound))
        await settle()
        before = api.objects.pop(path)

        def report():
            claims.observer.delete(claim()) if way == "watch" else claims.observer.replace([])

        report()
        await settle()
        assert api.objects[path] == before
        claims.upsert(pod(nodeName="n") | {"status": {"phase": "Running"}})
        del api.objects[path]
        report()
        await settle()
        assert api.objects == {}


async def test_claims_that_exist_are_not_written_again(api):
    """Nor those of other pods, when they are deleted."""
    async with writer(api) as (claims, _, _):
        claims.upsert(pod())
        await settle()
        del api.objects[f"{CLAIMS}/esg-1"]
        claims.observer.replace([claim()])
        claims.observer.upsert(claim())
        claims.observer.delete(claim("esg-2"))
        await settle()
    assert api.objects == {}


async def test_a_claim_deleted_while_it_is_written_is_written_again(api):
    """The report may arrive before the answer of the last write does."""
    async with writer(api) as (claims, _, _):
        patch = api.patch

        async def patch_and_lose(path, body):
            await patch(path, body)
            api.patch = patch
            api.objects.clear()
            claims.observer.delete(claim())

        api.patch = patch_and_lose
        claims.upsert(pod())
        await settle()
        assert api.objects[f"{CLAIMS}/esg-1"]["status"]["reservedFor"][0]["name"] == "a"
        assert claims.unwritten_count() == 0


async def test_pods_that_wait_for_their_claim_are_counted(api):
    """From their creation until the claim is written, or the pod is deleted."""
    async with writer(api) as (claims, _, _):
        api.errors = [ApiError(500, "InternalError", "no")] * 3
        claims.upsert(pod())
        claims.upsert(pod("b", claim="esg-2"))
        assert claims.unwritten_count() == 2
        claims.delete(pod("b", claim="esg-2"))
        assert claims.unwritten_count() == 1
        await settle()
        assert claims.unwritten_count() == 0


async def test_a_claim_of_another_pod_stays(api, capsys):
    """The log says that the pod must be recreated without the copied claim."""
    async with writer(api) as (claims, _, _):
        claims.upsert(pod())
        await api.patched.wait()
        claims.upsert(pod("copy"))
        await settle()
    assert api.objects[f"{CLAIMS}/esg-1"]["status"]["reservedFor"][0]["name"] == "a"
    assert "recreate the pod without spec.resourceClaims" in capsys.readouterr().out


async def test_an_old_server_is_named(api, capsys):
    """A server without the API group answers 404."""
    api.errors = [ApiError(404, "NotFound", "the server could not find the requested resource")]
    async with writer(api) as (claims, _, _):
        claims.upsert(pod())
        await api.patched.wait()
    assert "need Kubernetes 1.34" in capsys.readouterr().out
