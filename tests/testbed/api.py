"""The API server as tests see it: raw JSON in and out, so that a test asserts on what is stored.

No generated client stands between: its models would hide unknown fields, and its requests cost
several times as much. Paths of objects come from the server's own discovery, so documents of our
own kinds need nothing here.
"""

import functools
import json
import ssl
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import httpx

from tests.testbed.pki import Certificate

Json = dict[str, Any]
"""A Kubernetes object, or part of one, as the API server's JSON has it."""


BUSY_S = 60.0
BUSY_PAUSE_S = 0.2


class ApiError(RuntimeError):
    """The API server refused.

    Attributes:
        status: the HTTP status.
        reason: the Status object's reason, such as `Conflict`; empty where there was none.
    """

    def __init__(self, status: int, reason: str, message: str) -> None:
        super().__init__(f"{status} {reason}: {message}")
        self.status = status
        self.reason = reason


def tls_context(ca: Path, certificate: Certificate) -> ssl.SSLContext:
    """Trust `ca` alone, and show `certificate` to the server."""
    context = ssl.create_default_context(cafile=str(ca))
    context.load_cert_chain(str(certificate.certificate), str(certificate.key))
    return context


class Api:
    """A synchronous client for one user.

    Args:
        url: as `https://127.0.0.1:21000`.
        context: whom to trust and who to be; see `tls_context`.
        timeout_s: for each request.
    """

    def __init__(self, url: str, context: ssl.SSLContext, *, timeout_s: float = 30.0) -> None:
        self._http = httpx.Client(base_url=url, verify=context, timeout=timeout_s, trust_env=False)
        self._kinds: dict[tuple[str, str], tuple[str, bool]] = {}

    def close(self) -> None:
        """Close the connections."""
        self._http.close()

    def is_ready(self) -> bool:
        """Whether `/readyz` answers 200; False too while nobody listens."""
        try:
            return self._http.get("/readyz").status_code == httpx.codes.OK
        except httpx.HTTPError:
            return False

    def request(
        self,
        method: str,
        path: str,
        body: Json | list[Json] | None = None,
        *,
        content_type: str = "application/json",
        accept: str = "application/json",
        query: Mapping[str, str | int | bool] | None = None,
    ) -> Json:
        """One request; the answer's JSON. While the server is too busy it is sent again.

        An API server that has just come up, or was just given a CRD, answers 429 "storage is
        (re)initializing" for some seconds.

        Raises:
            ApiError: any status but a success.
            httpx.HTTPError: no answer.
        """
        content = None if body is None else json.dumps(body, ensure_ascii=False).encode()
        headers = {"Content-Type": content_type, "Accept": accept}
        give_up_at = time.monotonic() + BUSY_S
        while True:
            answer = self._http.request(
                method, path, content=content, headers=headers, params=query
            )
            is_busy = answer.status_code == httpx.codes.TOO_MANY_REQUESTS
            if not is_busy or time.monotonic() > give_up_at:
                break
            time.sleep(BUSY_PAUSE_S)
        said: Json = answer.json() if answer.content[:1] == b"{" else {"message": answer.text}
        if answer.is_error:
            raise ApiError(answer.status_code, said.get("reason", ""), said.get("message", ""))
        return said

    def get(self, path: str, **query: str | int | bool) -> Json:
        """The object or list at `path`."""
        return self.request("GET", path, query=query)

    def items(self, path: str, **query: str | int | bool) -> list[Json]:
        """The members of the list at `path`."""
        members: list[Json] = self.get(path, **query)["items"]
        return members

    def exists(self, path: str) -> bool:
        """Whether there is an object at `path`."""
        try:
            self.get(path)
        except ApiError as error:
            if error.status == httpx.codes.NOT_FOUND:
                return False
            raise
        return True

    def create(self, document: Json) -> Json:
        """Create the object; it goes to namespace `default` where it names none."""
        return self.request("POST", self.path(document, named=False), document)

    def apply(self, document: Json) -> Json:
        """Create the object or make it so (server-side apply, conflicts won)."""
        query: dict[str, str | int | bool] = {"fieldManager": "testbed", "force": True}
        return self.request(
            "PATCH", self.path(document), document,
            content_type="application/apply-patch+yaml", query=query,
        )  # fmt: skip

    def patch(self, path: str, change: Json) -> Json:
        """Merge `change` into the object at `path`; a null removes its key."""
        return self.request("PATCH", path, change, content_type="application/merge-patch+json")

    def delete(self, path: str, *, grace_s: int | None = None, uid: str | None = None) -> None:
        """Delete the object, or all of a list; absent is fine. 0 seconds of grace means at once."""
        options: Json = {"kind": "DeleteOptions", "apiVersion": "v1"}
        options |= {} if grace_s is None else {"gracePeriodSeconds": grace_s}
        options |= {} if uid is None else {"preconditions": {"uid": uid}}
        try:
            self.request("DELETE", path, options)
        except ApiError as error:
            if error.status != httpx.codes.NOT_FOUND:
                raise

    def bind(self, pod: Json, node: str, *, annotations: Mapping[str, str] | None = None) -> None:
        """Bind by hand, as an extender does: node and annotations in one write, for this UID only.

        Raises:
            ApiError: 409 when it is bound already, is being deleted, or is another pod by now.
        """
        metadata = pod["metadata"]
        binding = {
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": {
                "name": metadata["name"],
                "uid": metadata["uid"],
                "annotations": dict(annotations or {}),
            },
            "target": {"apiVersion": "v1", "kind": "Node", "name": node},
        }
        self.request("POST", f"{self.path(pod)}/binding", binding)

    def path(self, document: Json, *, named: bool = True) -> str:
        """Where the object, or with `named=False` its collection, is found.

        Raises:
            ApiError: 404 when the server does not know the kind.
        """
        version, kind = document.get("apiVersion", "v1"), document.get("kind", "Pod")
        root = f"/api/{version}" if "/" not in version else f"/apis/{version}"
        if (version, kind) not in self._kinds:
            for each in self.get(root)["resources"]:
                if "/" not in each["name"]:
                    self._kinds[version, each["kind"]] = each["name"], each["namespaced"]
        if (version, kind) not in self._kinds:
            raise ApiError(httpx.codes.NOT_FOUND, "NotFound", f"{version} has no kind {kind}")
        plural, namespaced = self._kinds[version, kind]
        metadata = document["metadata"]
        if namespaced:
            root += f"/namespaces/{metadata.get('namespace', 'default')}"
        return f"{root}/{plural}/{metadata['name']}" if named else f"{root}/{plural}"


def apply_all(api: Api, documents: Iterable[Json]) -> None:
    """Apply in the order given, waiting after each CRD until its kind is served."""
    for document in documents:
        api.apply(document)
        if document["kind"] == "CustomResourceDefinition":
            served = functools.partial(_is_served, api, document)
            wait_until(served, what=f"{document['metadata']['name']} served")


def _is_served(api: Api, definition: Json) -> bool:
    """Whether objects of the kind can be created: it is in the discovery of its first version."""
    spec = definition["spec"]
    try:
        found = api.get(f"/apis/{spec['group']}/{spec['versions'][0]['name']}")["resources"]
    except ApiError:
        return False
    return any(each["kind"] == spec["names"]["kind"] for each in found)


def wait_until(
    is_so: Callable[[], object], *, what: str, timeout_s: float = 120.0, pause_s: float = 0.05
) -> None:
    """Ask until the answer is true.

    Raises:
        TimeoutError: it was not in time; the message names `what`.
    """
    deadline = time.monotonic() + timeout_s
    while not is_so():
        if time.monotonic() > deadline:
            raise TimeoutError(f"not so after {timeout_s:g} s: {what}")
        time.sleep(pause_s)
