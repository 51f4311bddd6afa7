"""Events on pods, nodes and documents, for `kubectl describe`; no function depends on them.

Written as core/v1 and not as events.k8s.io/v1: both are stored as one kind, but only a repetition
of the former may carry a newer message, and these messages contain numbers.
"""

import asyncio
import time
from collections import OrderedDict, deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Literal, Protocol
from uuid import uuid4

import structlog

from scheduler.cluster.api import Api, Raw
from scheduler.cluster.binding import pod_path
from scheduler.cluster.errors import ApiError, ClusterError
from scheduler.model.names import API_VERSION

log = structlog.get_logger(__name__)

COMPONENT = "esg-scheduler"
MESSAGE_MAX = 1024  # the API server's limit
QUEUE_MAX = 1024
RECENT_MAX = 4096
# Records of the same object and reason within this time, in seconds, are one event with a count.
WINDOW_S = 300.0
# A repetition is written at most this often, in seconds; skipped ones still count.
REPEAT_S = 60.0
# Writes per second, so that events never compete with binds for the API server.
RATE = 10.0
BURST = 25.0
TIMEOUT_S = 5.0

EventType = Literal["Normal", "Warning"]


@dataclass(frozen=True, slots=True)
class Reference:
    """The object of an event."""

    kind: str
    name: str
    namespace: str = ""
    uid: str = ""

    @classmethod
    def pod(cls, namespace: str, name: str, uid: str) -> "Reference":
        """Refer to a pod."""
        return cls("Pod", name, namespace, uid)

    @classmethod
    def node(cls, name: str) -> "Reference":
        """Refer to a node. Its UID is its name, like the kubelet's: `kubectl describe` needs it."""
        return cls("Node", name, "", name)

    @classmethod
    def workflow(cls, namespace: str, name: str, uid: str) -> "Reference":
        """Refer to a Workflow."""
        return cls("Workflow", name, namespace, uid)

    @classmethod
    def function_server(cls, namespace: str, name: str, uid: str) -> "Reference":
        """Refer to a FunctionServer."""
        return cls("FunctionServer", name, namespace, uid)


class RecordEvent(Protocol):
    """Records an Event, as `Recorder.record`; returns at once."""

    def __call__(
        self,
        reference: Reference,
        *,
        type: EventType,  # noqa: A002 - Kubernetes' name for it
        reason: str,
        message: str,
    ) -> None: ...


@dataclass(slots=True)
class _RecentEvent:
    """A recent event and its repetitions."""

    reference: Reference
    type: EventType
    reason: str
    message: str
    since_s: float
    count: int = 1
    name: str = ""  # of the Event object, once written
    written_s: float = 0.0
    queued: bool = False

    @property
    def key(self) -> tuple[Reference, str]:
        return self.reference, self.reason


class Recorder:
    """Writes events in the background; under load it drops some.

    Attributes:
        dropped: number of events that were never written: the queue was full, or the server
            refused.
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
        self._recent: OrderedDict[tuple[Reference, str], _RecentEvent] = OrderedDict()
        self._queue: deque[_RecentEvent] = deque()
        self._wake = asyncio.Event()
        self._tokens = BURST
        self._filled_s = clock()
        self._failing = False

    def record(self, reference: Reference, *, type: EventType, reason: str, message: str) -> None:  # noqa: A002
        """Record an event; returns at once and never raises.

        A repetition of reason and object within five minutes increments the existing event's count
        and replaces its message, at most once a minute.
        """
        if pod_path(reference.namespace or "default", reference.name) is None:
            self.dropped += 1  # an event cannot refer to an invalid name
            return
        now_s = self._clock()
        message = message[:MESSAGE_MAX]
        recent = self._recent.get((reference, reason))
        if recent is None or (now_s - recent.since_s > WINDOW_S and not recent.queued):
            if len(self._queue) >= QUEUE_MAX:
                self.dropped += 1
                return
            recent = _RecentEvent(reference, type, reason, message, since_s=now_s)
            self._recent[recent.key] = recent
        else:
            recent.count += 1
            recent.message = message
            if recent.queued or now_s - recent.written_s < REPEAT_S:
                return
            if len(self._queue) >= QUEUE_MAX:
                self.dropped += 1
                return
        recent.queued = True
        self._recent.move_to_end(recent.key)
        if len(self._recent) > RECENT_MAX:
            self._recent.popitem(last=False)
        self._queue.append(recent)
        self._wake.set()

    async def run(self) -> None:
        """Write recorded events until cancelled; drop those that the server refuses."""
        while True:
            while not self._queue:
                self._wake.clear()
                await self._wake.wait()
            await self._take_token()
            recent = self._queue.popleft()
            recent.queued = False
            recent.written_s = self._clock()
            try:
                await self._write(recent)
            except ClusterError as error:
                self.dropped += 1
                if not self._failing:
                    log.warning("events.failing", reason=str(error))
                self._failing = True
            else:
                self._failing = False

    async def _write(self, recent: _RecentEvent) -> None:
        # An event on an object without a namespace must be in this one.
        namespace = recent.reference.namespace or "default"
        path = f"/api/v1/namespaces/{namespace}/events"
        timestamp = datetime.fromtimestamp(self._wall_clock(), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        if recent.name:
            change = {"count": recent.count, "lastTimestamp": timestamp, "message": recent.message}
            try:
                await self._api.patch(f"{path}/{recent.name}", change, timeout_s=TIMEOUT_S)
            except ApiError as error:
                if error.status != 404:  # noqa: PLR2004 - the server deletes events after an hour
                    raise
            else:
                return
        name = f"{recent.reference.name[:200]}.{uuid4().hex[:16]}"
        event = _event(recent, name, namespace, timestamp)
        await self._api.post(path, event, timeout_s=TIMEOUT_S)
        recent.name = name

    async def _take_token(self) -> None:
        now_s = self._clock()
        self._tokens = min(BURST, self._tokens + (now_s - self._filled_s) * RATE) - 1
        self._filled_s = now_s
        if self._tokens < 0:  # the next token is spent in advance
            await self._sleep(-self._tokens / RATE)


def _event(recent: _RecentEvent, name: str, namespace: str, timestamp: str) -> Raw:
    reference = recent.reference
    api_version = "v1" if reference.kind in {"Pod", "Node"} else API_VERSION
    involved = {"apiVersion": api_version, "kind": reference.kind, "name": reference.name}
    if reference.namespace:
        involved["namespace"] = reference.namespace
    if reference.uid:
        involved["uid"] = reference.uid
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": name, "namespace": namespace},
        "involvedObject": involved,
        "type": recent.type,
        "reason": recent.reason,
        "message": recent.message,
        "count": recent.count,
        "firstTimestamp": timestamp,
        "lastTimestamp": timestamp,
        "source": {"component": COMPONENT},
        "reportingComponent": COMPONENT,
    }
