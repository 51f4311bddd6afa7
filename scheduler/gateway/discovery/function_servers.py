"""Discovery of model servers: FunctionServers and the pods that they select.

The pods are watched themselves, not their EndpointSlices: a pod's share is in its annotations, and
a deleted one drains before it leaves a slice.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any, Protocol

import structlog

from scheduler.dispatch.pods import FunctionKey
from scheduler.gateway.discovery.holder_pods import HolderPod, holder_pod, is_holder, is_member
from scheduler.gateway.discovery.problems import ProblemLog
from scheduler.gateway.discovery.server_pods import ServerPod, server_pod
from scheduler.model.catalogue import unknown_profile
from scheduler.model.document_reader import parse_document
from scheduler.model.documents import FunctionProfile
from scheduler.model.function_server import FunctionServer
from scheduler.model.pod_fields import PodError
from scheduler.planning.document_store import Change, DocumentHandler

log = structlog.get_logger(__name__)
_Key = tuple[str, str]  # namespace, name
_NO_POOLS = (
    "it is a member of a pool, and this gateway creates no holders of slices; allow it to by the "
    "chart's gateway.pods.namespaces"
)


class Listener(Protocol):
    """Receiver of what is discovered; its methods do not block.

    A pod is added after its server and removed before it.
    """

    def set_server(self, server: FunctionServer, profile: FunctionProfile) -> None:
        """Add the server of a function, or change it or its profile."""

    def remove_server(self, function: FunctionKey) -> None:
        """Remove a server without pods."""

    def add_pod(self, pod: ServerPod) -> None:
        """Add a pod; ``pod.ready`` and ``pod.draining`` are its state."""

    def pod_ready(self, name: str) -> None:
        """Give a pod batches."""

    def drain_pod(self, name: str) -> None:
        """Give a pod no further batches until `pod_ready`; those that it has go on."""

    def remove_pod(self, name: str) -> None:
        """Remove a pod; the batches that it has are lost."""


class PoolListener(Protocol):
    """Receiver of the pods of templates, which it creates; its methods do not block."""

    def pool_pod_changed(self, server: FunctionServer, raw: Mapping[str, Any]) -> None:
        """Take the state of a pod of a known server, with an address or not, before `add_pod`."""

    def pool_pod_gone(self, name: str) -> None:
        """Handle the deletion of a pod, of a template or not, after `remove_pod`."""

    def holder_changed(self, holder: HolderPod) -> None:
        """Take the state of a holder of a slice."""

    def holder_gone(self, namespace: str, name: str) -> None:
        """Handle the deletion of a pod, a holder or not."""

    def take_over(self, namespace: str, *, is_clean: bool) -> None:
        """Serve a namespace from now on, before its holders are reported.

        Without this call, batches that began before this process may run on its pods.

        Args:
            namespace: namespace that another process has served.
            is_clean: true if nothing runs on its pods.
        """


class ServerPodHandler:
    """All pods of the watched namespaces, trimmed.

    Attributes:
        by_namespace: pods by namespace and name.
    """

    def __init__(
        self, on_change: Callable[[Mapping[str, Any]], None], on_removal: Callable[[_Key], None]
    ) -> None:
        self._on_change = on_change
        self._on_removal = on_removal
        self.by_namespace: defaultdict[str, dict[str, Mapping[str, Any]]] = defaultdict(dict)

    def replace(self, items: Iterable[Mapping[str, Any]]) -> None:
        """Replace all pods by those of a list."""
        listed = set()
        for item in items:
            listed.add(_key(item["metadata"]))
            self.upsert(item)
        keys = [(namespace, name) for namespace, pods in self.by_namespace.items() for name in pods]
        for key in keys:
            if key not in listed:
                self._remove(key)

    def upsert(self, item: Mapping[str, Any]) -> None:
        """Add or change a pod."""
        namespace, name = _key(item["metadata"])
        self.by_namespace[namespace][name] = item
        self._on_change(item)

    def delete(self, item: Mapping[str, Any]) -> None:
        """Remove a pod."""
        self._remove(_key(item["metadata"]))

    def _remove(self, key: _Key) -> None:
        namespace, name = key
        pods = self.by_namespace[namespace]
        pods.pop(name, None)
        if not pods:
            del self.by_namespace[namespace]
        self._on_removal(key)


class Discovery:
    """Matches pods with servers, and reports the differences to a listener.

    Of two servers of a function in one namespace the older one counts, and so it does for a pod
    that two servers select: a share runs one batch at a time.

    Attributes:
        servers: handler of FunctionServers.
        pods: handler of pods.
        problems: reasons why servers or pods are not used, by kind, namespace and name.
    """

    def __init__(
        self,
        listener: Listener,
        profile_of: Callable[[str], FunctionProfile | None],
        pool: PoolListener | None = None,
    ) -> None:
        self._listener = listener
        self._pool = pool
        self._profile_of = profile_of
        self._in_use: dict[str, dict[FunctionKey, FunctionServer]] = {}  # by namespace
        self._reported: dict[_Key, ServerPod] = {}
        self._whole_gpu: set[FunctionKey] = set()  # functions with a warning about such pods
        self.problems = ProblemLog()
        self.servers = DocumentHandler(_parse_server, _key, self._servers_changed)
        self.pods = ServerPodHandler(self._match, self._forget_deleted)

    def in_use(self) -> Iterable[FunctionServer]:
        """Yield the servers that count."""
        for servers in self._in_use.values():
            yield from servers.values()

    def known_pods(self) -> Iterable[ServerPod]:
        """Yield the pods that the listener knows, in their current state."""
        return self._reported.values()

    def profile_changed(self, function: str) -> None:
        """Apply a profile that was added, changed or removed."""
        for namespace in {
            key[0] for key, s in self.servers.documents.items() if s.spec.function == function
        }:
            self._match_namespace(namespace, {function})

    def _servers_changed(self, changes: list[Change[FunctionServer]]) -> None:
        for namespace in {s.key[0] for change in changes for s in change if s is not None}:
            self._match_namespace(namespace)

    def _match_namespace(self, namespace: str, changed_profiles: Iterable[str] = ()) -> None:
        """Find the servers that count, and match all pods of the namespace with them."""
        before = self._in_use.pop(namespace, {})
        after = self._servers_in_use(namespace)
        if after:
            self._in_use[namespace] = after
        removed = before.keys() - after.keys()
        for key, pod in list(self._reported.items()):
            if pod.function in removed:
                self._forget(key)
        for function in removed:
            self._whole_gpu.discard(function)
            self._listener.remove_server(function)
        for function, server in after.items():
            former = before.get(function)
            is_new = former is None or (former.spec, former.owner) != (server.spec, server.owner)
            if is_new or function[1] in changed_profiles:
                profile = self._profile_of(function[1])
                assert profile is not None  # noqa: S101 - only such servers are in use
                self._listener.set_server(server, profile)
        for raw in self.pods.by_namespace.get(namespace, {}).values():
            self._match(raw)

    def _servers_in_use(self, namespace: str) -> dict[FunctionKey, FunctionServer]:
        """Return the usable servers of a namespace, the oldest first."""
        servers = [s for key, s in self.servers.documents.items() if key[0] == namespace]
        in_use: dict[FunctionKey, FunctionServer] = {}
        problems = {}
        for server in sorted(servers, key=lambda s: (s.created, s.key)):
            function = server.spec.function
            if server.spec.template is not None and self._pool is None:
                text = (
                    "this gateway creates no pods; give a selector, or allow it to by the chart's "
                    "gateway.pods.namespaces"
                )
            elif self._profile_of(function) is None:
                text = str(unknown_profile(function))
            elif (older := in_use.get(server.function_key)) is not None:
                text = (
                    f"function {function} is served by the older FunctionServer "
                    f"{older.metadata.name}; delete one of them"
                )
            else:
                in_use[server.function_key] = server
                continue
            problems["FunctionServer", *server.key] = text
        for key in [p for p in self.problems if p[:2] == ("FunctionServer", namespace)]:
            if key not in problems:
                del self.problems[key]
        for key, text in problems.items():
            self.problems.report(key, text)
        return in_use

    def _match(self, raw: Mapping[str, Any]) -> None:
        """Report the difference between a pod's state and the last that was reported."""
        key = _key(raw["metadata"])
        if is_holder(raw):
            self._match_holder(key, raw)
            return
        pod, reported = self._server_pod(key, raw), self._reported.get(key)
        if pod is None:
            self._forget(key)
            return
        if reported is None or _as_new(reported) != _as_new(pod):
            self._forget(key)
            self._reported[key] = pod
            self._warn_of_whole_gpu(pod)
            self._listener.add_pod(pod)
            return
        self._reported[key] = pod
        if pod.state != reported.state == "ready":
            self._listener.drain_pod(pod.name)
        elif reported.state != pod.state == "ready":
            self._listener.pod_ready(pod.name)

    def _match_holder(self, key: _Key, raw: Mapping[str, Any]) -> None:
        if self._pool is None:
            return
        try:
            holder = holder_pod(raw)
        except PodError as error:
            self.problems.report(("Pod", *key), str(error))
            self._pool.holder_gone(*key)
        else:
            if holder.problem:
                self.problems.report(("Pod", *key), holder.problem)
            else:
                self.problems.resolve(("Pod", *key))
            self._pool.holder_changed(holder)

    def _server_pod(self, key: _Key, raw: Mapping[str, Any]) -> ServerPod | None:
        labels = raw["metadata"].get("labels") or {}
        controller = _controller_uid(raw)
        for function, server in self._in_use.get(key[0], {}).items():
            profile = self._profile_of(function[1])
            if profile is None or not server.selects(labels, controller):
                continue
            if self._pool is not None and server.spec.template is not None:
                self._pool.pool_pod_changed(server, raw)
            if self._pool is None and is_member(raw):
                self.problems.report(("Pod", *key), _NO_POOLS)
                return None
            try:
                pod = server_pod(raw, server, profile)
            except PodError as error:
                self.problems.report(("Pod", *key), str(error))
                return None
            self.problems.resolve(("Pod", *key))
            return pod
        self.problems.resolve(("Pod", *key))
        return None

    def _forget_deleted(self, key: _Key) -> None:
        """Remove a deleted pod."""
        self.problems.resolve(("Pod", *key))
        self._forget(key)
        if self._pool is not None:
            self._pool.pool_pod_gone("/".join(key))
            self._pool.holder_gone(*key)

    def _forget(self, key: _Key) -> None:
        if (pod := self._reported.pop(key, None)) is not None:
            self._listener.remove_pod(pod.name)

    def _warn_of_whole_gpu(self, pod: ServerPod) -> None:
        if not pod.is_granted and pod.function not in self._whole_gpu:
            self._whole_gpu.add(pod.function)
            log.warning(
                "a pod has no grant of this scheduler and counts as on a whole GPU; so do others "
                "of its function, without a further warning",
                pod=pod.name,
                function=pod.function[1],
                gpu_model=pod.gpu_model,
            )


def _parse_server(raw: Mapping[str, Any]) -> FunctionServer | None:
    # The items of a list have neither kind nor apiVersion.
    document = parse_document({"kind": "FunctionServer", **raw}, "the API server")
    return document if isinstance(document, FunctionServer) else None


def _key(metadata: Mapping[str, Any]) -> _Key:
    return metadata.get("namespace") or "default", metadata["name"]


def _controller_uid(raw: Mapping[str, Any]) -> str | None:
    for owner in raw["metadata"].get("ownerReferences") or ():
        if owner.get("controller"):
            return str(owner.get("uid"))
    return None


def _as_new(pod: ServerPod) -> ServerPod:
    """Return what cannot change while a listener knows the pod."""
    return replace(pod, ready=False, draining=False)
