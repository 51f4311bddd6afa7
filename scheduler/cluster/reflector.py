"""A local picture of one kind of object, kept by list and watch.

After a first list the watch tells each change. The picture lags the server by a round trip, and by
more when the connection is in trouble: `Reflector.staleness_s` says by how much at most.
"""

import asyncio
import json
import random as random_module
import time
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Iterator
from contextlib import suppress
from typing import Any, Protocol

import structlog

from scheduler.cluster.api import Api, Raw
from scheduler.cluster.backoff import Backoff
from scheduler.cluster.errors import ApiError, ApiTimeoutError, ClusterError
from scheduler.cluster.listing import list_all
from scheduler.cluster.resource import Resource

log = structlog.get_logger(__name__)

# How long the server is asked to keep a watch, in seconds: spread, so that the watches of many
# clients do not end together (client-go asks for 5 to 10 minutes for the same reason).
WATCH_S = (240.0, 480.0)
# The server's watch cache sends a bookmark about once a minute, but skips one now and then (a quiet
# v1.34 was seen to be silent for 119 s). After two of them a new watch is asked for: it costs one
# request, and if the old one was dead, that shows. Two such silences are shorter than the 300 s for
# which a picture counts as fresh by default, for some silence is nobody's fault: the watch cache
# sends no bookmark before it has itself heard of the resource (dispatchEvents in
# k8s.io/apiserver/pkg/storage/cacher/cacher.go).
SILENCE_S = 140.0
# So many watches on end that open and bring no event and no bookmark: then the version that they
# begin at is in doubt, and a list draws the picture anew. A server whose etcd was restored to an
# older revision holds back every event up to that version, and calls nothing wrong; a proxy may
# swallow the stream; an object that cannot be decoded ends each watch with the same ERROR. One
# such watch is a restart or a cut connection, after which the next goes on where it was.
MUTE_MAX = 2
# A watch that ends sooner than this, in seconds, without a word has not worked.
SHORT_S = 1.0
PAGE = 500
GONE = 410


class Handler(Protocol):
    """Who is told. The objects are raw JSON as `Resource.trim` leaves it, and are the handler's.

    The methods must not block: the event loop waits for them.
    """

    def replace(self, items: Iterable[Raw]) -> None:
        """A whole list, to be swapped in at once: what is not in it is gone.

        ``items`` can be read once; each is let go of as it is read. The list is of the moment when
        it was begun, perhaps seconds ago, so what this process wrote since then may be missing
        from it: a reservation that no event has confirmed yet must outlive a `replace`. An
        exception makes the reflector list anew, after a pause.
        """

    def upsert(self, item: Raw) -> None:
        """This object is new, or is now so. It may come twice."""

    def delete(self, item: Raw) -> None:
        """This object is gone; ``item`` is its last state."""


class Reflector:
    """Keeps ``handler`` told of all objects of one resource, for as long as `run` runs.

    Attributes:
        synced: set once the first list has been handed over.
        trouble: what is wrong now, in a sentence; None while the watch stands. After
            `MUTE_MAX` watches that stood and brought nothing, one must bring something.

    Args:
        api: the API server.
        resource: what to list and watch.
        handler: who is told.
        clock: monotonic seconds.
        random: numbers in [0, 1), for jitter; by default from a generator of its own.
        sleep: waits seconds.
        page: objects a page of a list. A page is parsed in one turn of the event loop.
        watch_s: shortest and longest time that a watch is asked to last, seconds.
        silence_s: the longest pause that is believed to be a quiet server, seconds.
        label_selector: only objects that match, if given.
        field_selector: the same, by fields.
    """

    def __init__(  # noqa: PLR0913
        self,
        api: Api,
        resource: Resource,
        handler: Handler,
        *,
        clock: Callable[[], float] = time.monotonic,
        random: Callable[[], float] | None = None,
        sleep: Callable[[float], Awaitable[Any]] = asyncio.sleep,
        page: int = PAGE,
        watch_s: tuple[float, float] = WATCH_S,
        silence_s: float = SILENCE_S,
        label_selector: str | None = None,
        field_selector: str | None = None,
    ) -> None:
        self.resource = resource
        self.synced = asyncio.Event()
        self.trouble: str | None = None
        self._api = api
        self._handler = handler
        self._clock = clock
        self._random = random or random_module.Random().random  # noqa: S311
        self._sleep = sleep
        self._page = page
        self._watch_s = watch_s
        self._silence_s = silence_s
        self._selectors = {
            key: value
            for key, value in (
                ("labelSelector", label_selector),
                ("fieldSelector", field_selector),
            )
            if value
        }
        self._backoff = Backoff(random=self._random)
        self._heard = clock()
        self._trouble_since = 0.0
        self._version: str | None = None  # what has been seen; None: a list is due
        self._mute = 0  # watches on end that were opened and brought nothing
        self._in_doubt = False  # `MUTE_MAX` of them have been, and none has brought anything since

    def staleness_s(self) -> float:
        """Seconds since the server was last heard on this resource.

        Any event, bookmark or page of a list counts; before the first, the time since this
        reflector was made. A quiet watch is heard by its bookmarks, each minute or two, so up to
        130 s mean nothing; after `SILENCE_S` a new watch is asked for, and after `MUTE_MAX` of them
        a list.
        """
        return self._clock() - self._heard

    async def run(self) -> None:
        """List and watch until cancelled; troubles are waited out, never raised."""
        while True:
            if self._version is not None and self._mute >= MUTE_MAX:
                self._doubt()
            try:
                if self._version is None:
                    await self._list()
                worked = await self._watch()
            except ClusterError as error:
                if isinstance(error, ApiError) and error.status == GONE:
                    self._version = None
                    log.info("reflector.relisting", resource=self.resource.full_name)
                else:
                    self._failed(self._explain(error))
                asked_s = error.retry_after_s if isinstance(error, ApiError) else None
                await self._sleep(max(self._backoff.next_s(), asked_s or 0.0))
            except Exception as error:  # noqa: BLE001 - the service outlives it
                # An answer that makes no sense, or a handler that cannot take a whole list: the
                # picture is in doubt, so it is drawn anew.
                self._version = None
                self._failed(f"{type(error).__name__}: {error}", exc_info=error)
                await self._sleep(self._backoff.next_s())
            else:
                if not worked:
                    await self._sleep(self._backoff.next_s())

    async def _list(self) -> None:
        listed, version = await list_all(
            self._api,
            self.resource,
            selectors=self._selectors,
            page=self._page,
            heard=self._hear,
        )
        count = len(listed)
        self._handler.replace(_drain(listed))
        self._version = version
        self._mute = 0
        if not self.synced.is_set():
            log.info("reflector.synced", resource=self.resource.full_name, objects=count)
        self.synced.set()

    async def _watch(self) -> bool:
        """Follow the changes until the watch ends or falls silent; False if it ended at once."""
        shortest_s, longest_s = self._watch_s
        lasts_s = shortest_s + (longest_s - shortest_s) * self._random()
        query = {
            **self._selectors,
            "watch": "true",
            "allowWatchBookmarks": "true",
            "resourceVersion": self._version,
            "timeoutSeconds": max(1, round(lasts_s)),
        }
        began = self._clock()
        told = False
        async with self._api.stream(
            self.resource.path, query=query, silence_s=self._silence_s
        ) as lines:
            self._mute += 1
            if not self._in_doubt:
                self._recovered()
            with suppress(ApiTimeoutError):  # silence, which a new watch will explain
                async for line in lines:
                    self._take(json.loads(line))
                    self._hear()
                    if not told:
                        told = True
                        self._mute = 0
                        self._in_doubt = False
                        self._backoff.reset()
                        self._recovered()
        if not told and self._clock() - began < SHORT_S:
            return False
        self._backoff.reset()
        return True

    def _doubt(self) -> None:
        """Watches bring nothing: what they begin at is forgotten, so that a list comes next."""
        self._in_doubt = True
        if self.trouble is None:
            self._failed(f"{self._mute} watches on end brought neither an event nor a bookmark")
        self._version = None

    def _hear(self) -> None:
        self._heard = self._clock()

    def _take(self, event: Raw) -> None:
        kind, item = event["type"], event["object"]
        if kind == "ERROR":
            raise ApiError(
                item.get("code") or 0, item.get("reason") or "Unknown", item.get("message") or ""
            )
        version = item["metadata"]["resourceVersion"]
        if kind != "BOOKMARK":
            self._tell(self._handler.delete if kind == "DELETED" else self._handler.upsert, item)
        self._version = version

    def _tell(self, method: Callable[[Raw], None], item: Raw) -> None:
        try:
            method(self.resource.trim(item))
        except Exception:
            metadata = item["metadata"]
            log.exception(
                "reflector.handler_failed",
                resource=self.resource.full_name,
                namespace=metadata.get("namespace"),
                name=metadata.get("name"),
            )

    def _failed(self, trouble: str, **details: Any) -> None:
        if self.trouble is None:
            self._trouble_since = self._clock()
        if trouble != self.trouble:
            log.warning(
                "reflector.failing", resource=self.resource.full_name, reason=trouble, **details
            )
        self.trouble = trouble

    def _recovered(self) -> None:
        if self.trouble is not None:
            log.info(
                "reflector.recovered",
                resource=self.resource.full_name,
                after_s=round(self._clock() - self._trouble_since, 3),
            )
        self.trouble = None

    def _explain(self, error: ClusterError) -> str:
        if isinstance(error, ApiError) and error.status == 404 and self.resource.group:  # noqa: PLR2004
            return (
                f"{self.resource.kind} CRD is not installed: kubectl apply -f deploy/crds/ "
                "(or `esg crds | kubectl apply -f -`)"
            )
        if isinstance(error, ApiError) and error.status == 403:  # noqa: PLR2004
            verb = "list" if self._version is None else "watch"
            return (
                f"RBAC: may not {verb} {self.resource.full_name} in all namespaces; grant the "
                f"verbs list and watch on it in a ClusterRole ({error.message})"
            )
        return str(error)


def _drain(items: deque[Raw]) -> Iterator[Raw]:
    while items:
        yield items.popleft()
