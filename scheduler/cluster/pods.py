"""Creation and deletion of pods."""

from scheduler.cluster.api import Api, Raw
from scheduler.cluster.binding import pod_path
from scheduler.cluster.errors import ApiError

NOT_FOUND, CONFLICT = 404, 409


class PodWriter:
    """Creates and deletes pods."""

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

    async def delete(self, namespace: str, name: str, uid: str) -> None:
        """Delete a pod, if it exists; with a UID, not another one of its name.

        Raises:
            ClusterError: it may still exist.
        """
        path = pod_path(namespace, name)
        if path is None:
            return
        options: Raw = {"apiVersion": "v1", "kind": "DeleteOptions"}
        if uid:
            options["preconditions"] = {"uid": uid}
        try:
            await self._api.delete(path, options)
        except ApiError as error:
            if error.status not in {NOT_FOUND, CONFLICT}:
                raise
