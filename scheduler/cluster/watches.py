"""Watches of several resources that depend on one another."""

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence

from scheduler.cluster.access_reviews import AccessReviews
from scheduler.cluster.api import Api
from scheduler.cluster.events import Recorder
from scheduler.cluster.leases import LeaseClient
from scheduler.cluster.pods import PodWriter
from scheduler.cluster.reflector import Handler, Reflector
from scheduler.cluster.reflector_group import ReflectorGroup
from scheduler.cluster.resource import Resource
from scheduler.cluster.status_writer import StatusWriter

Watched = Sequence[tuple[Resource, Handler]]


class Watches(ReflectorGroup):
    """Reflectors of resources; each begins after the first lists of those before it.

    Attributes:
        pods: client that creates and deletes pods.
        statuses: writes statuses of documents.
        reviews: client of token and access reviews.

    Args:
        reflector: factory of the reflectors.
        monotonic: clock of all waiting times, in seconds.
    """

    def __init__(
        self,
        api: Api,
        *,
        reflector: Callable[..., Reflector] = Reflector,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__()
        self.pods = PodWriter(api)
        self.events = Recorder(api, clock=monotonic)
        self.statuses = StatusWriter(api, self.events.record, monotonic=monotonic)
        self.reviews = AccessReviews(api)
        self._api = api
        self._reflector = reflector
        self._monotonic = monotonic

    def follow(self, watched: Watched) -> None:
        """Add resources and the receivers of their objects, before `run`."""
        self._reflectors += [
            self._reflector(self._api, resource, handler, clock=self._monotonic)
            for resource, handler in watched
        ]

    def leases(self, namespace: str, labels: Mapping[str, str]) -> LeaseClient:
        """Return a client of the Leases of a namespace, which creates them with labels."""
        return LeaseClient(self._api, namespace, labels)

    async def run(self) -> None:
        """Report changes to the handlers until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self.events.run(), name="events")
            for watch in self._reflectors:
                group.create_task(watch.run(), name=f"reflector {watch.resource.full_name}")
                await watch.synced.wait()
