"""The kubelet's plugin: registration, claims of granted pods as CDI devices, and their release."""

import asyncio
import contextlib
import json
import tempfile
from itertools import count
from pathlib import Path

import grpc
import pytest

from scheduler.agent.dra import kubelet_messages as messages
from scheduler.agent.dra.kubelet_plugin import KubeletPlugin
from scheduler.agent.pods.node_pods import NodePods
from scheduler.agent.settings import AgentSettings
from scheduler.model.grant import Grant, grant_annotations
from scheduler.model.names import LABEL_FUNCTION, RESOURCE_CLAIM
from scheduler.protobuf import decode, encode

GPU = "GPU-5cdc392b-e9bb-5d3e-9411-1a815659b4d6"
UID = "7966454a-bbb4-4635-9797-e8342ff2715f"
CLAIM = {"namespace": "default", "name": "esg-1", "uid": UID}


@pytest.fixture
def kubelet():
    """Create the kubelet's folder; its path is short enough for sockets."""
    with tempfile.TemporaryDirectory(prefix="kubelet-") as folder:
        yield Path(folder)


def pod(claim="esg-1", *, granted=True):
    """Create a bound function pod with a claim."""
    annotations = grant_annotations(Grant(GPU, 40, 1800, 2, {})) if granted else {}
    return {
        "metadata": {
            "uid": "u",
            "namespace": "default",
            "name": "p",
            "labels": {LABEL_FUNCTION: "f"},
            "annotations": annotations,
        },
        "spec": {
            "nodeName": "n",
            "containers": [{"name": "c"}],
            "resourceClaims": [{"name": RESOURCE_CLAIM, "resourceClaimName": claim}],
        },
        "status": {"phase": "Pending"},
    }


@contextlib.asynccontextmanager
async def plugin(kubelet, *pods, **settings):
    """Run a plugin; yield it and a function that calls it like the kubelet."""
    node_pods = NodePods()
    node_pods.replace(pods)
    values = {"kubelet_root": str(kubelet), "cdi_folder": f"{kubelet}/cdi", "mps_root": "/run/mps"}
    clock = count().__next__
    plugin = KubeletPlugin(AgentSettings(**{**values, **settings}), node_pods, clock=clock)
    task = asyncio.create_task(plugin.run())
    while not plugin.registration.exists():  # noqa: ASYNC110 - a file is no event
        await asyncio.sleep(0)

    async def call(socket, method, body=b""):
        async with grpc.aio.insecure_channel(f"unix:{socket}") as channel:
            return memoryview(await channel.unary_unary(f"/{method}")(body))

    try:
        yield plugin, call
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def prepare(plugin, call, *claims, method="Prepare"):
    body = encode(messages.CLAIMS, {"claims": claims or [CLAIM]})
    answer = await call(plugin.endpoint, f"{messages.PLUGIN}/Node{method}Resources", body)
    schema = messages.PREPARED if method == "Prepare" else messages.UNPREPARED
    return {entry["uid"]: entry["result"] for entry in decode(schema, answer)["claims"]}


async def test_the_kubelet_registers_the_plugin(kubelet):
    """It reads type, name, socket and versions; the plugin is ready when it is registered."""
    async with plugin(kubelet) as (running, call):
        info = await call(running.registration, f"{messages.REGISTRATION}/GetInfo")
        assert decode(messages.INFO, info) == {
            "type": "DRAPlugin",
            "name": "esg-scheduler.io",
            "endpoint": f"{kubelet}/plugins/esg-scheduler.io/dra.sock",
            "supported_versions": ["v1.DRAPlugin"],
        }
        assert "not registered" in running.problem
        notify = f"{messages.REGISTRATION}/NotifyRegistrationStatus"
        for status, problem in (
            ({"plugin_registered": True}, ""),
            ({"error": "no"}, "the kubelet refuses the plugin: no"),
        ):
            await call(running.registration, notify, encode(messages.STATUS, status))
            assert running.problem == problem
    assert not running.registration.exists()
    assert not running.endpoint.exists()


async def test_a_claim_is_the_cdi_device_of_its_pods_gpu(kubelet):
    """The device mounts the folders of the granted GPU, as a volume would, and goes at the end."""
    async with plugin(kubelet, pod()) as (running, call):
        for _ in range(2):  # the kubelet repeats calls after its restart
            result = await prepare(running, call)
            [device] = result[UID]["devices"]
            assert device["cdi_device_ids"] == [f"esg-scheduler.io/grant={UID}"]
        [path] = (kubelet / "cdi").iterdir()
        specification = json.loads(path.read_text("utf-8"))
        assert specification["kind"] == "esg-scheduler.io/grant"
        [device] = specification["devices"]
        assert device["name"] == UID
        places = {m["containerPath"]: m["hostPath"] for m in device["containerEdits"]["mounts"]}
        assert places == {
            "/run/mps/pipe": f"/run/mps/{GPU}/pipe",
            "/dev/shm": f"/run/mps/{GPU}/shm",
        }
        for _ in range(2):
            assert await prepare(running, call, method="Unprepare") == {UID: {}}
        assert running.calls == {"prepared": 2, "refused": 0, "released": 2, "failed": 0}
        assert list((kubelet / "cdi").iterdir()) == []


async def test_the_gpu_itself_is_a_cdi_device_too(kubelet):
    """With a kind, the claim also names the device of NVIDIA's toolkit."""
    async with plugin(kubelet, pod(), cdi_kind="nvidia.com/gpu") as (running, call):
        result = await prepare(running, call)
        [device] = result[UID]["devices"]
        assert device["cdi_device_ids"][1:] == [f"nvidia.com/gpu={GPU}"]


@pytest.mark.parametrize("pods", [(), (pod(granted=False),), (pod("esg-2"),)])
async def test_without_a_grant_there_is_no_device(kubelet, pods):
    """The error names the claim; the kubelet does not start the pod, and tries again."""
    async with plugin(kubelet, *pods) as (running, call):
        result = await prepare(running, call)
        assert "default/esg-1" in result[UID]["error"]
        assert not (kubelet / "cdi").exists()
        assert running.calls["refused"] == 1


async def test_one_claim_of_a_call_fails_alone(kubelet):
    """An invalid UID never becomes a file name."""
    forged = CLAIM | {"uid": "../u"}
    async with plugin(kubelet, pod()) as (running, call):
        result = await prepare(running, call, CLAIM, forged)
        assert "devices" in result[UID]
        assert "'../u'" in result["../u"]["error"]
        assert (running.calls["prepared"], running.calls["failed"]) == (1, 1)
        result = await prepare(running, call, forged, method="Unprepare")
        assert "'../u'" in result["../u"]["error"]
