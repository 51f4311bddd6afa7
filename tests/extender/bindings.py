"""Binds against an API server, and a watch whose events the test delivers."""

import json
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

from aiohttp import web

from scheduler.cluster.api import Api, connect
from scheduler.cluster.link import LiveCluster
from scheduler.cluster.object_list import list_all
from scheduler.cluster.resource import PODS, trim_pod
from scheduler.extender.bind_ownership import BindOwnership
from scheduler.extender.binding import Binder
from scheduler.extender.binding_voider import BindingVoider
from scheduler.extender.scheduling import Scheduler
from scheduler.extender.wire import ExtenderBindingArgs
from scheduler.model.documents import Workflow, to_manifest
from scheduler.model.grant import Grant, grant_annotations
from scheduler.planning.metrics import Metrics
from scheduler.planning.pods import describe
from scheduler.planning.state import State
from scheduler.server.errors import RefusedError
from scheduler.settings import Settings
from tests.cluster.api_server import ApiServer, Fault, refuse
from tests.cluster.factories import kubeconfig_for
from tests.extender.factories import DOCUMENTS, node, pod
from tests.extender.harness import Clock

TTL_S = 75.0
Raw = dict[str, Any]


class UnwatchedCluster(LiveCluster):
    """A cluster whose watches the test plays: lists alone come from its server."""

    def __init__(self, api: Api, state: State, **options: Any) -> None:
        super().__init__(api, **options)
        self._state = state

    async def relist_pods(self) -> None:
        pods, _ = await list_all(self._api, PODS, selectors={}, page=500)
        self._state.pods.replace(pods)


class BindingHarness:
    """Two nodes of one GPU, a binder, and its API server."""

    def __init__(self, server: ApiServer, state: State, link: LiveCluster) -> None:
        self.server = server
        self.state = state
        self.scheduler = Scheduler(state)
        voider = BindingVoider(state, link)
        self.ownership = BindOwnership(
            link.owner_lease, voider.take_over, monotonic=state.monotonic
        )
        self.binder = Binder(state, self.scheduler, link, self.ownership, voider)

    def create(self, function: str | None = "whole", *, observed: bool = True) -> Raw:
        """Create a pending pod, and deliver its event."""
        stored = self.server.put(PODS, pod(function))
        if observed:
            self.hears(stored)
        return stored

    def hears(self, raw: Raw) -> None:
        """Deliver the event of the pod as it is now."""
        self.state.pods.upsert(trim_pod(json.loads(json.dumps(self.stored(raw)))))

    def stored(self, raw: Raw) -> Raw:
        return self.server.pod(raw["metadata"]["name"])

    def changes(self, raw: Raw) -> None:
        """Change the pending pod, as kube-scheduler does when it writes a refusal to its status."""
        stored = self.stored(raw)
        attempt = stored["status"].get("attempt", 0) + 1
        self.server.put(PODS, {**stored, "status": {"phase": "Pending", "attempt": attempt}})

    def others_bind(
        self, raw: Raw, node: str, percent: int = 100, *, observed: bool = False
    ) -> None:
        """Another replica's Binding succeeds; ``observed``: the watch delivers it at once."""
        grant = Grant(f"GPU-{node}-0", percent, 4_000, 1, {"cpu": 1, "feasible": True})
        self.server.bind(
            "default",
            raw["metadata"]["name"],
            {
                "metadata": {
                    "name": raw["metadata"]["name"],
                    "uid": raw["metadata"]["uid"],
                    "annotations": grant_annotations(grant),
                },
                "target": {"name": node},
            },
        )
        if observed:
            self.hears(raw)

    @contextmanager
    def hurried(self) -> Iterator[None]:
        """Reduce the time of a call, so that a test can wait for its end."""
        usual = self.state.settings
        self.state.settings = usual.model_copy(update={"api_timeout_s": 1.0})
        yield
        self.state.settings = usual

    async def bind(self, raw: Raw, node: str) -> str:
        """Bind; return the reason of a refusal, or nothing."""
        metadata = raw["metadata"]
        try:
            await self.binder.bind(
                ExtenderBindingArgs(
                    PodName=metadata["name"],
                    PodNamespace="default",
                    PodUID=metadata["uid"],
                    Node=node,
                )
            )
        except RefusedError as error:
            return str(error)
        return ""

    async def lose(self, raw: Raw, node: str) -> None:
        """Bind without receiving the outcome; the Binding has not arrived."""
        path = f"pods/{raw['metadata']['name']}/binding"
        with self.hurried():
            self.server.fault("POST", path, refuse(503, "ServiceUnavailable", "busy"), times=20)
            assert await self.bind(raw, node)
        assert self.held(raw) == (node, "assumed")
        self.server.forgive()
        self.server.requests.clear()

    def held(self, raw: Raw) -> tuple[str, str] | None:
        """Node of the reservation, and its state."""
        hold = self.state.ledger.reservation(raw["metadata"]["uid"])
        return hold and (hold.node, "confirmed" if hold.confirmed else "assumed")

    def counted(self) -> dict[str, float]:
        """Count the outcomes of bind calls: each has one."""
        [family] = [f for f in self.state.metrics.registry.collect() if f.name == "esg_bind"]
        totals = [s for s in family.samples if s.name == "esg_bind_total" and s.value]
        return {sample.labels["result"]: sample.value for sample in totals}

    def offered(self, function: str = "tenth") -> list[str]:
        """Feasible nodes of another pod."""
        return list(self.scheduler.schedule(describe(pod(function)), ["n1", "n2"]).feasible)

    def before(self, act: Callable[[], None]) -> Fault:
        """A fault that runs a function, then answers as usual."""

        async def fault(_request: web.Request) -> None:
            act()

        return fault

    def outrun(self, raw: Raw, node: str, percent: int = 100) -> Fault:
        """A fault that answers as usual after another replica's Binding, seen by the watch."""
        return self.before(lambda: self.others_bind(raw, node, percent, observed=True))

    def outdated(self, raw: Raw, node: str) -> Fault:
        """A read that is answered late: the pod has been bound since, seen by the watch."""

        async def fault(_request: web.Request) -> web.Response:
            seen = web.json_response(self.stored(raw))
            self.others_bind(raw, node, observed=True)
            return seen

        return fault


@asynccontextmanager
async def binding_harness(
    folder: Path, *, wall: Clock, monotonic: Clock, **options: Any
) -> AsyncIterator[BindingHarness]:
    """Run an API server, and a binder with the nodes n1 and n2 and the settings of ``options``."""
    settings = Settings(assumed_ttl_s=TTL_S, **options)
    state = State(settings, Metrics(settings.prices), clock=wall, monotonic=monotonic)
    state.nodes.replace([node("n1"), node("n2")])
    state.documents.workflows.replace(to_manifest(d) for d in DOCUMENTS if isinstance(d, Workflow))
    state.documents.profiles.replace(
        to_manifest(d) for d in DOCUMENTS if not isinstance(d, Workflow)
    )
    server = ApiServer()
    await server.start()
    async with connect(kubeconfig_for(server.url, folder), timeout_s=30.0) as api:
        yield BindingHarness(server, state, LiveCluster(api))
    await server.stop()
