"""Creation and deletion of pods, and a look at those that there are."""

from scheduler.cluster.api import Api, Raw
from scheduler.cluster.binding import pod_path
from scheduler.cluster.errors import ApiError
from scheduler.cluster.object_list import list_all
from scheduler.cluster.reflector import PAGE
from scheduler.cluster.resource import SERVER_PODS

NOT_FOUND, CONFLICT = 404, 409


class PodWriter:
    """Creates, deletes and lists pods."""

    def __init__(self, api: Api) -> None:
        self._api = api

    async def create(self, namespace: str, pod: Raw) -> None:
        """Create a pod.

        Its name is in ``pod``, and not chosen by the server: then a creation without an answer can
        be sent again, and makes one pod.

        Raises:
            ApiError: the server refuses it; reason AlreadyExists: there is a pod of this name.
            NoAnswerError: if ``sent``, it may have been created.
        """
        await self._api.post(f"/api/v1/namespaces/{namespace}/pods", pod)

    async def delete(
        self, namespace: str, name: str, uid: str, *, grace_s: int | None = None
    ) -> None:
        """Delete a pod, if it exists; with a UID, not another one of its name.

        ``grace_s`` is the grace period, also of a pod that is being deleted; None: the pod's own.

        Raises:
            ClusterError: it may still exist.
        """
        path = pod_path(namespace, name)
        if path is None:
            return
        options: Raw = {"apiVersion": "v1", "kind": "DeleteOptions"}
        if uid:
            options["preconditions"] = {"uid": uid}
        if grace_s is not None:
            options["gracePeriodSeconds"] = grace_s
        try:
            await self._api.delete(path, options)
        except ApiError as error:
            if error.status not in {NOT_FOUND, CONFLICT}:
                raise

    async def live_uids(self, namespace: str, labels: str) -> frozenset[str]:
        """Return the UIDs of pods that nobody has deleted, as of now and from no cache.

        Args:
            namespace: namespace of the pods; empty: all.
            labels: selector of the pods.

        Raises:
            ClusterError: there is no answer, or a refusal.
        """
        resource = SERVER_PODS.within(namespace)
        pods, _ = await list_all(
            self._api, resource, selectors={"labelSelector": labels}, page=PAGE
        )
        metadata = [pod["metadata"] for pod in pods]
        return frozenset(m["uid"] for m in metadata if "deletionTimestamp" not in m)
