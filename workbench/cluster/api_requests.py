"""Requests of an API server in memory: objects, lists in pages, watches. No I/O.

It answers as the real one where a client can notice a difference: versions, pages of one version,
watches with selectors, 410 for a discarded version, 409 for a second Binding.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple

from scheduler.model.names import API_VERSION
from scheduler.model.pod import has_ended
from workbench.cluster.object_store import (
    Key,
    Matches,
    ObjectChange,
    ObjectStore,
    Raw,
    StatusError,
    Watch,
)

CORE = "/api/v1"
NODES, PODS, EVENTS = f"{CORE}/nodes", f"{CORE}/pods", f"{CORE}/events"
DOCUMENTS = f"/apis/{API_VERSION}"
WORKFLOWS, FUNCTION_PROFILES, FUNCTION_SERVERS = (
    f"{DOCUMENTS}/{plural}" for plural in ("workflows", "functionprofiles", "functionservers")
)
LEASES = "/apis/coordination.k8s.io/v1/leases"
DISRUPTION_BUDGETS = "/apis/policy/v1/poddisruptionbudgets"
KINDS = {
    NODES: ("Node", "v1"),
    PODS: ("Pod", "v1"),
    EVENTS: ("Event", "v1"),
    LEASES: ("Lease", "coordination.k8s.io/v1"),
    DISRUPTION_BUDGETS: ("PodDisruptionBudget", "policy/v1"),
    WORKFLOWS: ("Workflow", API_VERSION),
    FUNCTION_PROFILES: ("FunctionProfile", API_VERSION),
    FUNCTION_SERVERS: ("FunctionServer", API_VERSION),
}

_GRACE_S = 30  # Kubernetes' default


class ApiTarget(NamedTuple):
    """A request's resource and object; empty where its path has none."""

    resource: str
    namespace: str = ""
    name: str = ""
    subresource: str = ""

    @property
    def key(self) -> Key:
        return self.namespace, self.name

    def is_new(self, resource: str) -> bool:
        """Return true if a POST to it creates an object of a resource."""
        return self.resource == resource and not self.name

    @classmethod
    def parse(cls, path: str) -> "ApiTarget":
        """Read a path, from ``/api`` or ``/apis`` on."""
        parts = path.strip("/").split("/")
        depth = 2 if parts[0] == "api" else 3  # /api/VERSION or /apis/GROUP/VERSION
        root, names = "/" + "/".join(parts[:depth]), parts[depth:]
        namespace = ""
        if len(names) > 2 and names[0] == "namespaces":  # noqa: PLR2004 - and then a resource
            _, namespace, *names = names
        plural, name, subresource, *_ = [*names, "", "", ""]
        return cls(f"{root}/{plural}", namespace, name, subresource)


class WatchStream:
    """Events of one watch: those of matching objects alone."""

    def __init__(self, changes: Watch, matches: Matches) -> None:
        self._changes = changes
        self._matches = matches

    async def next_event(self) -> Raw:
        """Wait for the next event; nothing is lost if the wait is cancelled."""
        while True:
            if (event := self._event(await anext(self._changes))) is not None:
                return event

    def events_so_far(self) -> list[Raw]:
        """Return the events of all changes so far, without waiting."""
        events = (self._event(change) for change in self._changes.drain())
        return [event for event in events if event is not None]

    def _event(self, change: ObjectChange) -> Raw | None:
        return change.event(self._matches)


class ApiRequests:
    """Answers of the API server over a store."""

    def __init__(self, store: ObjectStore) -> None:
        self.store = store
        self._pages: dict[str, tuple[str, list[Raw]]] = {}  # by token: the version, and the rest

    def object(self, method: str, target: ApiTarget, body: Raw) -> Raw:
        """Process a request for one object, or the creation of one.

        Raises:
            StatusError: the request is refused.
        """
        store, path, key = self.store, target.resource, target.key
        match method, target.subresource:
            case "POST", "" if not target.name:
                metadata = {**(body.get("metadata") or {})}
                if target.namespace:
                    metadata["namespace"] = target.namespace
                return store.create(path, {**body, "metadata": metadata})
            case "POST", "binding" if path == PODS:
                return self._bind(key, body)
            case "GET", "":
                return store.get(path, key)
            case "PATCH", "":
                return store.patch(path, key, body)
            case "PATCH", "status":
                return self._patch_status(path, key, body)
            case "DELETE", "":
                return self._delete(path, key, body)
        raise StatusError(405, "MethodNotAllowed", f"{method} is not supported here")

    def _patch_status(self, path: str, key: Key, body: Raw) -> Raw:
        """Merge a status; conditions of a pod replace those of the same type."""
        change = dict(body.get("status") or {})
        if path == PODS and "conditions" in change:
            conditions = (self.store.get(path, key).get("status") or {}).get("conditions") or ()
            by_type = {condition["type"]: condition for condition in conditions}
            by_type |= {condition["type"]: condition for condition in change["conditions"]}
            change["conditions"] = list(by_type.values())
        names = ("resourceVersion", "uid")
        metadata = body.get("metadata") or {}
        preconditions = {name: metadata[name] for name in names if name in metadata}
        return self.store.patch(path, key, {"metadata": preconditions, "status": change})

    def _bind(self, key: Key, binding: Raw) -> Raw:
        pod, metadata = self.store.get(PODS, key), binding["metadata"]
        if metadata.get("uid") not in (None, pod["metadata"]["uid"]):
            raise StatusError(409, "Conflict", f"Precondition failed: UID: {metadata['uid']}")
        if metadata.get("resourceVersion") not in (None, pod["metadata"]["resourceVersion"]):
            message = f"Precondition failed: resourceVersion: {metadata['resourceVersion']}"
            raise StatusError(409, "Conflict", message)
        if pod["metadata"].get("deletionTimestamp"):
            raise StatusError(409, "Conflict", f"pod {key[1]} is being deleted, cannot be assigned")
        if node := (pod.get("spec") or {}).get("nodeName"):
            raise StatusError(409, "Conflict", f"pod {key[1]} is already assigned to node {node}")
        change = {
            "metadata": {"annotations": metadata.get("annotations") or {}},
            "spec": {"nodeName": binding["target"]["name"]},
        }
        self.store.patch(PODS, key, change)
        return {"apiVersion": "v1", "kind": "Status", "status": "Success"}

    def _delete(self, path: str, key: Key, options: Raw) -> Raw:
        """Remove an object; a pod on a node terminates until its kubelet removes it.

        As on the real server, a pod that is removed at once gets a grace of 0 s first.
        """
        item = self.store.get(path, key)
        uid = (options.get("preconditions") or {}).get("uid")
        if uid not in (None, item["metadata"]["uid"]):
            raise StatusError(409, "Conflict", f"Precondition failed: UID: {uid}")
        spec = item.get("spec") or {}
        if path != PODS or not spec.get("nodeName"):
            return self.store.delete(path, key)
        grace_s = options.get("gracePeriodSeconds")
        if grace_s is None:
            grace_s = spec.get("terminationGracePeriodSeconds", _GRACE_S)
        if has_ended(item):
            grace_s = 0
        former_s = item["metadata"].get("deletionGracePeriodSeconds")
        if grace_s and former_s is not None and grace_s >= former_s:
            return item  # a grace period can only be made shorter
        terminating = {
            "deletionTimestamp": self.store.timestamp(grace_s),
            "deletionGracePeriodSeconds": grace_s,
        }
        changed = self.store.patch(path, key, {"metadata": terminating})
        return changed if grace_s else self.store.delete(path, key)

    # -- lists and watches ---------------------------------------------------------------------

    def list(self, target: ApiTarget, query: Mapping[str, Any]) -> Raw:
        """Return a list, or one page of it: all pages show the state at the first one.

        Raises:
            StatusError: 400, the selector cannot be read; 410, the next page is discarded.
        """
        collection = self.store.collection(target.resource)
        if token := query.get("continue"):
            if token not in self._pages:
                message = "The provided continue parameter is too old"
                raise StatusError(410, "Expired", message)
            version, items = self._pages.pop(token)
        else:
            version = str(self.store.version)
            items = self.store.list(target.resource, selected(target.namespace, query))
        metadata = {"resourceVersion": version}
        limit = int(query.get("limit") or 0)
        if limit and len(items) > limit:
            metadata["continue"] = token = f"{target.resource}@{version}-{len(items)}"
            self._pages[token] = version, items[limit:]
            items = items[:limit]
        return {
            "apiVersion": collection.api_version,
            "kind": f"{collection.kind}List",
            "metadata": metadata,
            "items": items,
        }

    @contextmanager
    def watching(self, target: ApiTarget, query: Mapping[str, Any]) -> Iterator[WatchStream]:
        """Follow a resource's changes after the version in the query, or from now on.

        Raises:
            StatusError: 400, as `list`; 410, the changes after that version are discarded.
        """
        since = int(query["resourceVersion"]) if query.get("resourceVersion") else None
        matches = selected(target.namespace, query)
        with self.store.watching(target.resource, since) as changes:
            yield WatchStream(changes, matches)

    def bookmark(self, resource: str) -> Raw:
        """Return a bookmark with the present version."""
        kind = self.store.collection(resource).kind
        version = {"resourceVersion": str(self.store.version)}
        return {"type": "BOOKMARK", "object": {"kind": kind, "metadata": version}}

    def compact(self) -> None:
        """Discard all past changes and the other pages of all lists, as etcd does."""
        self.store.compact()
        self._pages.clear()


def selected(namespace: str, query: Mapping[str, Any]) -> Matches:
    """Return the test for a namespace and for selectors: equalities, and labels that are not there.

    Raises:
        StatusError: 400; a selector is neither.
    """
    fields, labels = query.get("fieldSelector", ""), query.get("labelSelector", "")
    pairs = [_equality(part) for part in fields.split(",") if part]
    tests: list[tuple[tuple[str, ...], str | None]] = [
        (tuple(path.split(".")), value) for path, value in pairs
    ]
    for part in filter(None, labels.split(",")):
        name, value = (part[1:], None) if part.startswith("!") else _equality(part)
        tests.append((("metadata", "labels", name), value))
    if namespace:
        tests.append((("metadata", "namespace"), namespace))
    return lambda item: all(_field(item, path) == value for path, value in tests)


def _equality(text: str) -> tuple[str, str]:
    name, sign, value = text.replace("==", "=").partition("=")
    if not sign or name.endswith("!"):
        raise StatusError(400, "BadRequest", f"selector {text!r} is not of the form name=value")
    return name, value


def _field(item: Any, path: tuple[str, ...]) -> Any:
    for name in path:
        item = (item or {}).get(name)
    return item


def status(error: StatusError) -> Raw:
    """Return the Status object of a refusal."""
    return {
        "apiVersion": "v1",
        "kind": "Status",
        "status": "Failure",
        "code": error.status,
        "reason": error.reason,
        "message": str(error),
    }
