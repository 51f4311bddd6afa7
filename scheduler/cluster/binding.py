"""The one write that counts: a pod, its node and its grant, in one Binding.

The Binding carries the pod's UID, which the server takes for a precondition, and the annotations,
which it merges into the pod in the same write. So a pod has its grant if and only if it is bound,
and a pod that was deleted and recreated under its name is not bound by mistake. A second Binding is
answered with 409. That makes it safe to post again when it is not known whether the first arrived.

The generated method for this request cannot be used: it takes the answer, a Status, for a Binding
and raises, after the pod has been bound.
"""

import asyncio
import re
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any

from scheduler.cluster.api import Api, Raw
from scheduler.cluster.errors import ApiError, ClusterError, NoAnswerError

# The first pause between two attempts, seconds; each next one is twice as long.
PAUSE_S = 0.05
# A post may take this much of the time; the rest is for finding out what became of it.
POST_RATIO = 0.6

_NAMESPACE = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?", re.ASCII)
_NAME = re.compile(r"[a-z0-9]([-.a-z0-9]{0,251}[a-z0-9])?", re.ASCII)


@dataclass(frozen=True, slots=True)
class Binding:
    """Which pod goes to which node, and the annotations that say with what."""

    namespace: str
    name: str
    uid: str
    node: str
    annotations: Mapping[str, str]


class BindOutcome(Enum):
    """What became of a bind, as far as it is known."""

    BOUND = "bound"
    """The pod is bound, with our annotations."""
    ALREADY_BOUND = "already_bound"
    """The same pod was on the same node before; the grant that is on it counts, not ours."""
    REFUSED = "refused"
    """The pod is not bound by this call and will not be: what was reserved can be given back. Where
    the pod was read and is bound all the same, by somebody else, what is on it counts."""
    UNKNOWN = "unknown"
    """Time ran out. The Binding may have been made, or may still be made after this: a request that
    the server has taken up is not withdrawn by our no longer waiting. Or the server says that
    somebody else's was first, and does not say where to. What was reserved must stay
    reserved until a watch event or `get_pod` shows the pod bound (the grant on it counts), gone,
    recreated (another UID), or bound again by a later call."""


@dataclass(frozen=True, slots=True)
class BindResult:
    """An outcome, a sentence on it, and the pod where it had to be read to know."""

    outcome: BindOutcome
    message: str = ""
    pod: Raw | None = None


def pod_path(namespace: str, name: str) -> str | None:
    """The path of a pod, or None if no pod can have such a name."""
    if _NAMESPACE.fullmatch(namespace) is None or _NAME.fullmatch(name) is None:
        return None
    return f"/api/v1/namespaces/{namespace}/pods/{name}"


async def get_pod(
    api: Api, namespace: str, name: str, *, timeout_s: float | None = None
) -> Raw | None:
    """The pod as the API server has it (whole, not trimmed); None if there is none.

    Raises:
        ClusterError: it could not be read.
    """
    path = pod_path(namespace, name)
    if path is None:
        return None
    try:
        return await api.get(path, timeout_s=timeout_s)
    except ApiError as error:
        if error.status == 404:  # noqa: PLR2004
            return None
        raise


async def bind(
    api: Api,
    wanted: Binding,
    *,
    timeout_s: float,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], Awaitable[Any]] = asyncio.sleep,
) -> BindResult:
    """Bind a pod to a node and put its annotations on it, in one write; never raises.

    It is idempotent. When the answer stays away the pod is read before anything is believed, and
    the Binding is posted again while there is time. All of it ends within ``timeout_s`` seconds. If
    the caller is cancelled meanwhile, the pod's fate is open, as after `BindOutcome.UNKNOWN`.
    """
    path = pod_path(wanted.namespace, wanted.name)
    if path is None or not wanted.uid:
        named = f"{wanted.namespace}/{wanted.name} (uid {wanted.uid!r})"
        return BindResult(BindOutcome.REFUSED, f"{named} cannot be the name of a pod")
    binding = {
        "apiVersion": "v1",
        "kind": "Binding",
        # The server wants the name a second time here.
        "metadata": {
            "name": wanted.name,
            "uid": wanted.uid,
            "annotations": dict(wanted.annotations),
        },
        "target": {"apiVersion": "v1", "kind": "Node", "name": wanted.node},
    }
    attempt = _Attempt(api, path, binding, clock() + timeout_s, clock)
    # The loop may be kept from us for longer than the pause, so the time is looked at after it too.
    while attempt.left_s() > 0:
        result = await attempt.once(POST_RATIO * timeout_s)
        if result is not None:
            return result
        pause_s = attempt.next_pause_s()
        if attempt.left_s() <= pause_s:
            break
        await sleep(pause_s)
    return attempt.out_of_time()


@dataclass(slots=True)
class _Attempt:
    """One bind: what is wanted, until when, and what is known so far."""

    api: Api
    path: str
    binding: Raw
    deadline: float
    clock: Callable[[], float]
    may_land: bool = False  # a Binding has left, and nothing was heard of it
    unread: bool = False  # the last look failed: somebody else's Binding may be on the pod
    trouble: str = "there was no time left for it"
    pause_s: float = PAUSE_S

    def next_pause_s(self) -> float:
        pause_s, self.pause_s = self.pause_s, 2 * self.pause_s
        return pause_s

    def left_s(self) -> float:
        return self.deadline - self.clock()

    async def once(self, post_s: float) -> BindResult | None:
        """Post, and if that does not settle it, look; None if the pod's fate is still open."""
        try:
            await self.api.post(
                f"{self.path}/binding", self.binding, timeout_s=min(post_s, self.left_s())
            )
        except NoAnswerError as error:
            self.trouble = str(error)
            if not error.sent:
                return None
            self.may_land = True
        except ApiError as error:
            self.trouble = error.message
            if error.status == 429:  # noqa: PLR2004 - turned away at the door: nothing was done
                return None
            if error.status >= 500:  # noqa: PLR2004 - it may have been stored before it failed
                self.may_land = True
            elif error.status == 409:  # noqa: PLR2004
                return await self._after_conflict()
            elif error.status == 404 or not self.is_open():  # noqa: PLR2004
                return BindResult(BindOutcome.REFUSED, _refusal(error))
        else:
            return BindResult(BindOutcome.BOUND)
        return await self._look()

    async def _after_conflict(self) -> BindResult | None:
        """409: this post has not bound it. Whoever has, or why not, is on the pod."""
        conflict = self.trouble
        found = await self._look()
        if found is None and self.trouble != conflict:
            self.trouble = f"{conflict}; and the pod could not be read: {self.trouble}"
        elif found is None and not self.is_open():
            return BindResult(BindOutcome.REFUSED, conflict)
        return found

    async def _look(self) -> BindResult | None:
        self.unread = True
        if self.left_s() <= 0:
            return None
        try:
            pod = await self.api.get(self.path, timeout_s=self.left_s())
        except ApiError as error:
            if error.status == 404:  # noqa: PLR2004 - and the UID keeps a late Binding off its heir
                return BindResult(BindOutcome.REFUSED, "the pod is gone")
            self.trouble = str(error)
            return None
        except ClusterError as error:
            self.trouble = str(error)
            return None
        self.unread = False
        return self._judge(pod)

    def _judge(self, pod: Raw) -> BindResult | None:
        wanted = self.binding["metadata"]
        metadata, bound_to = pod["metadata"], (pod.get("spec") or {}).get("nodeName")
        if metadata.get("uid") != wanted["uid"]:
            return BindResult(
                BindOutcome.REFUSED, "the pod was deleted; another of its name is there", pod
            )
        if not bound_to:
            if metadata.get("deletionTimestamp"):  # the server binds no pod that is being deleted
                return BindResult(BindOutcome.REFUSED, "the pod is being deleted", pod)
            return None
        if bound_to != self.binding["target"]["name"]:
            return BindResult(BindOutcome.REFUSED, f"the pod is bound to node {bound_to}", pod)
        there = metadata.get("annotations") or {}
        if self.may_land and wanted["annotations"].items() <= there.items():
            return BindResult(BindOutcome.BOUND, pod=pod)
        return BindResult(BindOutcome.ALREADY_BOUND, f"the pod is on node {bound_to} already", pod)

    def is_open(self) -> bool:
        """Whether the pod may be bound now, or may yet be, for all that is known."""
        return self.may_land or self.unread

    def out_of_time(self) -> BindResult:
        if self.is_open():
            return BindResult(BindOutcome.UNKNOWN, self.trouble)
        return BindResult(BindOutcome.REFUSED, self.trouble)


def _refusal(error: ApiError) -> str:
    if error.status == 403:  # noqa: PLR2004
        return f"RBAC: grant the verb create on pods/binding in a ClusterRole ({error.message})"
    return error.message
