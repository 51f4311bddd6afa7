"""Objects of an API server in memory: versions, changes and watches. No I/O."""

import asyncio
import json
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from itertools import count
from typing import Any, NamedTuple
from uuid import uuid4

Raw = dict[str, Any]
Key = tuple[str, str]
"""Namespace, empty for objects of the cluster, and name."""
Matches = Callable[[Raw], bool]
_HISTORY = 10_000  # changes from which a watch can continue


class StatusError(Exception):
    """An answer of the API server that is not success.

    Attributes:
        status: HTTP status.
        reason: reason in Kubernetes' words.
    """

    def __init__(self, status: int, reason: str, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.reason = reason


class ObjectChange(NamedTuple):
    """A change of one object; ``before`` is None at its creation, ``after`` at its deletion."""

    version: int
    before: Raw | None
    after: Raw | None

    def event(self, matches: Matches) -> Raw | None:
        """Return the event for a watch of the matching objects; None if it shows nothing of it.

        For such a watch an object that begins to match is new; one that ends to match is deleted.
        """
        was_there = self.before is not None and matches(self.before)
        if self.after is not None and matches(self.after):
            return {"type": "MODIFIED" if was_there else "ADDED", "object": self.after}
        if was_there:
            last = self.after or self.before or {}
            metadata = last["metadata"] | {"resourceVersion": str(self.version)}
            return {"type": "DELETED", "object": last | {"metadata": metadata}}
        return None


class Watch:
    """Changes of one collection from now on."""

    def __init__(self) -> None:
        self._changes: deque[ObjectChange] = deque()
        self._arrived = asyncio.Event()

    def add(self, change: ObjectChange) -> None:
        """Add a change."""
        self._changes.append(change)
        self._arrived.set()

    def __aiter__(self) -> AsyncIterator[ObjectChange]:
        return self

    async def __anext__(self) -> ObjectChange:
        """Wait for the next change; nothing is lost if the wait is cancelled."""
        while not self._changes:
            self._arrived.clear()
            await self._arrived.wait()
        return self._changes.popleft()

    def drain(self) -> Iterator[ObjectChange]:
        """Yield the changes so far, without waiting."""
        while self._changes:
            yield self._changes.popleft()


class Collection:
    """Objects of one resource, and their last changes."""

    def __init__(self, kind: str, api_version: str) -> None:
        self.kind = kind
        self.api_version = api_version
        self.objects: dict[Key, Raw] = {}
        self.history: deque[ObjectChange] = deque(maxlen=_HISTORY)
        self.watches: dict[Watch, None] = {}  # a set in order
        self.forgotten = 0  # the version of the last change that is not in the history


class ObjectStore:
    """Objects by resource; a resource is named by its path, e.g. ``/api/v1/pods``.

    Objects are replaced, never changed in place, so that a reader may keep them.

    Attributes:
        version: version of the last change.
        on_change: function that is called after each change, with the resource's path.

    Args:
        kinds: resources by path, each with its kind and its apiVersion.
        clock: clock in seconds since the epoch, for ages.
        new_uid: function that returns the UID of an object that is created.
    """

    def __init__(
        self,
        kinds: Mapping[str, tuple[str, str]],
        *,
        clock: Callable[[], float] = time.time,
        new_uid: Callable[[], str] = lambda: str(uuid4()),
    ) -> None:
        self.version = 1
        self.on_change: Callable[[str, ObjectChange], None] = lambda _path, _change: None
        self._clock = clock
        self._new_uid = new_uid
        self._collections = {path: Collection(*kind) for path, kind in kinds.items()}
        self._numbers = count(1)

    def collection(self, path: str) -> Collection:
        """Return the objects of a resource.

        Raises:
            StatusError: 404; there is no such resource.
        """
        try:
            return self._collections[path]
        except KeyError:
            message = "the server could not find the requested resource"
            raise StatusError(404, "NotFound", message) from None

    def get(self, path: str, key: Key) -> Raw:
        """Return an object.

        Raises:
            StatusError: 404; it does not exist.
        """
        try:
            return self.collection(path).objects[key]
        except KeyError:
            raise StatusError(404, "NotFound", f"{_named(path, key)} not found") from None

    def create(self, path: str, item: Raw) -> Raw:
        """Store a new object with a UID and an age; return it.

        Raises:
            StatusError: 409; the name exists. 422: it has no name.
        """
        collection = self.collection(path)
        metadata = dict(item.get("metadata") or {})
        if not metadata.get("name") and metadata.get("generateName"):
            metadata["name"] = f"{metadata['generateName']}{next(self._numbers):05d}"
        key = metadata.get("namespace") or "", metadata.get("name") or ""
        if not key[1]:
            raise StatusError(422, "Invalid", "metadata.name: name or generateName is required")
        if key in collection.objects:
            raise StatusError(409, "AlreadyExists", f"{_named(path, key)} already exists")
        metadata |= {
            "uid": self._new_uid(),
            "creationTimestamp": self.timestamp(),
            "generation": 1,
        }
        kinds = {"apiVersion": collection.api_version, "kind": collection.kind}
        return self._store(path, key, {**item, **kinds, "metadata": metadata})

    def put(self, path: str, item: Raw) -> Raw:
        """Store an object as it is, in place of one of its name if there is one; return it."""
        metadata = item["metadata"]
        return self._store(path, (metadata.get("namespace", ""), metadata["name"]), item)

    def patch(self, path: str, key: Key, change: Raw) -> Raw:
        """Merge a JSON merge patch (RFC 7386) into an object; return it.

        Raises:
            StatusError: 404; it does not exist. 409: the patch names another version or UID.
        """
        before = self.get(path, key)
        for field in ("resourceVersion", "uid"):
            expected = (change.get("metadata") or {}).get(field)
            if expected is not None and expected != before["metadata"][field]:
                raise StatusError(409, "Conflict", f"{key[1]}: {field} is not {expected} any more")
        return self._store(path, key, merged(before, change))

    def delete(self, path: str, key: Key) -> Raw:
        """Remove an object; return its last state.

        Raises:
            StatusError: 404; it does not exist.
        """
        collection, before = self.collection(path), self.get(path, key)
        del collection.objects[key]
        self._report(path, before, None)
        return before

    def list(self, path: str, matches: Matches = lambda _: True) -> list[Raw]:
        """Return all matching objects of a resource."""
        return [item for item in self.collection(path).objects.values() if matches(item)]

    @contextmanager
    def watching(self, path: str, since: int | None = None) -> Iterator[Watch]:
        """Follow a resource's changes after a version, or from now on.

        Raises:
            StatusError: 410; the changes after that version are discarded.
        """
        collection = self.collection(path)
        watch = Watch()
        if since is not None:
            if since < collection.forgotten:
                raise StatusError(410, "Expired", f"too old resource version: {since}")
            for change in collection.history:
                if change.version > since:
                    watch.add(change)
        collection.watches[watch] = None
        try:
            yield watch
        finally:
            del collection.watches[watch]

    def compact(self) -> None:
        """Discard all past changes, as etcd does."""
        for collection in self._collections.values():
            collection.history.clear()
            collection.forgotten = self.version

    def timestamp(self, after_s: float = 0.0) -> str:
        """Return the present time, or a later one, as Kubernetes writes it."""
        moment = datetime.fromtimestamp(self._clock() + after_s, UTC)
        return moment.strftime("%Y-%m-%dT%H:%M:%SZ")

    def _store(self, path: str, key: Key, item: Raw) -> Raw:
        objects = self._collections[path].objects
        before = objects.get(key)
        stored: Raw = json.loads(json.dumps(item))
        stored["metadata"]["resourceVersion"] = str(self.version + 1)
        objects[key] = stored
        self._report(path, before, stored)
        return stored

    def _report(self, path: str, before: Raw | None, after: Raw | None) -> None:
        collection = self._collections[path]
        self.version += 1
        change = ObjectChange(self.version, before, after)
        if len(collection.history) == _HISTORY:
            collection.forgotten = collection.history[0].version
        collection.history.append(change)
        for watch in collection.watches:
            watch.add(change)
        self.on_change(path, change)


def _named(path: str, key: Key) -> str:
    """Name an object as the real server does."""
    return f'{path.rpartition("/")[2]} "{key[1]}"'


def merged(target: Any, change: Any) -> Any:
    """Return the target with a JSON merge patch; neither is changed."""
    if not isinstance(change, dict):
        return change
    result = dict(target) if isinstance(target, dict) else {}
    for name, value in change.items():
        if value is None:
            result.pop(name, None)
        else:
            result[name] = merged(result.get(name), value)
    return result
