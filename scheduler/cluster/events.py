"""Events on pods and nodes: what `kubectl describe` shows, and nothing that anything depends on.

Written as core/v1 and not as events.k8s.io/v1: both are stored as one kind, but only of the former
may a repetition carry a newer message, and ours have numbers in them.
"""

import asyncio
import time
from collections import OrderedDict, deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Literal
from uuid import uuid4

import structlog

from scheduler.cluster.api import Api, Raw
from scheduler.cluster.binding import pod_path
from scheduler.cluster.errors import ApiError, ClusterError

log = structlog.get_logger(__name__)

COMPONENT = "esg-scheduler"
MESSAGE_MAX = 1024  # the API server takes no longer note
WAITING_MAX = 1024
REMEMBERED_MAX = 4096
# The same object and reason within this time, in seconds, is one event with a count.
WINDOW_S = 300.0
# A repetition is written at most this often, in seconds; the count of those between is kept.
REPEAT_S = 60.0
# Writes a second, so that events never compete with binds for the API server.
RATE = 10.0
BURST = 25.0
TIMEOUT_S = 5.0

EventType = Literal["Normal", "Warning"]


@dataclass(frozen=True, slots=True)
class Reference:
    """The object that an event is about."""

    kind: Literal["Pod", "Node"]
    name: str
    namespace: str = ""
    uid: str = ""

    @classmethod
    def pod(cls, namespace: str, name: str, uid: str) -> "Reference":
        """A pod."""
        return cls("Pod", name, namespace, uid)

    @classmethod
    def node(cls, name: str) -> "Reference":
        """A node. Its UID is its name, as the kubelet has it: `kubectl describe` looks for that."""
        return cls("Node", name, "", name)


@dataclass(slots=True)
class _Known:
    """An event that was made a while ago, and what came since."""

    reference: Reference
    type: EventType
    reason: str
    message: str
    since: float
    count: int = 1
    name: str = ""  # of the Event object, once it has been written
    written: float = 0.0
    waiting: bool = False

    @property
    def key(self) -> tuple[Reference, str]:
        return self.reference, self.reason


class Recorder:
    """Writes events in the background; losing some under load is part of the deal.

    Attributes:
        dropped: events that were never written: too many waited, or the server refused.
    """

    def __init__(
        self,
        api: Api,
        *,
        clock: Callable[[], float] = time.monotonic,
        wall_clock: Callable[[], float] = time.time,
        sleep: Callable[[float], Awaitable[Any]] = asyncio.sleep,
    ) -> None:
        self.dropped = 0
        self._api = api
        self._clock = clock
        self._wall_clock = wall_clock
        self._sleep = sleep
        self._known: OrderedDict[tuple[Reference, str], _Known] = OrderedDict()
        self._waiting: deque[_Known] = deque()
        self._wake = asyncio.Event()
        self._tokens = BURST
        self._filled = clock()
        self._failing = False

    def record(self, reference: Reference, *, type: EventType, reason: str, message: str) -> None:  # noqa: A002
        """Note an event; returns at once and never raises.

        The same reason on the same object within five minutes counts up the event that is there,
        and replaces its message, at most once a minute.
        """
        if pod_path(reference.namespace or "default", reference.name) is None:
            self.dropped += 1  # no object has such a name, so no event can be about it
            return
        now = self._clock()
        message = message[:MESSAGE_MAX]
        known = self._known.get((reference, reason))
        if known is None or (now - known.since > WINDOW_S and not known.waiting):
            if len(self._waiting) >= WAITING_MAX:
                self.dropped += 1
                return
            known = _Known(reference, type, reason, message, since=now)
            self._known[known.key] = known
        else:
            known.count += 1
            known.message = message
            if known.waiting or now - known.written < REPEAT_S:
                return
            if len(self._waiting) >= WAITING_MAX:
                self.dropped += 1
                return
        known.waiting = True
        self._known.move_to_end(known.key)
        if len(self._known) > REMEMBERED_MAX:
            self._known.popitem(last=False)
        self._waiting.append(known)
        self._wake.set()

    async def run(self) -> None:
        """Write what is recorded until cancelled; what the server refuses is dropped."""
        while True:
            while not self._waiting:
                self._wake.clear()
                await self._wake.wait()
            await self._take_token()
            known = self._waiting.popleft()
            known.waiting = False
            known.written = self._clock()
            try:
                await self._write(known)
            except ClusterError as error:
                self.dropped += 1
                if not self._failing:
                    log.warning("events.failing", reason=str(error))
                self._failing = True
            else:
                self._failing = False

    async def _write(self, known: _Known) -> None:
        # An event about an object without a namespace must be in this one.
        namespace = known.reference.namespace or "default"
        path = f"/api/v1/namespaces/{namespace}/events"
        now = datetime.fromtimestamp(self._wall_clock(), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        if known.name:
            change = {"count": known.count, "lastTimestamp": now, "message": known.message}
            try:
                await self._api.patch(f"{path}/{known.name}", change, timeout_s=TIMEOUT_S)
            except ApiError as error:
                if error.status != 404:  # noqa: PLR2004 - the server forgets events after an hour
                    raise
            else:
                return
        name = f"{known.reference.name[:200]}.{uuid4().hex[:16]}"
        event = _event(known, name, namespace, now)
        await self._api.post(path, event, timeout_s=TIMEOUT_S)
        known.name = name

    async def _take_token(self) -> None:
        now = self._clock()
        self._tokens = min(BURST, self._tokens + (now - self._filled) * RATE) - 1
        self._filled = now
        if self._tokens < 0:  # taken in advance
            await self._sleep(-self._tokens / RATE)


def _event(known: _Known, name: str, namespace: str, now: str) -> Raw:
    reference = known.reference
    involved = {"apiVersion": "v1", "kind": reference.kind, "name": reference.name}
    if reference.namespace:
        involved["namespace"] = reference.namespace
    if reference.uid:
        involved["uid"] = reference.uid
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": name, "namespace": namespace},
        "involvedObject": involved,
        "type": known.type,
        "reason": known.reason,
        "message": known.message,
        "count": known.count,
        "firstTimestamp": now,
        "lastTimestamp": now,
        "source": {"component": COMPONENT},
        "reportingComponent": COMPONENT,
    }
