"""Client of the API server for tests: raw JSON, so that a test asserts on stored objects.

A generated client's models would hide unknown fields, and its requests cost several times as much.
Paths of objects come from the server's own discovery, so new custom resources need no code here.
"""

import functools
import json
import ssl
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import httpx

from tests.testbed.pki import Certificate

Json = dict[str, Any]
"""A Kubernetes object, or part of one, in the API server's JSON."""


BUSY_S = 60.0
BUSY_PAUSE_S = 0.2


class ApiError(RuntimeError):
    """The API server refused a request.

    Attributes:
        status: the HTTP status.
        reason: the Status object's reason, such as `Conflict`; empty if it has none.
    """

    def __init__(self, status: int, reason: str, message: str) -> None:
        super().__init__(f"{status} {reason}: {message}")
        self.status = status
        self.reason = reason


def tls_context(ca: Path, certificate: Certificate) -> ssl.SSLContext:
    """Trust only `ca`, and present `certificate` to the server."""
    context = ssl.create_default_context(cafile=str(ca))
    context.load_cert_chain(str(certificate.certificate), str(certificate.key))
    return context


class Api:
    """A synchronous client for one user.

    Args:
        url: such as `https://127.0.0.1:21000`.
        context: trusted authority and client certificate; see `tls_context`.
    """

    def __init__(self, url: str, context: ssl.SSLContext) -> None:
        self._http = httpx.Client(base_url=url, verify=context, timeout=30, trust_env=False)
        self._kinds: dict[tuple[str, str], tuple[str, bool]] = {}

    def close(self) -> None:
        """Close the connections."""
        self._http.close()

    def is_ready(self) -> bool:
        """Return true if `/readyz` answers 200."""
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
        """Send a request, again while the server is too busy; return the answer's JSON.

        An API server that has just started, or just received a CRD, answers 429 "storage is
        (re)initializing" for some seconds.

        Raises:
            ApiError: any status but a success.
            httpx.HTTPError: no answer.
        """
        sent = None if body is None else json.dumps(body, ensure_ascii=False).encode()
        headers = {"Content-Type": content_type, "Accept": accept}
        deadline_s = time.monotonic() + BUSY_S
        while True:
            answer = self._http.request(method, path, content=sent, headers=headers, params=query)
            is_busy = answer.status_code == httpx.codes.TOO_MANY_REQUESTS
            if not is_busy or time.monotonic() > deadline_s:
                break
            time.sleep(BUSY_PAUSE_S)
        content: Json = answer.json() if answer.content[:1] == b"{" else {"message": answer.text}
        if answer.is_error:
            reason, message = content.get("reason", ""), content.get("message", "")
            raise ApiError(answer.status_code, reason, message)
        return content

    def get(self, path: str, **query: str | int | bool) -> Json:
        """Read the object or list at `path`."""
        return self.request("GET", path, query=query)

    def items(self, path: str, **query: str | int | bool) -> list[Json]:
        """Read the members of the list at `path`."""
        members: list[Json] = self.get(path, **query)["items"]
        return members

    def watch(self, path: str, version: str, *, timeout_s: int = 30) -> Iterator[Json]:
        """Yield the events of a list's objects after a version, until the time-out."""
        query = {"watch": "true", "resourceVersion": version, "timeoutSeconds": timeout_s}
        with self._http.stream("GET", path, params=query) as answer:
            for line in answer.iter_lines():
                yield json.loads(line)

    def exists(self, path: str) -> bool:
        """Return true if there is an object at `path`."""
        try:
            self.get(path)
        except ApiError as error:
            if error.status == httpx.codes.NOT_FOUND:
                return False
            raise
        return True

    def create(self, document: Json) -> Json:
        """Create the object, in namespace `default` if it names none."""
        return self.request("POST", self.path(document, named=False), document)

    def apply(self, document: Json) -> Json:
        """Create or update the object (forced server-side apply)."""
        query: dict[str, str | int | bool] = {"fieldManager": "testbed", "force": True}
        return self.request(
            "PATCH", self.path(document), document,
            content_type="application/apply-patch+yaml", query=query,
        )  # fmt: skip

    def patch(self, path: str, change: Json) -> Json:
        """Merge `change` into the object at `path`; a null removes its key."""
        return self.request("PATCH", path, change, content_type="application/merge-patch+json")

    def delete(self, path: str, *, grace_s: int | None = None) -> None:
        """Delete the object or a whole list, if it exists; a grace of 0 s means immediately."""
        options: Json = {"kind": "DeleteOptions", "apiVersion": "v1"}
        options |= {} if grace_s is None else {"gracePeriodSeconds": grace_s}
        try:
            self.request("DELETE", path, options)
        except ApiError as error:
            if error.status != httpx.codes.NOT_FOUND:
                raise

    def bind(self, pod: Json, node: str, *, annotations: Mapping[str, str] | None = None) -> None:
        """Bind the pod as an extender does: node and annotations in one write, for this UID only.

        Raises:
            ApiError: 409 if it is bound already, is being deleted, or was recreated.
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
        """Return the path of the object, or with `named=False` of its collection.

        Raises:
            ApiError: 404 if the server does not know the kind.
        """
        version, kind = document.get("apiVersion", "v1"), document.get("kind", "Pod")
        root = f"/api/{version}" if "/" not in version else f"/apis/{version}"
        if (version, kind) not in self._kinds:
            for resource in self.get(root)["resources"]:
                if "/" not in resource["name"]:
                    served = resource["name"], resource["namespaced"]
                    self._kinds[version, resource["kind"]] = served
        if (version, kind) not in self._kinds:
            raise ApiError(httpx.codes.NOT_FOUND, "NotFound", f"{version} has no kind {kind}")
        plural, namespaced = self._kinds[version, kind]
        metadata = document["metadata"]
        if namespaced:
            root += f"/namespaces/{metadata.get('namespace', 'default')}"
        return f"{root}/{plural}/{metadata['name']}" if named else f"{root}/{plural}"


def apply_all(api: Api, documents: Iterable[Json]) -> None:
    """Apply the documents in order; after each CRD, wait until its kind is served."""
    for document in documents:
        api.apply(document)
        if document["kind"] == "CustomResourceDefinition":
            served = functools.partial(_is_served, api, document)
            wait_until(served, what=f"{document['metadata']['name']} served")


def _is_served(api: Api, definition: Json) -> bool:
    """Return true if the discovery of the first version names the kind."""
    spec = definition["spec"]
    try:
        resources = api.get(f"/apis/{spec['group']}/{spec['versions'][0]['name']}")["resources"]
    except ApiError:
        return False
    return any(resource["kind"] == spec["names"]["kind"] for resource in resources)


def wait_until(
    is_so: Callable[[], object], *, what: str, timeout_s: float = 120.0, pause_s: float = 0.05
) -> None:
    """Poll until the answer is true.

    Raises:
        TimeoutError: the answer was still false after `timeout_s`; the message names `what`.
    """
    deadline_s = time.monotonic() + timeout_s
    while not is_so():
        if time.monotonic() > deadline_s:
            raise TimeoutError(f"not so after {timeout_s:g} s: {what}")
        time.sleep(pause_s)
