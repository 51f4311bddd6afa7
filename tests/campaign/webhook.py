"""Admission of pods by the real webhook, before they are stored."""

import asyncio
import json
from base64 import b64decode
from contextlib import suppress
from functools import partial
from random import Random
from typing import Any

from scheduler.cluster.link import LiveCluster
from scheduler.cluster.reflector import Reflector
from scheduler.planning.service import PlanningService
from scheduler.settings import Settings
from scheduler.webhook.admission import Admission
from scheduler.webhook.server import pod_defaults
from scheduler.webhook.wire import AdmissionRequest, GroupVersionKind
from tests.campaign.simulated_server import SimulatedApi, SimulatedServer
from workbench.cluster.api_requests import PODS
from workbench.cluster.object_store import Raw, StatusError

RETRY_S = 1.0  # of a creator whose pod is denied
_SETTINGS = Settings()


class SimulatedCreator:
    """Creates pods as a controller does: through the webhook, and again if it is denied."""

    def __init__(self, server: SimulatedServer) -> None:
        self._server = server
        self._loop = asyncio.get_running_loop()
        api: Any = SimulatedApi(server, "webhook")
        reflector = partial(Reflector, random=Random("webhook").random)
        link = LiveCluster(api, reflector=reflector, monotonic=self._loop.time)
        self._service = PlanningService(
            _SETTINGS, link, clock=server.wall_s, monotonic=self._loop.time
        )
        self._admission = Admission(
            planner=self._service.planner.plan_at_admission,
            prepared=self._service.wait_until_prepared,
            not_ready_reason=self._service.not_ready_reason,
            clock=server.wall_s,
            headroom_ratio=_SETTINGS.ceiling_headroom_ratio,
            defaults=pod_defaults(_SETTINGS),
        )
        self._running = self._loop.create_task(self._run())
        self._creations: set[asyncio.Task[None]] = set()

    async def _run(self) -> None:
        async with self._service.running():
            await asyncio.Event().wait()

    @property
    def is_busy(self) -> bool:
        return bool(self._creations)

    def create(self, pod: Raw) -> None:
        """Begin to create a pod; a name that exists ends it."""
        task = self._loop.create_task(self._create(pod))
        self._creations.add(task)
        task.add_done_callback(self._creations.discard)

    async def _create(self, pod: Raw) -> None:
        while True:
            with suppress(StatusError):
                pod = await self.admit(pod)
                break
            await asyncio.sleep(RETRY_S)
        with suppress(StatusError):
            self._server.store.create(PODS, pod)

    async def admit(self, pod: Raw) -> Raw:
        """Return a pod as the webhook changes it.

        Raises:
            StatusError: it is denied.
        """
        request = AdmissionRequest(
            uid="review",
            kind=GroupVersionKind(version="v1", kind="Pod"),
            operation="CREATE",
            namespace=pod["metadata"]["namespace"],
            object=pod,
        )
        answer = await self._admission.admit(request)
        if not answer.allowed:
            assert answer.status is not None
            raise StatusError(answer.status.code, answer.status.reason, answer.status.message)
        for operation in json.loads(b64decode(answer.patch or "") or "[]"):
            pod = pod | {operation["path"].removeprefix("/"): operation["value"]}
        return pod
