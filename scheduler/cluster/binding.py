"""Bind a pod: its node and its grant, in one Binding.

The Binding carries the pod's UID, which the server treats as a precondition, and the annotations,
which it merges into the pod in the same write. So a pod has its grant if and only if it is bound,
and a recreated pod of the same name is not bound by mistake. The server answers a second Binding
with 409, so it is safe to post again if the fate of the first is unknown.

It also carries the version of the pod that was decided on, which the server treats as another
precondition. So a Binding that arrives late, when the pod has changed since, binds nothing; and a
pod that is seen unbound at a newer version will never be bound by it.

The generated method for this request is unusable: it parses the answer, a Status, as a Binding and
raises, after the pod has been bound.
"""

import asyncio
import re
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import Enum
from typing import Any

from scheduler.cluster.api import STRATEGIC_MERGE_PATCH, Api, Raw
from scheduler.cluster.errors import ApiError, ClusterError, NoAnswerError
from scheduler.model.names import CONDITION_VOIDED

# The first pause between two attempts, in seconds; it doubles each time.
PAUSE_S = 0.05
# A post may take this part of the time; the rest is for reading the pod if no answer comes.
POST_RATIO = 0.6
_CHANGED = "the pod has changed since it was read"

_NAMESPACE = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?", re.ASCII)
_NAME = re.compile(r"[a-z0-9]([-.a-z0-9]{0,251}[a-z0-9])?", re.ASCII)


@dataclass(frozen=True, slots=True)
class Binding:
    """A pod, its node, and the annotations of its grant.

    ``version`` is the pod's resourceVersion, a precondition; empty: the pod in any version.
    """

    namespace: str
    name: str
    uid: str
    node: str
    annotations: Mapping[str, str]
    version: str = ""


class BindOutcome(Enum):
    """Result of a bind."""

    BOUND = "bound"
    """The pod is bound, with these annotations."""
    ALREADY_BOUND = "already_bound"
    """The pod was on the same node before; the grant on it counts, not this one."""
    REFUSED = "refused"
    """This call has not bound the pod and will not: release the reservation. If the pod was read
    and another scheduler has bound it, the grant on it counts."""
    UNKNOWN = "unknown"
    """Time ran out. The pod may be bound, or may be bound later: the end of our wait does not
    cancel a request that the server has received. Or the pod is gone, and may have been bound: its
    containers may run. Or the server reports an earlier Binding by another client, but not its
    node. Keep the reservation until a watch event or `get_pod` shows the pod bound (the grant on it
    counts), deleted or recreated (another UID), or until a later call binds it."""


@dataclass(frozen=True, slots=True)
class BindResult:
    """An outcome, its explanation, and the pod if it was read.

    ``is_outdated``: refused only because the pod, which is unbound, has another version than the
    Binding; and the server has answered every post.
    """

    outcome: BindOutcome
    message: str = ""
    pod: Raw | None = None
    is_outdated: bool = False


def pod_path(namespace: str, name: str) -> str | None:
    """Return the path of a pod; None if the name is not valid for a pod."""
    if _NAMESPACE.fullmatch(namespace) is None or _NAME.fullmatch(name) is None:
        return None
    return f"/api/v1/namespaces/{namespace}/pods/{name}"


async def get_pod(
    api: Api, namespace: str, name: str, *, timeout_s: float | None = None
) -> Raw | None:
    """Read the pod from the API server (whole, not trimmed); None if it does not exist.

    Raises:
        ClusterError: it cannot be read.
    """
    path = pod_path(namespace, name)
    if path is None:
        return None
    try:
        return await api.get(path, timeout_s=timeout_s)
    except ApiError as error:
        if error.is_not_found():
            return None
        raise


async def void_bindings(
    api: Api, namespace: str, name: str, version: str, *, timeout_s: float | None = None
) -> Raw | None:
    """Make all Bindings void that name this version of a pod; return the pod as it is then.

    None: it does not exist. If it is unbound in this version, it gets a condition, which changes
    its version. If it has another one, they are void already, or one has bound it.

    Raises:
        ClusterError: a Binding of this version may still bind the pod.
    """
    path = pod_path(namespace, name)
    if path is None:
        return None
    condition = {
        "type": CONDITION_VOIDED,
        "status": "True",
        "reason": "OutcomeUnknown",
        "message": f"no Binding of the pod's version {version} is accepted any more",
        "lastTransitionTime": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
    }
    change: Raw = {
        "metadata": {"resourceVersion": version},
        "status": {"conditions": [condition]},
    }
    try:
        return await api.patch(
            f"{path}/status", change, form=STRATEGIC_MERGE_PATCH, timeout_s=timeout_s
        )
    except ApiError as error:
        if error.is_not_found():
            return None
        if error.status == 403:  # noqa: PLR2004
            raise ClusterError(
                f"RBAC: grant the verb patch on pods/status in a ClusterRole ({error.message})"
            ) from None
        if error.status != 409:  # noqa: PLR2004
            raise
        pod = await get_pod(api, namespace, name, timeout_s=timeout_s)
        if pod is not None and pod["metadata"]["resourceVersion"] == version:
            raise
        return pod


async def bind(
    api: Api,
    request: Binding,
    *,
    timeout_s: float,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], Awaitable[Any]] = asyncio.sleep,
) -> BindResult:
    """Bind a pod to a node and write its annotations, in one write; never raises.

    It is idempotent. Without an answer it reads the pod to determine the outcome, and posts the
    Binding again while there is time. All of it ends within ``timeout_s`` seconds. If the caller is
    cancelled meanwhile, the outcome is unknown, as for `BindOutcome.UNKNOWN`.
    """
    path = pod_path(request.namespace, request.name)
    if path is None or not request.uid:
        pod_name = f"{request.namespace}/{request.name} (uid {request.uid!r})"
        return BindResult(BindOutcome.REFUSED, f"not a valid pod name: {pod_name}")
    binding: Raw = {
        "apiVersion": "v1",
        "kind": "Binding",
        # The server requires the name here, too.
        "metadata": {
            "name": request.name,
            "uid": request.uid,
            "annotations": dict(request.annotations),
        },
        "target": {"apiVersion": "v1", "kind": "Node", "name": request.node},
    }
    if request.version:
        binding["metadata"]["resourceVersion"] = request.version
    attempt = _Attempt(api, path, binding, clock() + timeout_s, clock)
    # The event loop may resume later than the end of the pause, so check the time after it, too.
    while attempt.remaining_s() > 0:
        result = await attempt.post(POST_RATIO * timeout_s)
        if result is not None:
            return result
        pause_s = attempt.next_pause_s()
        if attempt.remaining_s() <= pause_s:
            break
        await sleep(pause_s)
    return attempt.timed_out()


@dataclass(slots=True)
class _Attempt:
    """State of one bind: the request, its deadline, and what its answers showed."""

    api: Api
    path: str
    binding: Raw
    deadline_s: float
    clock: Callable[[], float]
    may_be_bound: bool = False  # a Binding was sent, and no answer came
    unread: bool = False  # the last read failed: another client's Binding may be on the pod
    trouble: str = "no time was left for it"
    pause_s: float = PAUSE_S

    def next_pause_s(self) -> float:
        pause_s, self.pause_s = self.pause_s, 2 * self.pause_s
        return pause_s

    def remaining_s(self) -> float:
        return self.deadline_s - self.clock()

    async def post(self, post_s: float) -> BindResult | None:
        """Post, and if the outcome is unclear, read the pod; None if it is still open."""
        try:
            await self.api.post(
                f"{self.path}/binding", self.binding, timeout_s=min(post_s, self.remaining_s())
            )
        except NoAnswerError as error:
            self.trouble = str(error)
            if not error.sent:
                return None
            self.may_be_bound = True
        except ApiError as error:
            self.trouble = error.message
            if error.status == 429:  # noqa: PLR2004 - rejected before processing
                return None
            is_foreign = error.status == 404 and not error.is_not_found()  # noqa: PLR2004
            if error.status >= 500 or is_foreign:  # noqa: PLR2004 - perhaps after storing it
                self.may_be_bound = True
            elif error.status == 409:  # noqa: PLR2004
                return await self._after_conflict()
            elif error.status == 404 or not self.is_open():  # noqa: PLR2004
                return self._ended(_refusal(error))
        else:
            return BindResult(BindOutcome.BOUND)
        return await self._read()

    async def _after_conflict(self) -> BindResult | None:
        """Find the cause of a 409 on the pod: this post has not bound it."""
        conflict = self.trouble
        result = await self._read()
        if result is None and self.trouble != conflict:
            self.trouble = f"{conflict}; then the pod could not be read: {self.trouble}"
        elif result is None and not self.is_open():
            return BindResult(BindOutcome.REFUSED, conflict)
        return result

    async def _read(self) -> BindResult | None:
        self.unread = True
        if self.remaining_s() <= 0:
            return None
        try:
            pod = await self.api.get(self.path, timeout_s=self.remaining_s())
        except ApiError as error:
            if error.is_not_found():  # the UID excludes a recreated pod
                return self._ended("the pod does not exist any more")
            self.trouble = str(error)
            return None
        except ClusterError as error:
            self.trouble = str(error)
            return None
        self.unread = False
        return self._assess(pod)

    def _assess(self, pod: Raw) -> BindResult | None:
        request = self.binding["metadata"]
        metadata, bound_to = pod["metadata"], (pod.get("spec") or {}).get("nodeName")
        if metadata.get("uid") != request["uid"]:
            return self._ended("the pod was recreated with another UID", pod)
        if not bound_to:
            obstacle = _obstacle(metadata, request)
            is_outdated = obstacle == _CHANGED and not self.may_be_bound
            result = BindResult(BindOutcome.REFUSED, obstacle, pod, is_outdated)
            return result if obstacle else None
        if bound_to != self.binding["target"]["name"]:
            return BindResult(BindOutcome.REFUSED, f"the pod is bound to node {bound_to}", pod)
        annotations = metadata.get("annotations") or {}
        if self.may_be_bound and request["annotations"].items() <= annotations.items():
            return BindResult(BindOutcome.BOUND, pod=pod)
        return BindResult(BindOutcome.ALREADY_BOUND, f"the pod is already on node {bound_to}", pod)

    def _ended(self, message: str, pod: Raw | None = None) -> BindResult:
        """Return the result where no further post can bind the pod: an earlier one may have."""
        outcome = BindOutcome.UNKNOWN if self.may_be_bound else BindOutcome.REFUSED
        return BindResult(outcome, message, pod)

    def is_open(self) -> bool:
        """Return true if it is unclear whether the pod is bound, or will be."""
        return self.may_be_bound or self.unread

    def timed_out(self) -> BindResult:
        if self.is_open():
            return BindResult(BindOutcome.UNKNOWN, self.trouble)
        return BindResult(BindOutcome.REFUSED, self.trouble)


def _obstacle(pod: Raw, request: Raw) -> str:
    """Reason why a Binding will never bind a pod, by the metadata of both; or nothing."""
    if pod.get("deletionTimestamp"):
        return "the pod is being deleted"
    if request.get("resourceVersion", pod["resourceVersion"]) != pod["resourceVersion"]:
        return _CHANGED
    return ""


def _refusal(error: ApiError) -> str:
    if error.status == 403:  # noqa: PLR2004
        return f"RBAC: grant the verb create on pods/binding in a ClusterRole ({error.message})"
    return error.message
