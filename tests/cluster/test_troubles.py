"""A trouble is logged once, with its remedy, and cleared after the recovery."""

from typing import Any

import pytest

from scheduler.cluster.reflector import Reflector
from scheduler.cluster.resource import CLAIMS, FUNCTION_PROFILES, PODS, WORKFLOWS
from tests.cluster.api_server import refuse
from tests.cluster.factories import pod
from tests.waiting import running, until

Logged = list[dict[str, Any]]


@pytest.mark.parametrize("resource", [WORKFLOWS, FUNCTION_PROFILES])
async def test_crd_missing(server, api, listener, time, resource):
    """Without the CRD the trouble says how to install it; it ends once the CRD exists."""
    reflector = Reflector(api, resource, listener, sleep=time.sleep)
    server.fault("GET", resource.path, refuse(404, "NotFound", "no such resource"), times=3)
    async with running(reflector):
        await until(lambda: reflector.trouble is not None)
        trouble = reflector.trouble
        await server.watched(resource)
        await reflector.synced.wait()
        await until(lambda: reflector.trouble is None)

    assert trouble == (
        f"{resource.kind} CRD is not installed: kubectl apply -f deploy/crds/ "
        "(or `esg crds | kubectl apply -f -`)"
    )


async def test_claims_missing(server, api, listener, time):
    """An API server that is too old for resource claims is no missing CRD."""
    reflector = Reflector(api, CLAIMS, listener, sleep=time.sleep)
    server.fault("GET", CLAIMS.path, refuse(404, "NotFound", "no such resource"))
    async with running(reflector):
        await until(lambda: reflector.trouble is not None)
        trouble = reflector.trouble

    assert trouble == (
        "the API server has no resource.k8s.io/v1: claims need Kubernetes 1.34; upgrade it, or set "
        "ESG_RESOURCE_CLAIMS=false (dra.enabled: false)"
    )


@pytest.mark.parametrize("verb", ["list", "watch"])
async def test_forbidden(server, api, listener, time, verb):
    """The trouble for a missing right names the verb and the resource for the ClusterRole."""
    if verb == "watch":

        async def let_the_list_through(_request):
            server.fault("GET", PODS.path, refuse(403, "Forbidden", "User x may not"))

        server.fault("GET", PODS.path, let_the_list_through)
    else:
        server.fault("GET", PODS.path, refuse(403, "Forbidden", "User x may not"))
    reflector = Reflector(api, PODS, listener, sleep=time.sleep)
    async with running(reflector):
        await until(lambda: reflector.trouble is not None)
        trouble = reflector.trouble

    assert trouble.startswith(
        f"RBAC: may not {verb} pods in all namespaces; grant the verbs list and"
    )
    assert "User x may not" in trouble


async def test_logged_once(server, api, listener, time, logged):
    """Ten failures of one kind are one warning; the recovery is logged with its duration."""
    server.fault("GET", PODS.path, refuse(500, "InternalError", "etcd is away"), times=10)
    reflector = Reflector(api, PODS, listener, clock=time.clock_s, sleep=time.sleep)
    async with running(reflector):
        await server.watched(PODS)
        server.put(PODS, pod("a"))
        await listener.next()
        await listener.next()

    events = [(entry["event"], entry["log_level"]) for entry in logged]
    assert events == [
        ("reflector.failing", "warning"),
        ("reflector.synced", "info"),
        ("reflector.recovered", "info"),
    ]
    assert logged[0]["reason"] == "500 InternalError: etcd is away"
    assert logged[2]["after_s"] == pytest.approx(sum(time.slept[1:]) + time.slept[0], abs=1e-3)


async def test_another_trouble_is_logged(server, api, listener, time, logged):
    """Another trouble is logged, too."""
    server.fault("GET", PODS.path, refuse(500, "InternalError", "etcd is away"), times=2)
    server.fault("GET", PODS.path, refuse(403, "Forbidden", "User x may not"), times=2)
    async with running(Reflector(api, PODS, listener, sleep=time.sleep)):
        await listener.next()

    assert [e["event"] for e in logged].count("reflector.failing") == 2


async def test_handler_fails_on_one_object(server, api, listener, logged):
    """The object is logged by its name, and the watch continues."""
    listener.fail_on = lambda _verb, name: name == "bad"
    async with running(Reflector(api, PODS, listener)):
        await server.watched(PODS)
        await listener.next()
        server.put(PODS, pod("bad"))
        server.put(PODS, pod("good"))
        report = await listener.next()

    assert report == ("upsert", "good")
    assert len(server.list_requests(PODS)) == 1
    failed = [entry for entry in logged if entry["event"] == "reflector.handler_failed"]
    assert [(e["namespace"], e["name"]) for e in failed] == [("default", "bad")]


async def test_handler_fails_on_the_list(api, listener, time, logged):
    """The reflector is not synced; it relists after a pause."""
    listener.fail_on = lambda verb, _name: verb == "replace"
    reflector = Reflector(api, PODS, listener, sleep=time.sleep)
    async with running(reflector):
        await until(lambda: reflector.trouble is not None)
        synced_too_early = reflector.synced.is_set()
        listener.fail_on = lambda _verb, _name: False
        report = await listener.next()

    assert report == ("replace", [])
    assert not synced_too_early
    assert logged[0]["reason"] == "RuntimeError: the handler failed on the list"
