"""Replicas of the gateway: each life is one process with the real service in it."""

import asyncio
from collections.abc import Mapping
from functools import partial
from random import Random
from typing import Any

from scheduler.cluster.reflector import Reflector
from scheduler.cluster.watches import Watches
from scheduler.gateway.calls import CallError, CallMovedError, InferAnswer, InferCall
from scheduler.gateway.model_server import ModelServerError
from scheduler.gateway.replicas.peers import Peers
from scheduler.gateway.service import Environment, GatewayService
from scheduler.gateway.settings import GatewaySettings
from scheduler.settings import Settings
from tests.campaign.gateway_documents import GATEWAY_NAMESPACE, GATEWAYS, set_member
from tests.campaign.model_servers import ModelClient, ModelServers
from tests.campaign.simulated_server import SimulatedApi, SimulatedServer

LATENCY_S = 0.001
_SETTINGS = Settings(keep_alive_s=86_400.0)
_GATEWAY_SETTINGS = {
    name: GatewaySettings(
        pods=True,
        peers="app=gateway",
        pod_name=name,
        pod_namespace=GATEWAY_NAMESPACE,
        pod_start_s=60.0,
    )
    for name in GATEWAYS
}


class GatewayLife:
    """One process of the gateway.

    Attributes:
        service: the real one.
        died: ends with the process.
        answered: number of calls that its runtime has answered.
    """

    def __init__(
        self,
        server: SimulatedServer,
        models: ModelServers,
        replicas: "Mapping[str, GatewayReplica]",
        name: str,
        number: int,
    ) -> None:
        self.name = name
        self.answered = 0
        self._loop = asyncio.get_running_loop()
        self.died: asyncio.Future[None] = self._loop.create_future()
        self._random = Random(f"gateway {name} {number}")
        self._clock_rate = self._random.uniform(0.95, 1.05)
        self._api: Any = SimulatedApi(server, name)
        self.service = GatewayService(
            _SETTINGS,
            _GATEWAY_SETTINGS[name],
            Watches(
                self._api,
                reflector=partial(Reflector, random=self._random.random),
                monotonic=self._loop.time,
            ),
            Environment(
                lambda pod: ModelClient(models, self, pod),
                lambda: self._loop.time() * self._clock_rate,
                _SimulatedPeers(replicas),
            ),
        )
        self._count_answers()
        self._task = self._loop.create_task(self._run())

    def _count_answers(self) -> None:
        submit = self.service.runtime.submit

        def counted(call: InferCall) -> "asyncio.Future[InferAnswer]":
            answer = submit(call)
            answer.add_done_callback(self._answered)
            return answer

        self.service.runtime.submit = counted

    def _answered(self, answer: "asyncio.Future[InferAnswer]") -> None:
        self.answered += not answer.cancelled() and answer.exception() is None

    async def _run(self) -> None:
        async with self.service.running():
            await self.died

    def kill(self) -> None:
        """End the process without a word."""
        self._api.kill()
        self._task.cancel()
        if not self.died.done():
            self.died.set_result(None)

    async def leave(self) -> None:
        """End the process in order."""
        await self.service.drain()
        if not self.died.done():
            self.died.set_result(None)


class GatewayReplica:
    """One replica; its process dies and starts again.

    Attributes:
        lives: all of them, the current one last.
        life: the current one; None while it is down.
    """

    def __init__(
        self,
        server: SimulatedServer,
        models: ModelServers,
        replicas: "Mapping[str, GatewayReplica]",
        name: str,
    ) -> None:
        self.name = name
        self.lives: list[GatewayLife] = []
        self.life: GatewayLife | None = None
        self._server = server
        self._start_life = partial(GatewayLife, server, models, replicas, name)

    def start(self) -> None:
        if self.life is None:
            self.life = self._start_life(len(self.lives))
            self.lives.append(self.life)
            set_member(self._server.store, self.name, is_ready=True)

    def kill(self) -> None:
        if self.life is not None:
            self.life.kill()
            self.life = None
            set_member(self._server.store, self.name, is_ready=False)

    async def leave(self) -> None:
        """End the process in order; it is down afterwards."""
        life = self.life
        if life is not None:
            set_member(self._server.store, self.name, is_ready=False)
            await life.leave()
            if self.life is life:
                self.life = None


class _SimulatedPeers(Peers):
    """The other replicas, reached without HTTP."""

    def __init__(self, replicas: Mapping[str, GatewayReplica]) -> None:
        super().__init__(0)
        self._replicas = replicas

    def peer(self, name: str) -> Any:
        return _SimulatedPeer(self._replicas[name]) if name in self._replicas else None


class _SimulatedPeer:
    def __init__(self, replica: GatewayReplica) -> None:
        self._replica = replica

    async def forward(self, call: InferCall, now_ms: float) -> InferAnswer:
        del now_ms
        await asyncio.sleep(LATENCY_S)
        life = self._replica.life
        if life is None or life.service.replicas is None:
            raise ModelServerError(503, "connection refused", retryable=True)
        owned = life.service.replicas.owned
        try:
            owned.check(call.namespace, call.workflow, call.stage, 100)
            answer = owned.submit(call)
            await wait_or_cancel(answer, life.died)
            if life.died.done():
                raise ModelServerError(503, "connection reset", retryable=True)
            await asyncio.sleep(LATENCY_S)
            return answer.result()
        except CallMovedError as moved:
            raise CallError(moved.status, str(moved)) from None


async def wait_or_cancel(answer: "asyncio.Future[InferAnswer]", *ends: Any) -> None:
    """Wait for an answer or an end; without the answer, the call is cancelled."""
    try:
        await asyncio.wait({answer, *ends}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        answer.cancel()
