"""End of the extender's service and process: its Lease is free at once, and not too early."""

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path

import httpx
import pytest

from scheduler.cluster.api import connect
from scheduler.cluster.link import LiveCluster
from scheduler.cluster.owner_lease import LEASE_NAME
from scheduler.cluster.resource import NODES, PODS
from scheduler.extender.service import Service
from scheduler.extender.wire import ExtenderBindingArgs
from scheduler.planning.service import PlanningService
from scheduler.settings import Settings
from tests.cluster.api_server import ApiServer
from tests.cluster.factories import kubeconfig_for
from tests.extender.factories import node, pod
from tests.extender.sample_cluster import sample_cluster, until_ready
from tests.waiting import until
from workbench.cluster.api_requests import KINDS, LEASES
from workbench.cluster.object_store import ObjectStore
from workbench.cluster.process import free_port


async def test_the_lease_is_released_after_the_last_bind(tmp_path, monkeypatch, loopback_http):
    """Another process binds pods as soon as it has the Lease: no Binding may be on its way then."""
    server = ApiServer()
    await server.start()
    server.put(NODES, node("n1"))
    metadata = server.put(PODS, pod())["metadata"]
    sent, may_arrive = asyncio.Event(), asyncio.Event()
    bound_at_release = []

    async def delay(_request):
        sent.set()
        await may_arrive.wait()

    async def look(_request):
        bound_at_release.append(server.pod(metadata["name"])["spec"].get("nodeName"))

    async with connect(kubeconfig_for(server.url, tmp_path), timeout_s=30.0) as api:
        link = LiveCluster(api, lease_namespace="esg", lease_timeout_s=30.0)
        service = Service(PlanningService(Settings(), link))
        until_idle = service.binder.until_idle

        async def observed_until_idle():
            may_arrive.set()
            await until_idle()

        monkeypatch.setattr(service.binder, "until_idle", observed_until_idle)
        async with service.running():
            await until(lambda: not service.planning.not_ready_reason())
            server.fault("POST", "/binding", delay)
            server.fault("PATCH", f"/{LEASE_NAME}", look)
            bind = asyncio.create_task(
                service.bind(
                    ExtenderBindingArgs(
                        PodName=metadata["name"],
                        PodNamespace="default",
                        PodUID=metadata["uid"],
                        Node="n1",
                    )
                )
            )
            await sent.wait()
    await bind
    await server.stop()

    assert bound_at_release == ["n1"]
    [lease] = server.store.list(LEASES)
    assert not lease["spec"].get("holderIdentity")


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_the_process_in_order(tmp_path, number):
    """Its Lease is free, its client's open connection does not delay it, and its status is 0."""
    esg, port = str(Path(sys.executable).with_name("esg")), free_port()
    environment = {"ESG_OWNER_LEASE_NAMESPACE": "esg", "no_proxy": "127.0.0.1"}
    call = {"Pod": pod(), "Nodes": None, "NodeNames": ["node-000"]}
    store = ObjectStore(KINDS)
    with sample_cluster(tmp_path, store) as kubeconfig:
        process = subprocess.Popen(
            [esg, "serve", f"--kubeconfig={kubeconfig}", f"--port={port}"],
            env=os.environ | environment,
        )
        try:
            with httpx.Client(base_url=f"http://127.0.0.1:{port}", trust_env=False) as client:
                until_ready(client)
                assert client.post("/filter", json=call).json()["NodeNames"] == ["node-000"]
                [held] = store.list(LEASES)
                process.send_signal(number)
                status = process.wait(60)
        finally:
            process.kill()
            process.wait()
        [released] = store.list(LEASES)
    assert held["spec"]["holderIdentity"]
    assert (status, released["spec"].get("holderIdentity")) == (0, None)
