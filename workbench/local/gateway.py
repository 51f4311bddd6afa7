"""The gateway of this process over an API server in memory with the documents of the user."""

import asyncio
import tempfile
from collections.abc import Awaitable, Callable, Iterable, Mapping
from pathlib import Path

from scheduler.cluster.api import connect
from scheduler.cluster.watches import Watches
from scheduler.gateway.process import run_gateway
from scheduler.gateway.settings import GatewaySettings
from scheduler.model.documents import Document, FunctionProfile, to_manifest
from scheduler.model.function_server import FunctionServer, ServerProtocol
from scheduler.model.grant import Grant, grant_annotations
from scheduler.settings import Settings
from workbench.cluster.api_requests import (
    FUNCTION_PROFILES,
    FUNCTION_SERVERS,
    KINDS,
    PODS,
    WORKFLOWS,
)
from workbench.cluster.api_server import ApiServer, write_kubeconfig
from workbench.cluster.object_store import ObjectStore, Raw
from workbench.local.servers import ServerAddress

_LABEL = "app"
_USED_FIELDS = ("model", "batching", "slots")  # of a FunctionServer of the user

Servers = Mapping[str, tuple[ServerAddress, ServerProtocol]]
"""Addresses of servers with their protocols, by function."""


def local_store(documents: Iterable[Document], servers: Servers) -> ObjectStore:
    """Return the objects of a cluster in which each function has one ready pod, its server."""
    store = ObjectStore(KINDS)
    functions: dict[tuple[str, str], None] = {}  # a set in order
    declared: dict[tuple[str, str], Raw] = {}
    profiles: dict[str, FunctionProfile] = {}
    for document in documents:
        manifest = to_manifest(document)
        if isinstance(document, FunctionProfile):
            profiles[document.metadata.name] = document
            store.create(FUNCTION_PROFILES, manifest)
        elif isinstance(document, FunctionServer):
            declared[document.function_key] = manifest["spec"]
        else:
            manifest["metadata"]["namespace"] = document.key[0]
            store.create(WORKFLOWS, manifest)
            for stage in document.spec.stages:
                functions[document.key[0], stage.function] = None
    for namespace, function in functions:
        address, protocol = servers[function]
        metadata = {"name": function, "namespace": namespace}
        spec = declared.get((namespace, function), {})
        fields = {name: spec[name] for name in _USED_FIELDS if name in spec}
        fields |= {
            "function": function,
            "selector": {"matchLabels": {_LABEL: function}},
            "protocol": protocol,
            "port": address.port,
        }
        store.create(FUNCTION_SERVERS, {"metadata": metadata, "spec": fields})
        store.create(PODS, _pod(metadata, address, profiles[function]))
    return store


async def run_local(
    store: ObjectStore,
    settings: Settings,
    gateway: GatewaySettings,
    on_start: Callable[[], Awaitable[None]],
) -> None:
    """Serve until SIGTERM or SIGINT; call ``on_start`` meanwhile.

    Raises:
        ListenError: the address cannot be listened on.
    """
    with tempfile.TemporaryDirectory() as folder:
        kubeconfig = Path(folder, "kubeconfig")
        async with ApiServer(store).serving() as url:
            write_kubeconfig(kubeconfig, url)
            async with connect(kubeconfig) as api:
                serving = run_gateway(settings, gateway, Watches(api))
                tasks = [asyncio.ensure_future(work) for work in (serving, on_start())]
                try:
                    done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
                    done.pop().result()
                    await tasks[0]
                finally:
                    for task in tasks:
                        task.cancel()
                    await asyncio.wait(tasks)


def _pod(metadata: Raw, address: ServerAddress, profile: FunctionProfile) -> Raw:
    container = {"name": "server", "ports": [{"containerPort": address.port}]}
    return {
        "metadata": {
            **metadata,
            "labels": {_LABEL: profile.metadata.name},
            "annotations": grant_annotations(_largest_share(profile)),
        },
        "spec": {"containers": [container]},
        "status": {
            "phase": "Running",
            "podIP": address.host,
            "conditions": [{"type": "Ready", "status": "True"}],
        },
    }


def _largest_share(profile: FunctionProfile) -> Grant:
    """Return the largest share of a profile's first GPU model, on a GPU of its own."""
    gpu = profile.spec.gpus[0]
    largest = max(gpu.configurations, key=lambda c: (c.gpu_percent, c.cpu, c.memory_mib))
    return Grant(
        gpu_uuid=f"GPU-{profile.metadata.name}",
        gpu_percent=largest.gpu_percent,
        memory_mib=largest.memory_mib,
        batch=largest.batch,
        plan={"cpu": largest.cpu, "gpu_model": gpu.model},
    )
