"""Resource claims of function pods: created, allocated and reserved before the pod is scheduled.

A claim says only that the node agent prepares the pod; which GPU and which share is in the Binding.
So its allocation is the same for all pods, names no device of any node, and is written once. Then
kube-scheduler has nothing to allocate, and Kubernetes deletes the claim when its pod has ended.
A claim that is deleted before a container of its pod has started is written again.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import structlog

from scheduler.cluster.api import Api, Raw
from scheduler.cluster.backoff import Backoff
from scheduler.cluster.errors import ApiError, ClusterError
from scheduler.cluster.reflector import Handler
from scheduler.cluster.resource import NO_CLAIMS
from scheduler.model.names import CLAIM_DEVICE, CLAIM_DRIVER, CLAIM_POOL, LABEL_CLAIM
from scheduler.model.pod import resource_claim

log = structlog.get_logger(__name__)

API_VERSION = "resource.k8s.io/v1"
_REQUEST = "grant"
_CONCURRENT_CLAIMS = 16  # most of the connections remain for binds
_CONFLICT = 409


@dataclass(frozen=True, slots=True)
class PodClaim:
    """A pod, and the name of its claim."""

    namespace: str
    name: str
    pod: str
    pod_uid: str

    @property
    def key(self) -> tuple[str, str]:
        """Namespace and name of the claim."""
        return self.namespace, self.name

    @property
    def collection(self) -> str:
        """Path of the claims of the pod's namespace."""
        return f"/apis/{API_VERSION}/namespaces/{self.namespace}/resourceclaims"


async def provide_claim(api: Api, claim: PodClaim) -> None:
    """Create the claim of a pod, if absent, and allocate and reserve it; idempotent.

    Raises:
        ClusterError: it may be incomplete.
    """
    try:
        stored = await api.post(claim.collection, _new_claim(claim))
    except ApiError as error:
        if error.status != _CONFLICT:
            raise ClusterError(NO_CLAIMS) if error.status == 404 else error from None  # noqa: PLR2004
        stored = await api.get(f"{claim.collection}/{claim.name}")
        owners = stored["metadata"].get("ownerReferences") or ()
        if all(owner.get("uid") != claim.pod_uid for owner in owners):
            raise ClusterError(
                f"claim {claim.namespace}/{claim.name} is not of this pod; recreate the pod "
                "without spec.resourceClaims"
            ) from None
    result = {
        "request": _REQUEST,
        "driver": CLAIM_DRIVER,
        "pool": CLAIM_POOL,
        "device": CLAIM_DEVICE,
    }
    status = {
        "allocation": {
            "devices": {"results": [result]},
            # After a failed bind kube-scheduler reserves the claim again, and sets this time if it
            # is absent; but an allocation is immutable. All writers know the age of the claim.
            "allocationTimestamp": stored["metadata"]["creationTimestamp"],
        },
        "reservedFor": [{"resource": "pods", "name": claim.pod, "uid": claim.pod_uid}],
    }
    await api.patch(f"{claim.collection}/{claim.name}/status", {"status": status})


def _new_claim(claim: PodClaim) -> Raw:
    owner = {"apiVersion": "v1", "kind": "Pod", "name": claim.pod, "uid": claim.pod_uid}
    request = {"name": _REQUEST, "exactly": {"deviceClassName": CLAIM_DRIVER}}
    return {
        "apiVersion": API_VERSION,
        "kind": "ResourceClaim",
        "metadata": {
            "name": claim.name,
            "labels": {LABEL_CLAIM: "true"},
            "ownerReferences": [{**owner, "controller": True}],
        },
        "spec": {"devices": {"requests": [request]}},
    }


class ClaimWriter:
    """Provides the claims of all pods that have not started; passes pods on to another handler.

    Attributes:
        observer: handler of the claims that exist.

    Args:
        pods: handler that gets the pods after this one.
        sleep: function that waits, in seconds.
    """

    def __init__(
        self,
        api: Api,
        pods: Handler,
        *,
        sleep: Callable[[float], Awaitable[Any]] = asyncio.sleep,
    ) -> None:
        self._api = api
        self._pods = pods
        self._sleep = sleep
        self._wanted: dict[str, PodClaim] = {}  # also those that exist, by UID of the pod
        self._owners: dict[tuple[str, str], str] = {}  # UIDs of these pods, by their claim's key
        self._unwritten: dict[str, PodClaim] = {}  # each with the attempts that count, by UID
        self._new: asyncio.Queue[PodClaim] = asyncio.Queue()
        self.observer = _ClaimObserver(self._owners.keys, self._lost)

    def unwritten_count(self) -> int:
        """Count the pods that wait for their claim."""
        return len(self._unwritten)

    def replace(self, items: Iterable[Raw]) -> None:
        """Replace all pods."""
        waiting: set[str] = set()
        self._pods.replace(self._observed(items, waiting))
        for uid in self._wanted.keys() - waiting:
            self._forget(uid)

    def upsert(self, item: Raw) -> None:
        """Add or update a pod."""
        self._observe(item)
        self._pods.upsert(item)

    def delete(self, item: Raw) -> None:
        """Delete a pod."""
        self._forget(item["metadata"]["uid"])
        self._pods.delete(item)

    async def run(self) -> None:
        """Write claims until cancelled."""
        slots = asyncio.Semaphore(_CONCURRENT_CLAIMS)
        async with asyncio.TaskGroup() as group:
            while True:
                group.create_task(self._provide(await self._new.get(), slots))

    def _observed(self, items: Iterable[Raw], waiting: set[str]) -> Iterator[Raw]:
        for item in items:
            if self._observe(item):
                waiting.add(item["metadata"]["uid"])
            yield item

    def _observe(self, item: Raw) -> bool:
        """Note a pod with a claim that has not started; return False for any other pod."""
        metadata = item["metadata"]
        name, uid = resource_claim(item), metadata["uid"]
        phase = (item.get("status") or {}).get("phase") or "Pending"
        if not name or metadata.get("deletionTimestamp") or phase != "Pending":
            self._forget(uid)
            return False
        if uid not in self._wanted:
            namespace = metadata.get("namespace") or "default"
            self._wanted[uid] = PodClaim(namespace, name, metadata["name"], uid)
            self._owners.setdefault(self._wanted[uid].key, uid)
            self._write(self._wanted[uid])
        return True

    def _lost(self, key: tuple[str, str]) -> None:
        """Write a deleted claim again, if a pod still needs it."""
        if (uid := self._owners.get(key)) is not None:
            claim = self._wanted[uid]
            log.warning(
                "resource claim was deleted; it is written again",
                claim=claim.name,
                pod=f"{claim.namespace}/{claim.pod}",
            )
            self._write(claim)

    def _write(self, claim: PodClaim) -> None:
        attempts = self._unwritten[claim.pod_uid] = replace(claim)  # earlier ones end
        self._new.put_nowait(attempts)

    def _forget(self, uid: str) -> None:
        self._unwritten.pop(uid, None)
        claim = self._wanted.pop(uid, None)
        if claim is not None and self._owners.get(claim.key) == uid:
            del self._owners[claim.key]

    async def _provide(self, claim: PodClaim, slots: asyncio.Semaphore) -> None:
        backoff = Backoff()
        while self._unwritten.get(claim.pod_uid) is claim:
            try:
                async with slots:
                    await provide_claim(self._api, claim)
            except ClusterError as error:
                log.warning(
                    "resource claim not written",
                    pod=f"{claim.namespace}/{claim.pod}",
                    problem=str(error),
                )
                await self._sleep(backoff.next_s())
            else:
                if self._unwritten.get(claim.pod_uid) is claim:
                    del self._unwritten[claim.pod_uid]


class _ClaimObserver:
    """Receives the claims that exist, and reports those that do not.

    Args:
        wanted: function that returns the keys of the claims that pods need.
        lost: function that is called with the key of a claim that was deleted.
    """

    def __init__(
        self,
        wanted: Callable[[], Iterable[tuple[str, str]]],
        lost: Callable[[tuple[str, str]], None],
    ) -> None:
        self._wanted = wanted
        self._lost = lost

    def replace(self, items: Iterable[Raw]) -> None:
        """Report what a list lacks. It may be older than a claim: a second write is harmless."""
        existing = {_key(item) for item in items}
        for key in [key for key in self._wanted() if key not in existing]:
            self._lost(key)

    def upsert(self, item: Raw) -> None:
        """Ignore a claim that exists."""

    def delete(self, item: Raw) -> None:
        """Report a deleted claim."""
        self._lost(_key(item))


def _key(item: Raw) -> tuple[str, str]:
    metadata = item["metadata"]
    return metadata["namespace"], metadata["name"]
