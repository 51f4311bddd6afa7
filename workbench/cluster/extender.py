"""HTTP client of the extender: the calls of kube-scheduler."""

import json
from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import Any

import aiohttp

_TIMEOUT_S = 5.0  # kube-scheduler's for an extender, where its configuration sets none


class ExtenderError(RuntimeError):
    """A call of the extender failed."""


def extender_arguments(pod: Mapping[str, Any], nodes: Sequence[str]) -> dict[str, Any]:
    """Create the body of filter and prioritize, with names of nodes only."""
    return {"Pod": pod, "Nodes": None, "NodeNames": nodes}


def binding_arguments(pod: Mapping[str, Any], node: str) -> dict[str, str]:
    """Create the body of bind."""
    metadata = pod["metadata"]
    return {
        "PodName": metadata["name"],
        "PodNamespace": metadata["namespace"],
        "PodUID": metadata["uid"],
        "Node": node,
    }


def best_node(scores: Sequence[Mapping[str, Any]]) -> str:
    """Return the node with the highest score of prioritize; the first of equals."""
    best: str = max(scores, key=lambda score: score["Score"])["Host"]
    return best


class ExtenderClient:
    """Client of the service at ``url``."""

    def __init__(self, session: aiohttp.ClientSession, url: str) -> None:
        self._session = session
        self._url = url
        self._timeout = aiohttp.ClientTimeout(total=_TIMEOUT_S)

    async def ready(self) -> bool:
        """Return true if the service listens and is ready."""
        try:
            async with self._session.get(f"{self._url}/readyz", timeout=self._timeout) as answer:
                return answer.status == HTTPStatus.OK
        except aiohttp.ClientError:
            return False

    async def filter(self, pod: Mapping[str, Any], nodes: Sequence[str]) -> list[str]:
        """Return the feasible nodes of a pod."""
        result = await self._post("/filter", extender_arguments(pod, nodes))
        if result["Error"]:
            raise ExtenderError(f"filter of {pod['metadata']['name']}: {result['Error']}")
        feasible: list[str] = result["NodeNames"]
        return feasible

    async def best(self, pod: Mapping[str, Any], nodes: Sequence[str]) -> str:
        """Return the node with the highest score; the first of equals."""
        return best_node(await self._post("/prioritize", extender_arguments(pod, nodes)))

    async def bind(self, pod: Mapping[str, Any], node: str) -> str:
        """Bind a pod; return the reason of a refusal, else an empty text."""
        error: str = (await self._post("/bind", binding_arguments(pod, node)))["Error"]
        return error

    async def _post(self, path: str, body: Mapping[str, Any]) -> Any:
        return json.loads(await self._call("POST", path, json.dumps(body).encode()))

    async def _call(self, method: str, path: str, body: bytes | None = None) -> bytes:
        headers = {"Content-Type": "application/json"}
        try:
            async with self._session.request(
                method, self._url + path, data=body, headers=headers, timeout=self._timeout
            ) as answer:
                text = await answer.read()
        except (aiohttp.ClientError, TimeoutError) as error:
            raise ExtenderError(f"{method} {path}: {type(error).__name__}: {error}") from error
        if answer.status != HTTPStatus.OK:
            raise ExtenderError(f"{method} {path}: {answer.status} {text.decode(errors='replace')}")
        return text
