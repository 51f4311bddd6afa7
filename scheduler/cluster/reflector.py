"""A handler's local cache of one kind of object, filled by list and watch.

After a first list, the watch reports every change. The cache lags the server by a round trip, and
by more while the connection fails: `Reflector.staleness_s` gives the upper bound.
"""

import asyncio
import json
import random as random_module
import time
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Iterator
from contextlib import suppress
from typing import Any, Protocol, TypeVar

import structlog
from pydantic_core import from_json

from scheduler.cluster.api import Api, Raw
from scheduler.cluster.backoff import Backoff
from scheduler.cluster.errors import ApiError, ApiTimeoutError, ClusterError
from scheduler.cluster.object_list import list_all
from scheduler.cluster.resource import CLAIMS, NO_CLAIMS, Resource
from scheduler.model.names import GROUP

log = structlog.get_logger(__name__)

# Requested duration of a watch, in seconds: random, so that the watches of many clients do not end
# together (client-go requests 5 to 10 minutes for the same reason).
WATCH_S = (240.0, 480.0)
# The server's watch cache sends a bookmark about once a minute, but sometimes skips one (a quiet
# v1.34 was silent for 119 s). After two of them the reflector opens a new watch: that costs one
# request, and shows if the old one was dead. Two such silences are shorter than the 300 s for which
# a cache counts as fresh by default, because silence can be normal: the watch cache sends no
# bookmark before it has itself received an event of the resource (dispatchEvents in
# k8s.io/apiserver/pkg/storage/cacher/cacher.go).
SILENCE_S = 140.0
# After so many consecutive watches without an event or a bookmark, their start version is in doubt,
# and the reflector relists. A server whose etcd was restored to an older revision withholds every
# event up to that version without an error; a proxy may swallow the stream; an object that cannot
# be decoded ends every watch with the same ERROR. A single such watch is a restart or a cut
# connection, and the next one continues at the same version.
MUTE_MAX = 2
# A watch that ends earlier than this, in seconds, without a line has failed.
SHORT_S = 1.0
PAGE = 500
GONE = 410
Result = TypeVar("Result")


class Handler(Protocol):
    """Receiver of a reflector's objects: raw JSON, trimmed by `Resource.trim`, owned by it.

    The methods must not block: the event loop waits for them.
    """

    def replace(self, items: Iterable[Raw]) -> None:
        """Replace the whole cache by a list at once: objects not in it no longer exist.

        ``items`` can be read once; it releases objects as they are read. The list shows the state
        at its start, perhaps seconds ago, so it may lack this process's later writes: a reservation
        that no event has confirmed yet must survive a `replace`. After an exception the reflector
        pauses and relists.
        """

    def upsert(self, item: Raw) -> None:
        """Add or update an object. The same state may be passed twice."""

    def delete(self, item: Raw) -> None:
        """Delete an object; ``item`` is its last state."""


class Reflector:
    """Reports all objects of one resource to a handler while `run` runs.

    Attributes:
        synced: event that is set once the first list has been passed on.
        trouble: description of the current failure; None while the watch works. After `MUTE_MAX`
            watches that opened and reported nothing, a report must come first.

    Args:
        resource: resource to list and watch.
        handler: receiver of the objects.
        clock: monotonic clock, in seconds.
        random: source of numbers in [0, 1), for jitter; by default a generator of its own.
        sleep: function that waits, in seconds.
        page: number of objects per page of a list. A page is parsed in one turn of the event loop.
        watch_s: minimum and maximum requested duration of a watch, in seconds.
        silence_s: longest pause of a healthy server, in seconds.
        label_selector: selector of objects by their labels; None: all.
        field_selector: selector of objects by their fields; None: all.
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
                ("labelSelector", label_selector or resource.labels),
                ("fieldSelector", field_selector),
            )
            if value
        }
        self._backoff = Backoff(random=self._random)
        self._contact_s = clock()
        self._trouble_since_s = 0.0
        self._version: str | None = None  # the last version received; None: relist
        self._mute = 0  # consecutive watches that opened and reported nothing
        self._in_doubt = False  # there were `MUTE_MAX` of them, and no report since
        self._relists: list[asyncio.Future[None]] = []  # requested, and not passed on yet
        self._interruptible: asyncio.Timeout | None = None  # a watch or a pause

    def staleness_s(self) -> float:
        """Seconds since the server's last answer about this resource.

        Any event, bookmark or page of a list counts; before the first, this is the time since the
        reflector's construction. A quiet watch sends a bookmark every minute or two, so up to 130 s
        are normal; after `SILENCE_S` the reflector opens a new watch, and after `MUTE_MAX` of them
        it relists.
        """
        return self._clock() - self._contact_s

    async def relist(self) -> None:
        """Return when a list that began after this call has been passed on.

        The watch continues from it: events of a watch that was late or silent are not passed on.
        """
        relisted = asyncio.get_running_loop().create_future()
        self._relists.append(relisted)
        if self._interruptible is not None:
            self._interruptible.reschedule(asyncio.get_running_loop().time())
        await relisted

    async def run(self) -> None:
        """List and watch until cancelled; log failures and retry, never raise."""
        while True:
            pause_s = await self._cycle_s()
            if pause_s:
                await self._interrupted_by_relist(self._sleep(pause_s))

    async def _cycle_s(self) -> float:
        """List if needed, and watch until that ends; return the pause before the next try."""
        if self._version is not None and self._mute >= MUTE_MAX:
            self._doubt()
        try:
            if self._version is None or self._relists:
                await self._list()
            if self._relists:  # requested meanwhile
                return 0.0
            worked = await self._interrupted_by_relist(self._watch())
        except ClusterError as error:
            if isinstance(error, ApiError) and error.status == GONE:
                self._version = None
                log.info("reflector.relisting", resource=self.resource.full_name)
            else:
                self._failed(self._explain(error))
            retry_after_s = error.retry_after_s if isinstance(error, ApiError) else None
            return max(self._backoff.next_s(), retry_after_s or 0.0)
        except Exception as error:  # noqa: BLE001 - the service outlives it
            # An unreadable answer, or a handler that fails on a whole list: the cache may be
            # wrong, so relist.
            self._version = None
            self._failed(f"{type(error).__name__}: {error}", exc_info=error)
            return self._backoff.next_s()
        return self._backoff.next_s() if worked is False else 0.0

    async def _interrupted_by_relist(self, step: Awaitable[Result]) -> Result | None:
        """Run a step; return None if `relist` has ended it."""
        try:
            async with asyncio.timeout(None) as self._interruptible:
                return await step
        except TimeoutError:
            return None
        finally:
            self._interruptible = None

    async def _list(self) -> None:
        relists = list(self._relists)
        listed, version = await list_all(
            self._api,
            self.resource,
            selectors=self._selectors,
            page=self._page,
            on_page=self._note_contact,
        )
        count = len(listed)
        self._handler.replace(_drain(listed))
        self._version = version
        self._mute = 0
        if not self.synced.is_set():
            log.info("reflector.synced", resource=self.resource.full_name, objects=count)
        self.synced.set()
        for relisted in relists:
            self._relists.remove(relisted)
            if not relisted.done():  # its caller may have given up
                relisted.set_result(None)

    async def _watch(self) -> bool:
        """Follow a watch until it ends or falls silent; return false if it failed at once."""
        shortest_s, longest_s = self._watch_s
        duration_s = shortest_s + (longest_s - shortest_s) * self._random()
        query = {
            **self._selectors,
            "watch": "true",
            "allowWatchBookmarks": "true",
            "resourceVersion": self._version,
            "timeoutSeconds": max(1, round(duration_s)),
        }
        start_s = self._clock()
        reported = False
        async with self._api.stream(
            self.resource.path, query=query, silence_s=self._silence_s
        ) as lines:
            self._mute += 1
            if not self._in_doubt:
                self._recovered()
            with suppress(ApiTimeoutError):  # silence; the next watch shows its cause
                async for line in lines:
                    self._handle(_parse(line))
                    self._note_contact()
                    if not reported:
                        reported = True
                        self._mute = 0
                        self._in_doubt = False
                        self._backoff.reset()
                        self._recovered()
        if not reported and self._clock() - start_s < SHORT_S:
            return False
        self._backoff.reset()
        return True

    def _doubt(self) -> None:
        """Discard the version at which silent watches start, so that a list follows."""
        self._in_doubt = True
        if self.trouble is None:
            self._failed(f"{self._mute} consecutive watches got neither an event nor a bookmark")
        self._version = None

    def _note_contact(self) -> None:
        self._contact_s = self._clock()

    def _handle(self, event: Raw) -> None:
        kind, item = event["type"], event["object"]
        if kind == "ERROR":
            raise ApiError(
                item.get("code") or 0, item.get("reason") or "Unknown", item.get("message") or ""
            )
        version = item["metadata"]["resourceVersion"]
        if kind != "BOOKMARK":
            self._call_handler(
                self._handler.delete if kind == "DELETED" else self._handler.upsert, item
            )
        self._version = version

    def _call_handler(self, method: Callable[[Raw], None], item: Raw) -> None:
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
            self._trouble_since_s = self._clock()
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
                after_s=round(self._clock() - self._trouble_since_s, 3),
            )
        self.trouble = None

    def _explain(self, error: ClusterError) -> str:
        is_absent = isinstance(error, ApiError) and error.status == 404  # noqa: PLR2004
        if is_absent and self.resource.group == CLAIMS.group:
            return NO_CLAIMS
        if is_absent and self.resource.group == GROUP:
            return (
                f"{self.resource.kind} CRD is not installed: kubectl apply -f deploy/crds/ "
                "(or `esg crds | kubectl apply -f -`)"
            )
        if isinstance(error, ApiError) and error.status == 403:  # noqa: PLR2004
            verb = "list" if self._version is None else "watch"
            namespace = self.resource.namespace
            where = f"namespace {namespace}" if namespace else "all namespaces"
            role = "Role" if namespace else "ClusterRole"
            return (
                f"RBAC: may not {verb} {self.resource.full_name} in {where}; grant the verbs list "
                f"and watch on it in a {role} ({error.message})"
            )
        return str(error)


def _parse(line: bytes) -> Raw:
    """Parse an event; any JSON that the standard library reads."""
    try:
        return from_json(line)  # type: ignore[no-any-return] # in two thirds of the time
    except ValueError:  # a lone surrogate, or more than 200 levels
        return json.loads(line)  # type: ignore[no-any-return]


def _drain(items: deque[Raw]) -> Iterator[Raw]:
    while items:
        yield items.popleft()
