"""The gateway's part of a run: replicas, clients, pods of templates and their owner."""

import asyncio
from collections import Counter
from contextlib import suppress
from contextvars import copy_context
from dataclasses import dataclass

from scheduler.gateway.calls import CallError, InferCall
from scheduler.oip.errors import MessageError
from scheduler.oip.infer_request import parse_request
from tests.campaign.gateway_documents import (
    GATEWAYS,
    NAMESPACE,
    POOL_LABEL,
    WORKFLOW,
    create_documents,
    function_server,
)
from tests.campaign.gateway_replica import LATENCY_S, GatewayReplica, wait_or_cancel
from tests.campaign.kubelet import SimulatedKubelet
from tests.campaign.model_servers import ModelServers, request_body, values_of
from tests.campaign.simulated_server import SimulatedServer
from workbench.cluster.api_requests import FUNCTION_SERVERS, PODS
from workbench.cluster.object_store import Key, ObjectChange, Raw, StatusError

COLLECTED_S = 5.0  # the garbage collector removes pods whose owner is gone
PATIENCE_S = 70.0  # of a client without a limit of its own


@dataclass(slots=True)
class ClientRequest:
    """A request of a client.

    Attributes:
        outcome: answered, refused, broken (the connection) or given up; empty while it is open.
        problem: what is wrong with its answer.
    """

    number: int
    outcome: str = ""
    problem: str = ""


class Gateways:
    """The replicas, and who uses them.

    Attributes:
        models: the model servers of their pods.
        replicas: by name.
        requests: of the clients.
    """

    def __init__(self, server: SimulatedServer, kubelet: SimulatedKubelet) -> None:
        self._server = server
        self._kubelet = kubelet
        self._loop = asyncio.get_running_loop()
        self._context = copy_context()  # on no machine that a run pauses
        self._tasks: set[asyncio.Task[None]] = set()
        create_documents(server.store)
        self.models = ModelServers(server)
        self.requests: list[ClientRequest] = []
        self.replicas: dict[str, GatewayReplica] = {}
        for name in GATEWAYS:
            self.replicas[name] = GatewayReplica(server, self.models, self.replicas, name)
        self.start()

    def start(self) -> None:
        """Start the replicas that are down."""
        for replica in self.replicas.values():
            replica.start()

    def heal(self) -> None:
        """End all faults."""
        self.models.faults.clear()
        self.start()
        for function in ("classify", "rank"):
            self._create_server(function)

    @property
    def is_busy(self) -> bool:
        return bool(self._tasks)

    @property
    def outcomes(self) -> Counter[str]:
        return Counter(request.outcome for request in self.requests)

    def pods(self) -> list[Raw]:
        """Return the pods of templates, in the order of their names."""
        pods = self._server.store.list(PODS)
        pool_pods = [p for p in pods if POOL_LABEL in (p["metadata"].get("labels") or {})]
        return sorted(pool_pods, key=lambda pod: pod["metadata"]["name"])

    def observe(self, path: str, change: ObjectChange) -> None:
        """Take in a change of the server: pods without an owner are deleted later."""
        if (path == FUNCTION_SERVERS and change.after is None) or (
            path == PODS and change.before is None
        ):
            self._loop.call_later(COLLECTED_S, self._collect, context=self._context)

    def _collect(self) -> None:
        servers = {s["metadata"]["uid"] for s in self._server.store.list(FUNCTION_SERVERS)}
        for pod in self.pods():
            owners = {owner["uid"] for owner in pod["metadata"].get("ownerReferences") or ()}
            if not owners & servers:
                self._server.delete_pod(pod["metadata"]["name"])

    def _start_task(self, work: "asyncio.Task[None]") -> None:
        self._tasks.add(work)
        work.add_done_callback(self._tasks.discard)

    # -- incidents -----------------------------------------------------------------------------

    def infer(self, number: int, replica: str, rows: int, limit_s: float, is_told: bool) -> None:
        request = ClientRequest(number)
        self.requests.append(request)
        self._start_task(
            self._loop.create_task(self._send(request, replica, rows, limit_s, is_told))
        )

    def gateway_crash(self, replica: str, seconds: float) -> None:
        self.replicas[replica].kill()
        self._loop.call_later(seconds, self.replicas[replica].start)

    def gateway_leaves(self, replica: str, seconds: float) -> None:
        async def leave() -> None:
            await self.replicas[replica].leave()
            await asyncio.sleep(seconds)
            self.replicas[replica].start()

        self._start_task(self._loop.create_task(leave()))

    def model_fault(self, times: int, effect: str) -> None:
        self.models.faults += [effect] * times

    def pool_pod(self, index: int, effect: str) -> None:
        pods = self.pods()
        if not pods:
            return
        name = pods[index % len(pods)]["metadata"]["name"]
        key: Key = (NAMESPACE, name)
        match effect:
            case "is deleted":
                self._server.delete_pod(name)
            case "is deleted by force":
                self._server.delete_pod(name, grace_s=0)
            case "ends":
                self._kubelet.finish(key, "Failed")
            case "is not ready":
                change = {"conditions": [{"type": "Ready", "status": "False"}]}
                self._server.store.patch(PODS, key, {"status": change})

    def server_gone(self, function: str, seconds: float) -> None:
        self._server.store.delete(FUNCTION_SERVERS, (NAMESPACE, function))
        self._loop.call_later(seconds, self._create_server, function)

    def _create_server(self, function: str) -> None:
        with suppress(StatusError):
            self._server.store.create(FUNCTION_SERVERS, function_server(function))

    # -- clients -------------------------------------------------------------------------------

    async def _send(
        self,
        request: ClientRequest,
        replica: str,
        rows: int,
        limit_s: float,
        is_told: bool,
    ) -> None:
        """Send a request; the client tells its limit, or hangs up at it."""
        life = self.replicas[replica].life
        await asyncio.sleep(LATENCY_S)
        if life is None or life.died.done():
            request.outcome = "broken"
            return
        values = [1000.0 * request.number + row for row in range(rows)]
        backend = life.service.backend
        call = InferCall(
            NAMESPACE,
            WORKFLOW,
            None,
            parse_request(request_body(values)),
            backend.now_ms(),
            1000 * limit_s if is_told else None,
        )
        try:
            backend.check(NAMESPACE, WORKFLOW, None, 100)
            answer = backend.submit(call)
            async with asyncio.timeout(PATIENCE_S if is_told else limit_s):
                await wait_or_cancel(answer, life.died)
            if not answer.done() or answer.cancelled():
                request.outcome = "broken" if life.died.done() else "cancelled"
                return
            outputs = answer.result().outputs
        except TimeoutError:
            request.outcome = "given up"
            if is_told:
                request.problem = f"no answer within its limit of {limit_s} s"
        except (CallError, MessageError):
            request.outcome = "refused"
        else:
            request.outcome = "answered"
            if values_of(outputs[0]) != [4.0 * value + 3.0 for value in values]:
                request.problem = "the answer is that of another request"
