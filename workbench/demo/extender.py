"""HTTP client of the extender: calls of kube-scheduler, of a kubelet, and of a person."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from statistics import fmean
from typing import Any

import aiohttp
from prometheus_client.parser import text_string_to_metric_families

_GPU_SHARE = "esg_gpu_granted_ratio{"
_TIMEOUT_S = 5.0  # kube-scheduler's for an extender, where its configuration sets none


class DemoError(RuntimeError):
    """The demo cannot continue."""


@dataclass(frozen=True, slots=True)
class DemoGrant:
    """Grant of a bound pod."""

    gpu_percent: int
    cpu: int
    batch: int
    stage_ms: float
    feasible: bool


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
            raise DemoError(f"filter of {pod['metadata']['name']}: {result['Error']}")
        feasible: list[str] = result["NodeNames"]
        return feasible

    async def best(self, pod: Mapping[str, Any], nodes: Sequence[str]) -> str:
        """Return the node with the highest score; the first of equals."""
        return best_node(await self._post("/prioritize", extender_arguments(pod, nodes)))

    async def bind(self, pod: Mapping[str, Any], node: str) -> str:
        """Bind a pod; return the reason of a refusal, else an empty text."""
        error: str = (await self._post("/bind", binding_arguments(pod, node)))["Error"]
        return error

    async def grant(self, pod: Mapping[str, Any]) -> DemoGrant:
        """Grant of a bound pod."""
        metadata = pod["metadata"]
        path = f"/v1/explain/{metadata['namespace']}/{metadata['name']}"
        granted = json.loads(await self._call("GET", path))["granted"]
        plan = granted["plan"]
        return DemoGrant(
            granted["gpu_percent"],
            plan["cpu"],
            granted["batch"],
            plan["stage_ms"],
            plan["feasible"],
        )

    async def finish(self, pod: Mapping[str, Any]) -> None:
        """End the pod's container with success."""
        await self._call("POST", f"{_embedded(pod)}/finish")

    async def delete(self, pod: Mapping[str, Any]) -> None:
        """Delete the pod."""
        await self._call("DELETE", _embedded(pod))

    async def gpu_utilisation_ratio(self) -> float:
        """Return the mean share that is granted, over all GPUs."""
        # Not `metrics`: parsing all of them twice a second would delay the pods.
        lines = (await self._call("GET", "/metrics")).decode().splitlines()
        shares = [float(x.rpartition(" ")[2]) for x in lines if x.startswith(_GPU_SHARE)]
        return fmean(shares) if shares else 0.0

    async def metrics(self) -> dict[str, list[tuple[dict[str, str], float]]]:
        """Return labels and values of all samples of ``/metrics``, by name."""
        text = (await self._call("GET", "/metrics")).decode()
        samples: dict[str, list[tuple[dict[str, str], float]]] = {}
        for family in text_string_to_metric_families(text):
            for sample in family.samples:
                samples.setdefault(sample.name, []).append((sample.labels, sample.value))
        return samples

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
            raise DemoError(f"{method} {path}: {type(error).__name__}: {error}") from error
        if answer.status != HTTPStatus.OK:
            raise DemoError(f"{method} {path}: {answer.status} {text.decode(errors='replace')}")
        return text


def _embedded(pod: Mapping[str, Any]) -> str:
    metadata = pod["metadata"]
    return f"/v1/embedded/pods/{metadata['namespace']}/{metadata['name']}"
