"""The played kube-scheduler, kubelet and model servers, without processes."""

import asyncio
import json
from contextlib import asynccontextmanager, suppress
from dataclasses import replace

import aiohttp
import pytest

from scheduler.model.grant import Grant, grant_annotations
from scheduler.model.names import LABEL_FUNCTION, POOL_HOLDER
from workbench.cluster.api_requests import (
    FUNCTION_SERVERS,
    NODES,
    PODS,
    ApiRequests,
    ApiTarget,
)
from workbench.cluster.kube_scheduler import PlayedScheduler
from workbench.cluster.kubelet import Kubelet, is_ready, start_s
from workbench.cluster.model_player import ModelPlayer
from workbench.cluster.process import free_port
from workbench.profiles.builders import profile

GRANT = Grant("GPU-1", 28, 1000, 4, {"cpu": 2, "gpu_model": "A100"})
PROFILE = profile(
    "f",
    {
        "A100": [
            (batch, 2, percent, 10.0 * batch / percent) for batch in (1, 4) for percent in (28, 56)
        ]
    },
    cold_start_ms=1000,
)


class FakeExtender:
    """An extender with room for some pods on one node."""

    def __init__(self, store, room):
        self.store, self.room = store, room
        self.binds = []

    async def filter(self, pod, nodes):
        await asyncio.sleep(0)
        return nodes[:1] if self.room > 0 else []

    async def best(self, pod, nodes):
        raise AssertionError("one node needs no scores")

    async def bind(self, pod, node):
        metadata = pod["metadata"]
        self.room -= 1
        self.binds.append(metadata["name"])
        annotations = grant_annotations(GRANT)
        change = {"metadata": {"annotations": annotations}, "spec": {"nodeName": node}}
        self.store.patch(PODS, (metadata["namespace"], metadata["name"]), change)
        return ""


class FakeModelPods:
    """Notes which model servers run."""

    def __init__(self):
        self.pods = {}
        self.stopped = asyncio.Event()

    async def start(self, pod):
        self.pods[pod.name] = pod

    async def stop(self, name):
        self.pods.pop(name, None)
        self.stopped.set()


def pod(name):
    return {
        "metadata": {"name": name, "namespace": "n", "labels": {LABEL_FUNCTION: "f"}},
        "spec": {"schedulerName": "esg-scheduler"},
    }


def kubelet_of(store, model_pods, *names):
    """Create bound pods without a cold start; return their kubelet."""
    store.create(
        FUNCTION_SERVERS,
        {"metadata": {"name": "f", "namespace": "n"}, "spec": {"function": "f", "port": 8000}},
    )
    for name in names:
        created = pod(name)
        created["spec"]["nodeName"] = "n1"
        created["metadata"]["annotations"] = grant_annotations(GRANT)
        store.create(PODS, created)
    spec = PROFILE.spec.model_copy(update={"cold_start_ms": 0.0})
    profiles = {"f": PROFILE.model_copy(update={"spec": spec})}
    return Kubelet(store, profiles, model_pods, outputs=lambda _: ("x",), grace_s=0.0)


@asynccontextmanager
async def running(player):
    task = asyncio.create_task(player.run())
    yield
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task


async def until(store, condition):
    """Wait until the pods are in a state."""
    async with asyncio.timeout(60):
        with store.watching(PODS) as changes:
            while not condition(store.list(PODS)):
                await anext(aiter(changes))


def is_unschedulable(pod):
    """Return true if a pod had no node at the last attempt."""
    conditions = pod.get("status", {}).get("conditions", ())
    return not pod["spec"].get("nodeName") and any(
        condition.get("reason") == "Unschedulable" for condition in conditions
    )


async def test_pods_are_placed_while_there_is_room(store):
    """Each is bound once; one without a node is reported, and placed once another has ended."""
    store.create(NODES, {"metadata": {"name": "n1"}})
    extender = FakeExtender(store, room=2)
    for name in ("a", "b", "c"):
        store.create(PODS, pod(name))
    async with running(PlayedScheduler(store, extender)):
        await until(store, lambda pods: any(is_unschedulable(p) for p in pods))
        assert extender.binds == ["a", "b"]
        extender.room = 1
        store.delete(PODS, ("n", "a"))
        await until(store, lambda pods: all(p["spec"].get("nodeName") for p in pods))
    assert extender.binds == ["a", "b", "c"]
    assert not is_unschedulable(store.get(PODS, ("n", "c")))


async def test_a_pod_becomes_ready_at_an_address_of_its_own(store):
    """Its model server runs with the times of its share, and ends with it."""
    model_pods = FakeModelPods()
    async with running(kubelet_of(store, model_pods, "a", "b")):
        await until(store, lambda pods: all(is_ready(p) for p in pods))
        addresses = {p["status"]["podIP"] for p in store.list(PODS)}
        assert addresses == {"127.64.0.1", "127.64.0.2"}
        played = model_pods.pods["n/a"]
        assert (played.host, played.port, played.gpu_percent) == ("127.64.0.1", 8000, 28)
        assert played.latencies_ms == {1: 10.0 / 28, 4: 40.0 / 28}
        store.patch(PODS, ("n", "a"), {"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}})
        await until(store, lambda pods: len(pods) == 1)
    assert set(model_pods.pods) == {"n/b"}


async def test_the_holder_of_a_slice_runs_without_a_model_server(store):
    """It is ready at once, and ends as others do."""
    model_pods = FakeModelPods()
    kubelet = kubelet_of(store, model_pods)
    holder = pod("h")
    grant = replace(GRANT, plan={**GRANT.plan, "pool": POOL_HOLDER})
    holder["metadata"] |= {"labels": {}, "annotations": grant_annotations(grant)}
    holder["spec"]["nodeName"] = "n1"
    async with running(kubelet):
        store.create(PODS, holder)
        await until(store, lambda pods: all(map(is_ready, pods)))
        assert model_pods.pods == {}
        store.patch(PODS, ("n", "h"), {"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}})
        await until(store, lambda pods: not pods)


@pytest.mark.parametrize("is_forced", [False, True])
async def test_a_container_ends_after_its_pod_is_deleted(store, is_forced):
    """Its kubelet writes the end into the phase; the object of a forced deletion is gone before."""
    model_pods = FakeModelPods()
    async with running(kubelet_of(store, model_pods, "a")):
        await until(store, lambda pods: is_ready(pods[0]))
        options = {"gracePeriodSeconds": 0} if is_forced else {}
        ApiRequests(store).object("DELETE", ApiTarget(PODS, "n", "a"), options)
        assert model_pods.pods.keys() == {"n/a"}
        assert len(store.list(PODS)) == (not is_forced)
        async with asyncio.timeout(60):
            await model_pods.stopped.wait()
        await until(store, lambda pods: not pods)
    phases = [c.before["status"]["phase"] for c in store.collection(PODS).history if not c.after]
    assert phases == ["Running" if is_forced else "Failed"]


async def test_a_pod_that_is_deleted_while_it_starts_never_serves(store):
    """Its start is given up, and it is gone."""
    model_pods = FakeModelPods()
    kubelet = Kubelet(store, {"f": PROFILE}, model_pods, outputs=lambda _: ("x",), grace_s=0.0)
    created = pod("a")
    created["spec"]["nodeName"] = "n1"
    created["metadata"]["annotations"] = grant_annotations(GRANT)
    store.create(PODS, created)
    async with running(kubelet):
        await until(store, lambda pods: "status" in pods[0])
        deletion = {"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}}
        store.patch(PODS, ("n", "a"), deletion)
        await until(store, lambda pods: not pods)
    assert model_pods.pods == {}


def test_a_start_leaves_time_for_the_first_batch():
    """The gateway's batch of four is a part of the cold start of a second."""
    assert start_s(GRANT, PROFILE) == pytest.approx(1.0 - 0.040 / 28)


async def test_a_played_pod_doubles_the_sum_of_its_inputs():
    """Each named output has it, and the report counts the run."""
    player = ModelPlayer(seed=0, noise_ratio=0.05)
    host = "127.64.0.9"
    fields = {
        "name": "n/a",
        "host": host,
        "port": free_port(host),
        "gpu_percent": 50,
        "latencies_ms": {"1": 1.0, "4": 2.0},
        "outputs": ["y", "z"],
    }
    await player.obey({"start": fields})
    inputs = [
        {"name": name, "shape": [2, 1], "datatype": "FP32", "data": [1, 2]} for name in ("l", "r")
    ]
    url = f"http://{host}:{fields['port']}/v2/models/f/infer"
    async with (
        aiohttp.ClientSession() as session,
        session.post(url, data=json.dumps({"inputs": inputs})) as answer,
    ):
        outputs = json.loads(await answer.read())["outputs"]
    assert {output["name"]: output["data"] for output in outputs} == {"y": [4, 8], "z": [4, 8]}
    report = await player.obey({"report": True})
    assert (report["runs"], report["pods"]) == (1, 1)
    assert report["busy_s"] == pytest.approx(0.5 * 2.0 / 1000, rel=0.5)
    await player.obey({"stop": "n/a"})
    async with aiohttp.ClientSession() as session:
        with pytest.raises(aiohttp.ClientConnectorError):
            await session.post(url)


async def test_an_address_is_that_of_its_newest_pod():
    """The end of the pod that had it before is reported later."""
    player = ModelPlayer(seed=0, noise_ratio=0.0)
    host = "127.64.0.10"
    port = free_port(host)
    for name in ("n/a", "n/b"):
        fields = {"name": name, "host": host, "port": port, "gpu_percent": 50}
        fields |= {"latencies_ms": {"1": 1.0}, "outputs": [name]}
        assert await player.obey({"start": fields}) == {}
    await player.obey({"stop": "n/a"})
    inputs = [{"name": "x", "shape": [1, 1], "datatype": "FP32", "data": [1]}]
    async with (
        aiohttp.ClientSession() as session,
        session.post(
            f"http://{host}:{port}/v2/models/f/infer", data=json.dumps({"inputs": inputs})
        ) as answer,
    ):
        (output,) = json.loads(await answer.read())["outputs"]
    assert output["name"] == "n/b"
    await player.obey({"stop": "n/b"})
