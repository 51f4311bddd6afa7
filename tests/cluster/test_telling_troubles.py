"""What is wrong is told once, in a sentence that says what to do, and taken back when over."""

from typing import Any

import pytest

from scheduler.cluster.api import Api
from scheduler.cluster.reflector import Reflector
from scheduler.cluster.resource import FUNCTION_PROFILES, PODS, WORKFLOWS, Resource
from tests.cluster.api_server import ApiServer, refuse
from tests.cluster.props import Listener, VirtualTime, pod, running, until

Logged = list[dict[str, Any]]


@pytest.mark.parametrize("resource", [WORKFLOWS, FUNCTION_PROFILES])
async def test_crd_missing(
    server: ApiServer, api: Api, listener: Listener, time: VirtualTime, resource: Resource
) -> None:
    """Without the CRD it says so and how to install it, and is well once it is there."""
    reflector = Reflector(api, resource, listener, sleep=time.sleep)
    server.fault("GET", resource.path, refuse(404, "NotFound", "no such resource"), times=3)
    async with running(reflector):
        await until(lambda: reflector.trouble is not None)
        told = reflector.trouble
        await server.watched(resource)
        await reflector.synced.wait()
        await until(lambda: reflector.trouble is None)

    assert told == (
        f"{resource.kind} CRD is not installed: kubectl apply -f deploy/crds/ "
        "(or `esg crds | kubectl apply -f -`)"
    )


@pytest.mark.parametrize("verb", ["list", "watch"])
async def test_forbidden(
    server: ApiServer, api: Api, listener: Listener, time: VirtualTime, verb: str
) -> None:
    """A missing right is told with the verb and the resource that the ClusterRole must name."""
    if verb == "watch":

        async def let_the_list_through(_request: object) -> None:
            server.fault("GET", PODS.path, refuse(403, "Forbidden", "User x may not"))

        server.fault("GET", PODS.path, let_the_list_through)
    else:
        server.fault("GET", PODS.path, refuse(403, "Forbidden", "User x may not"))
    reflector = Reflector(api, PODS, listener, sleep=time.sleep)
    async with running(reflector):
        await until(lambda: reflector.trouble is not None)
        told = reflector.trouble

    assert told.startswith(f"RBAC: may not {verb} pods in all namespaces; grant the verbs list and")
    assert "User x may not" in told


async def test_logged_once(
    server: ApiServer, api: Api, listener: Listener, time: VirtualTime, logged: Logged
) -> None:
    """Ten failures of one kind are one warning; the recovery is told with how long it took."""
    server.fault("GET", PODS.path, refuse(500, "InternalError", "etcd is away"), times=10)
    reflector = Reflector(api, PODS, listener, clock=time.clock, sleep=time.sleep)
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


async def test_another_trouble_is_logged(
    server: ApiServer, api: Api, listener: Listener, time: VirtualTime, logged: Logged
) -> None:
    """When the trouble becomes another one, that is told too."""
    server.fault("GET", PODS.path, refuse(500, "InternalError", "etcd is away"), times=2)
    server.fault("GET", PODS.path, refuse(403, "Forbidden", "User x may not"), times=2)
    async with running(Reflector(api, PODS, listener, sleep=time.sleep)):
        await listener.next()

    assert [e["event"] for e in logged].count("reflector.failing") == 2


async def test_one_object_breaks_the_handler(
    server: ApiServer, api: Api, listener: Listener, logged: Logged
) -> None:
    """An object that the handler cannot take is logged by its name, and the stream goes on."""
    listener.fail_on = lambda _verb, name: name == "bad"
    async with running(Reflector(api, PODS, listener)):
        await server.watched(PODS)
        await listener.next()
        server.put(PODS, pod("bad"))
        server.put(PODS, pod("good"))
        told = await listener.next()

    assert told == ("upsert", "good")
    assert len(server.list_requests(PODS)) == 1
    failed = [entry for entry in logged if entry["event"] == "reflector.handler_failed"]
    assert [(e["namespace"], e["name"]) for e in failed] == [("default", "bad")]


async def test_the_list_breaks_the_handler(
    api: Api, listener: Listener, time: VirtualTime, logged: Logged
) -> None:
    """A list that the handler cannot take is not synced; it is listed again after a pause."""
    listener.fail_on = lambda verb, _name: verb == "replace"
    reflector = Reflector(api, PODS, listener, sleep=time.sleep)
    async with running(reflector):
        await until(lambda: reflector.trouble is not None)
        synced_too_early = reflector.synced.is_set()
        listener.fail_on = lambda _verb, _name: False
        told = await listener.next()

    assert told == ("replace", [])
    assert not synced_too_early
    assert logged[0]["reason"] == "RuntimeError: the handler broke on the list"
