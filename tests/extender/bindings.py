"""Binds against an API server, and a watch that hears of them when a test lets it."""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from aiohttp import web

from scheduler.cluster.link import LiveCluster
from scheduler.cluster.resource import PODS, trim_pod
from scheduler.extender.binding import Binder
from scheduler.extender.scheduling import RefusedError, Scheduler
from scheduler.extender.state import State
from scheduler.extender.wire import ExtenderBindingArgs
from scheduler.model.pod import Grant, grant_annotations
from tests.cluster.api_server import ApiServer, Fault, refuse
from tests.extender.cases import pod

Raw = dict[str, Any]


class Story:
    """Two nodes of one GPU, a binder, and the API server that it asks."""

    def __init__(self, server: ApiServer, state: State, link: LiveCluster) -> None:
        self.server = server
        self.state = state
        self.decider = Scheduler(state)
        self.binder = Binder(state, self.decider, link)

    def create(self, function: str | None = "whole", *, heard: bool = True) -> Raw:
        """A pod that waits, which the watch has heard of."""
        made = self.server.put(PODS, pod(function))
        if heard:
            self.hears(made)
        return made

    def hears(self, raw: Raw) -> None:
        """The watch tells the pod as it is now."""
        self.state.pods.upsert(trim_pod(json.loads(json.dumps(self.stored(raw)))))

    def stored(self, raw: Raw) -> Raw:
        return self.server.collections[PODS.path].objects["default", raw["metadata"]["name"]]

    def others_bind(self, raw: Raw, node: str, percent: int = 100, *, heard: bool = False) -> None:
        """Another replica's Binding is done; ``heard``: the watch tells of it at once."""
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
        if heard:
            self.hears(raw)

    @contextmanager
    def hurried(self) -> Iterator[None]:
        """So little time for a call that a test can wait until it is over."""
        usual = self.state.settings
        self.state.settings = usual.model_copy(update={"api_timeout_s": 0.3})
        yield
        self.state.settings = usual

    async def bind(self, raw: Raw, node: str) -> str:
        """Why it is refused, or nothing."""
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
        """Bind, and never hear what became of it; it has not landed."""
        path = f"pods/{raw['metadata']['name']}/binding"
        with self.hurried():
            self.server.fault("POST", path, refuse(503, "ServiceUnavailable", "busy"), times=20)
            assert await self.bind(raw, node)
        assert self.held(raw) == (node, "assumed")
        self.server.forgive()
        self.server.requests.clear()

    def held(self, raw: Raw) -> tuple[str, str] | None:
        """Where the pod holds something, and on whose word."""
        hold = self.state.ledger.reservation(raw["metadata"]["uid"])
        return hold and (hold.node, "confirmed" if hold.confirmed else "assumed")

    def offered(self, function: str = "tenth") -> list[str]:
        """The nodes that another pod may go to."""
        return self.decider.filter(pod(function), ["n1", "n2"]).passing

    def before(self, act: Callable[[], None]) -> Fault:
        """A fault that answers as ever, after something has happened."""

        async def fault(_request: web.Request) -> None:
            act()

        return fault

    def outrun(self, raw: Raw, node: str, percent: int = 100) -> Fault:
        """A fault that answers as ever, after another replica's Binding, which the watch tells."""
        return self.before(lambda: self.others_bind(raw, node, percent, heard=True))

    def outdated(self, raw: Raw, node: str) -> Fault:
        """A read that is answered late: the pod has been bound since, and the watch says so."""

        async def fault(_request: web.Request) -> web.Response:
            seen = web.json_response(self.stored(raw))
            self.others_bind(raw, node, heard=True)
            return seen

        return fault
