"""Writer of documents' status: one write for a change, over the version that was read.

A write names that version, so it changes nothing where somebody else has written in between, and
keeps the conditions of others. What is written is compared with what the watch reports, so a new
process goes on where the last one ended.
"""

import asyncio
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from http import HTTPStatus
from typing import Any

import structlog

from scheduler.cluster.api import Api, Raw
from scheduler.cluster.errors import ApiError, ClusterError
from scheduler.cluster.events import EventType, RecordEvent, Reference
from scheduler.cluster.resource import Resource
from scheduler.model.status import ConditionState, ObservedDocument

log = structlog.get_logger(__name__)
RETRY_S = 60.0  # after a write of the same object failed
FIELDS_S = 10.0  # between two writes that change other fields than conditions
TIMEOUT_S = 5.0
_SLICE = 20  # documents that are compared in one turn of the event loop
_WITHOUT_EVENT = frozenset({"Used"})  # a profile that nobody uses is no fault


@dataclass(frozen=True, slots=True, kw_only=True)
class DesiredStatus:
    """Status that a document should have.

    Attributes:
        resource, namespace, name: the document.
        observed: identity and status as the watch reported them last.
        conditions: states by type of condition; others stay as they are.
        fields: further fields of the status.
    """

    resource: Resource
    namespace: str
    name: str
    observed: ObservedDocument
    conditions: Mapping[str, ConditionState]
    fields: Mapping[str, Any]

    @property
    def path(self) -> str:
        """Path of the document."""
        return f"{self.resource.within(self.namespace).path}/{self.name}"

    def changed_conditions(self) -> dict[str, ConditionState]:
        """Conditions that the document does not have, or has for an earlier spec."""
        observed = self.observed
        return {
            kind: state
            for kind, state in self.conditions.items()
            if observed.state(kind) != state or not observed.is_current(kind)
        }

    def changed_fields(self) -> dict[str, Any]:
        """Return the further fields with another value than the document has."""
        before = self.observed.fields
        return {name: value for name, value in self.fields.items() if before.get(name) != value}


class StatusWriter:
    """Writes statuses, and an Event for each condition that becomes false, or true again.

    Args:
        api: API server.
        record_event: records an Event.
        monotonic: clock of waiting times, seconds.
        wall_clock: seconds since the epoch.
    """

    def __init__(
        self,
        api: Api,
        record_event: RecordEvent,
        *,
        monotonic: Callable[[], float] = time.monotonic,
        wall_clock: Callable[[], float] = time.time,
    ) -> None:
        self._api = api
        self._record_event = record_event
        self._monotonic = monotonic
        self._wall_clock = wall_clock
        self._written: dict[str, tuple[str, float]] = {}  # version that was replaced, and time
        self._retry_s: dict[str, float] = {}

    async def write(self, desired: DesiredStatus) -> bool:
        """Write a status if it differs from the observed one; return false if that failed."""
        path, now_s = desired.path, self._monotonic()
        conditions, fields = desired.changed_conditions(), desired.changed_fields()
        version, written_s = self._written.get(path, ("", -FIELDS_S))
        is_early = not conditions and now_s < written_s + FIELDS_S
        is_unseen = version == desired.observed.version  # the watch has not reported that write
        if not (conditions or fields) or is_early or is_unseen:
            return True
        if now_s < self._retry_s.get(path, 0.0):
            return True
        body = self._patch(desired, conditions, fields)
        try:
            await self._api.patch(f"{path}/status", body, timeout_s=TIMEOUT_S)
        except ApiError as error:
            if error.status == HTTPStatus.CONFLICT:  # the watch reports a newer version soon
                return True
            return self._failed(path, error)
        except ClusterError as error:
            return self._failed(path, error)
        self._retry_s.pop(path, None)
        self._written[path] = desired.observed.version, now_s
        self._record_events(desired, conditions)
        return True

    async def write_all(self, statuses: Iterable[DesiredStatus]) -> bool:
        """Write statuses until a write fails; the next call has the others.

        Return true if the watch reports all of them as they should be.

        Args:
            statuses: statuses of all documents that this process writes, each computed when its
                turn comes.
        """
        paths = set()
        is_settled = True
        for number, desired in enumerate(statuses, start=1):
            paths.add(desired.path)
            if desired.changed_conditions() or desired.changed_fields():
                is_settled = False
                if not await self.write(desired):
                    return False
            if number % _SLICE == 0:
                await asyncio.sleep(0)
        for by_path in (self._written, self._retry_s):
            for path in by_path.keys() - paths:
                del by_path[path]
        return is_settled

    def _failed(self, path: str, error: ClusterError) -> bool:
        log.warning("status is not written", path=path, error=str(error), retry_s=RETRY_S)
        self._retry_s[path] = self._monotonic() + RETRY_S
        return False

    def _patch(
        self,
        desired: DesiredStatus,
        conditions: Mapping[str, ConditionState],
        fields: Mapping[str, Any],
    ) -> Raw:
        observed = desired.observed
        by_type = dict(observed.conditions)
        now = datetime.fromtimestamp(self._wall_clock(), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        for kind, state in conditions.items():
            before = by_type.get(kind)
            is_same = before is not None and before["status"] == state.status
            by_type[kind] = {
                "type": kind,
                "status": state.status,
                "observedGeneration": observed.generation,
                "lastTransitionTime": before["lastTransitionTime"] if before and is_same else now,
                "reason": state.reason,
                "message": state.message,
            }
        status: Raw = dict(fields)
        if conditions:
            status["conditions"] = list(by_type.values())
        metadata = {"resourceVersion": observed.version, "uid": observed.uid}
        return {"metadata": metadata, "status": status}

    def _record_events(
        self, desired: DesiredStatus, conditions: Mapping[str, ConditionState]
    ) -> None:
        kind = desired.resource.kind
        uid = desired.observed.uid
        reference = Reference(kind, desired.name, desired.namespace, uid)
        for condition in conditions.keys() - _WITHOUT_EVENT:
            before, state = desired.observed.state(condition), conditions[condition]
            is_false = state.status == "False"
            was_false = before is not None and before.status == "False"
            is_news = not was_false or before is None or before.reason != state.reason
            if is_news if is_false else was_false:
                text = f"{condition}: {state.message}" if state.message else condition
                event_type: EventType = "Warning" if is_false else "Normal"
                self._record_event(reference, type=event_type, reason=state.reason, message=text)
