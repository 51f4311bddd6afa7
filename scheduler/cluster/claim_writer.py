"""Resource claims of function pods: created, allocated and reserved before the pod is scheduled.

A claim says only that the node agent prepares the pod; which GPU and which share is in the Binding.
So its allocation is the same for all pods, names no device of any node, and is written once. Then
kube-scheduler has nothing to allocate, and Kubernetes deletes the claim when its pod has ended.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import structlog

from scheduler.cluster.api import Api, Raw
from scheduler.cluster.backoff import Backoff
from scheduler.cluster.errors import ApiError, ClusterError
from scheduler.cluster.reflector import Handler
from scheduler.model.names import CLAIM_DEVICE, CLAIM_DRIVER, CLAIM_POOL
from scheduler.model.pod import has_ended, resource_claim

log = structlog.get_logger(__name__)

API_VERSION = "resource.k8s.io/v1"
_REQUEST = "grant"
_CONCURRENT_CLAIMS = 16  # most of the connections remain for binds
_CONFLICT = 409
_NO_VERSION = "the API server has no resource.k8s.io/v1; it needs Kubernetes 1.34"


@dataclass(frozen=True, slots=True)
class PodClaim:
    """A pod, and the name of its claim."""

    namespace: str
    name: str
    pod: str
    pod_uid: str

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
            raise ClusterError(_NO_VERSION) if error.status == 404 else error from None  # noqa: PLR2004
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
        "metadata": {"name": claim.name, "ownerReferences": [{**owner, "controller": True}]},
        "spec": {"devices": {"requests": [request]}},
    }


class ClaimWriter:
    """Provides the claims of all unbound pods; passes everything on to another handler.

    Args:
        api: the API server.
        pods: the other handler.
        backoff: pauses between attempts for one claim.
        sleep: waits, s.
    """

    def __init__(
        self,
        api: Api,
        pods: Handler,
        *,
        backoff: Callable[[], Backoff] = Backoff,
        sleep: Callable[[float], Awaitable[Any]] = asyncio.sleep,
    ) -> None:
        self._api = api
        self._pods = pods
        self._backoff = backoff
        self._sleep = sleep
        self._wanted: dict[str, PodClaim] = {}  # also those that exist, by UID of the pod
        self._new: asyncio.Queue[PodClaim] = asyncio.Queue()

    def replace(self, items: Iterable[Raw]) -> None:
        """Replace all pods."""
        unbound: set[str] = set()
        self._pods.replace(self._observed(items, unbound))
        for uid in self._wanted.keys() - unbound:
            del self._wanted[uid]

    def upsert(self, item: Raw) -> None:
        """Add or update a pod."""
        self._observe(item)
        self._pods.upsert(item)

    def delete(self, item: Raw) -> None:
        """Delete a pod."""
        self._wanted.pop(item["metadata"]["uid"], None)
        self._pods.delete(item)

    async def run(self) -> None:
        """Write claims until cancelled."""
        slots = asyncio.Semaphore(_CONCURRENT_CLAIMS)
        async with asyncio.TaskGroup() as group:
            while True:
                group.create_task(self._provide(await self._new.get(), slots))

    def _observed(self, items: Iterable[Raw], unbound: set[str]) -> Iterator[Raw]:
        for item in items:
            if self._observe(item):
                unbound.add(item["metadata"]["uid"])
            yield item

    def _observe(self, item: Raw) -> bool:
        """Note an unbound pod with a claim; return False for any other pod."""
        metadata = item["metadata"]
        name, uid = resource_claim(item), metadata["uid"]
        is_over = metadata.get("deletionTimestamp") or has_ended(item)
        if not name or is_over or (item.get("spec") or {}).get("nodeName"):
            self._wanted.pop(uid, None)
            return False
        if uid not in self._wanted:
            namespace = metadata.get("namespace") or "default"
            self._wanted[uid] = PodClaim(namespace, name, metadata["name"], uid)
            self._new.put_nowait(self._wanted[uid])
        return True

    async def _provide(self, claim: PodClaim, slots: asyncio.Semaphore) -> None:
        backoff = self._backoff()
        while claim.pod_uid in self._wanted:
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
                return
