"""JSON documents of the gateways' health ports: by URL, or through the API server's proxy."""

import json
from pathlib import Path
from typing import Any
from urllib.parse import quote

import aiohttp
import typer

from scheduler.cluster.api import Api, connect
from scheduler.cluster.errors import ApiError, ClusterError
from scheduler.model.message_text import quoted, reason_of

_COMPONENT = "app.kubernetes.io/component"
_GATEWAY = "gateway"  # of a group: gateway-GROUP
# Each node has an agent; the others are few.
_PODS = {"labelSelector": f"app.kubernetes.io/name=esg-scheduler,{_COMPONENT}!=agent"}
_HEALTH_PORT = 8890
_ENDED = {"Succeeded", "Failed"}  # phases of pods that answer no more, as after an eviction
_TIMEOUT = aiohttp.ClientTimeout(total=10)


class GatewayReadError(Exception):
    """No gateway could be read; the message says why, and what to do."""


async def read_documents(
    path: str, url: str, kubeconfig: Path | None, *, is_one_enough: bool = False
) -> dict[str, Any]:
    """Return the document of each gateway that has it, by the gateway's name.

    A gateway that cannot be read while others can is a warning.

    Args:
        path: path of the document, from ``/v1`` on.
        url: URL of one gateway's health port; empty: all gateways of the cluster.
        kubeconfig: kubeconfig file; None: as `scheduler.cluster.api.connect`.
        is_one_enough: true if the document of any gateway answers the question.

    Raises:
        GatewayReadError: no gateway could be read.
    """
    try:
        if url:
            return await _read_url(path, url.rstrip("/"))
        async with connect(kubeconfig) as api:
            documents, problems = await _read_pods(api, path)
    except ClusterError as error:
        raise GatewayReadError(str(error)) from None
    if problems and not documents:
        raise GatewayReadError(problems[-1])
    for problem in () if is_one_enough else problems:
        typer.echo(f"warning: without {problem}", err=True)
    return documents


def other_port(url: str) -> str:
    """Return what to do about a URL that has no documents of a gateway; empty: about all pods."""
    return f"give a gateway's health port{f' in place of {url}' if url else ' by --from'}"


async def _read_url(path: str, url: str) -> dict[str, Any]:
    try:
        async with (
            aiohttp.ClientSession(timeout=_TIMEOUT) as session,
            session.get(url + quote(path)) as answer,
        ):
            text = await answer.text()
    except (aiohttp.InvalidURL, aiohttp.NonHttpUrlClientError):
        raise GatewayReadError(f"{quoted(url)} is no URL; write http://HOST:8890") from None
    except (aiohttp.ClientError, TimeoutError, ValueError) as error:
        reason = reason_of(error) or f"no answer within {_TIMEOUT.total:g} s"
        raise GatewayReadError(
            f"cannot read {url}: {reason}; give a gateway's health port"
        ) from None
    if answer.status == 404:  # noqa: PLR2004
        return {}
    if not answer.ok:
        raise GatewayReadError(f"{url}{path} answered {answer.status}: {text[:200]}")
    try:
        return {url: json.loads(text)}
    except ValueError:
        raise GatewayReadError(f"{url}{path} answered no JSON; {other_port(url)}") from None


async def _read_pods(api: Api, path: str) -> tuple[dict[str, Any], list[str]]:
    """Return the documents by pod, and the problems of pods that cannot be read."""
    pods = [
        pod
        for pod in (await api.get("/api/v1/pods", query=_PODS))["items"]
        if pod["metadata"]["labels"].get(_COMPONENT, "").partition("-")[0] == _GATEWAY
        and (pod.get("status") or {}).get("phase") not in _ENDED
    ]
    if not pods:
        raise GatewayReadError("the cluster has no gateway pod; give --from URL")
    documents: dict[str, Any] = {}
    problems = []
    for pod in pods:
        namespace, name = pod["metadata"]["namespace"], pod["metadata"]["name"]
        proxy = f"/api/v1/namespaces/{namespace}/pods/{name}:{_HEALTH_PORT}/proxy"
        try:
            documents[name] = await api.get(proxy + quote(path))
        except ApiError as error:
            if error.status != 404:  # noqa: PLR2004
                problems.append(f"pod {namespace}/{name}: {error}")
        except ClusterError as error:
            problems.append(f"pod {namespace}/{name}: {error}")
    return documents, problems
