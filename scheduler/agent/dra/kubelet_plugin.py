"""The kubelet's plugin for the resource claims of function pods (DRA).

The kubelet finds it by a socket in its folder of plugins, and calls it before it starts a pod with
such a claim. The answer names the CDI devices of the pod's grant, which the Binding wrote on the
pod. Without a grant there is no device, and the kubelet does not start the pod.
"""

import asyncio
import contextlib
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import grpc
import structlog
from grpc import aio

from scheduler.agent.dra import kubelet_messages as messages
from scheduler.agent.dra.grant_devices import GrantDevices
from scheduler.agent.pods.node_pods import NodePods
from scheduler.agent.settings import AgentSettings
from scheduler.model.names import CLAIM_DEVICE, CLAIM_DRIVER, CLAIM_POOL
from scheduler.protobuf import Schema, decode, encode

log = structlog.get_logger(__name__)
Json = dict[str, Any]

_POLL_S = 0.05
_GRANT_WAIT_S = 5.0  # the kubelet may see a bound pod before the agent's watch does
_DRAIN_S = 1.0


class KubeletPlugin:
    """The plugin of one node.

    Attributes:
        endpoint: socket on which it answers the kubelet.
        registration: socket by which the kubelet finds it.
        problem: reason why it cannot work; empty if the kubelet has registered it.
        calls: number of claims in the kubelet's calls, by result: prepared, refused, released,
            failed.

    Args:
        settings: folder of the kubelet, and what is in the containers.
        clock: monotonic clock, in seconds.
    """

    def __init__(
        self,
        settings: AgentSettings,
        pods: NodePods,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.endpoint, self.registration = messages.plugin_sockets(settings.kubelet_root)
        self.problem = "the kubelet has not registered the plugin"
        self.calls: Counter[str] = Counter(
            {"prepared": 0, "refused": 0, "released": 0, "failed": 0}
        )
        self._pods = pods
        self._devices = GrantDevices(Path(settings.cdi_folder), settings.mps_root)
        self._gpu_kind = settings.cdi_kind
        self._clock = clock

    async def run(self) -> None:
        """Answer the kubelet until cancelled."""
        calls = {
            "NodePrepareResources": _unary(self._prepare_all),
            "NodeUnprepareResources": _unary(self._unprepare_all),
        }
        registration = {
            "GetInfo": _unary(self._info),
            "NotifyRegistrationStatus": _unary(self._registered),
        }
        async with (
            _serving(self.endpoint, messages.PLUGIN, calls),
            _serving(self.registration, messages.REGISTRATION, registration),
        ):
            await asyncio.Event().wait()

    async def _info(self, _body: bytes) -> bytes:
        info = {
            "type": messages.PLUGIN_TYPE,
            "name": CLAIM_DRIVER,
            "endpoint": str(self.endpoint),
            "supported_versions": [messages.PLUGIN_VERSION],
        }
        return encode(messages.INFO, info)

    async def _registered(self, body: bytes) -> bytes:
        status = decode(messages.STATUS, memoryview(body))
        if status.get("plugin_registered"):
            self.problem = ""
            log.info("the kubelet has registered the plugin", driver=CLAIM_DRIVER)
        else:
            self.problem = f"the kubelet refuses the plugin: {status.get('error', '')}"
            log.error("the kubelet refuses the plugin", problem=status.get("error", ""))
        return b""

    async def _prepare_all(self, body: bytes) -> bytes:
        claims = _claims(body)
        results = await asyncio.gather(*(self._prepare(claim) for claim in claims))
        return _answer(messages.PREPARED, claims, results)

    async def _prepare(self, claim: Json) -> Json:
        namespace, name, uid = claim["namespace"], claim["name"], claim["uid"]
        deadline_s = self._clock() + _GRANT_WAIT_S
        while (pod := self._pods.owner_of(namespace, name)) is None:
            if self._clock() >= deadline_s:
                self.calls["refused"] += 1
                return {"error": f"no pod of this node has claim {namespace}/{name} and a grant"}
            await asyncio.sleep(_POLL_S)
        try:
            ids = [self._devices.write(uid, pod.gpu_uuid)]
        except OSError as error:
            self.calls["failed"] += 1
            log.error("claim not prepared", claim=name, pod=pod.name, problem=str(error))
            return {"error": f"the CDI specification cannot be written: {error}"}
        if self._gpu_kind:
            ids.append(f"{self._gpu_kind}={pod.gpu_uuid}")
        self.calls["prepared"] += 1
        log.info("claim prepared", claim=name, pod=pod.name, namespace=namespace, gpu=pod.gpu_uuid)
        device = {"pool_name": CLAIM_POOL, "device_name": CLAIM_DEVICE, "cdi_device_ids": ids}
        return {"devices": [device]}

    async def _unprepare_all(self, body: bytes) -> bytes:
        claims = _claims(body)
        return _answer(messages.UNPREPARED, claims, map(self._unprepare, claims))

    def _unprepare(self, claim: Json) -> Json:
        try:
            self._devices.remove(claim["uid"])
        except OSError as error:
            self.calls["failed"] += 1
            log.error("claim not released", claim=claim["name"], problem=str(error))
            return {"error": f"the CDI specification cannot be removed: {error}"}
        self.calls["released"] += 1
        return {}


def _claims(body: bytes) -> list[Json]:
    empty = {"namespace": "", "uid": "", "name": ""}
    claims = decode(messages.CLAIMS, memoryview(body)).get("claims", ())
    return [{**empty, **claim} for claim in claims]


def _answer(schema: Schema, claims: Iterable[Json], results: Iterable[Json]) -> bytes:
    entries = [
        {"uid": claim["uid"], "result": result}
        for claim, result in zip(claims, results, strict=True)
    ]
    return encode(schema, {"claims": entries})


def _unary(method: Callable[[bytes], Any]) -> grpc.RpcMethodHandler:
    async def answer(body: bytes, _context: aio.ServicerContext) -> bytes:
        result: bytes = await method(body)
        return result

    return grpc.unary_unary_rpc_method_handler(answer)


@contextlib.asynccontextmanager
async def _serving(
    socket: Path, service: str, methods: Mapping[str, grpc.RpcMethodHandler]
) -> AsyncIterator[None]:
    """Answer on a socket while inside; a socket of an earlier process is replaced."""
    _make_room(socket)
    server = aio.server()
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service, methods),))
    server.add_insecure_port(f"unix:{socket}")
    await server.start()
    try:
        yield
    finally:
        await server.stop(_DRAIN_S)
        _make_room(socket)


def _make_room(socket: Path) -> None:
    """Remove a socket, if there is one; create its folder."""
    socket.parent.mkdir(parents=True, exist_ok=True)
    socket.unlink(missing_ok=True)
