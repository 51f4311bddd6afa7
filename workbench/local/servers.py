"""Model servers by function, as the command line names them, and their state."""

from collections.abc import Iterable
from dataclasses import dataclass
from difflib import get_close_matches
from urllib.parse import urlsplit

import aiohttp

from scheduler.gateway.model_server import ModelServer, ModelServerError
from scheduler.gateway.model_servers import model_server
from scheduler.model.documents import Workflow
from scheduler.model.function_server import ServerProtocol
from scheduler.model.message_text import listed, quoted

_SCHEMES = ("http", "grpc")
_BINARY = "binary_tensor_data"  # the protocol's extension
_LOOK_UP = aiohttp.ClientTimeout(total=5)
_NOT_FOUND = 404


class LocalServerError(Exception):
    """A model server that cannot be used; the message states what to do."""


@dataclass(frozen=True, slots=True)
class ServerAddress:
    """Address of a model server; ``url`` is as the user wrote it."""

    url: str
    host: str
    port: int

    @property
    def is_grpc(self) -> bool:
        """True for gRPC, false for HTTP."""
        return self.url.startswith("grpc:")


def parse_address(url: str) -> ServerAddress:
    """Read the URL of a model server.

    Raises:
        LocalServerError: it has another form than ``grpc://HOST:PORT`` or ``http://HOST:PORT``.
    """
    parts = urlsplit(url)
    if "://" not in url:
        raise LocalServerError(f"{quoted(url)}: the URL has no scheme; write http:// or grpc://")
    if parts.scheme not in _SCHEMES:
        raise LocalServerError(
            f"{quoted(url)}: {parts.scheme!r} is not a scheme of model servers; write http or grpc"
        )
    try:
        port = parts.port
    except ValueError:
        raise LocalServerError(
            f"{quoted(url)}: the port is no number from 1 to 65535; correct it"
        ) from None
    if not parts.hostname or not port:
        raise LocalServerError(
            f"{quoted(url)}: the URL has no host and port; write {parts.scheme}://127.0.0.1:8081"
        )
    if parts.path.strip("/") or parts.query:
        raise LocalServerError(
            f"{quoted(url)}: the URL has a path; remove it, and give the name of the model by "
            "itself (`model` of a FunctionServer, or --model)"
        )
    return ServerAddress(url, parts.hostname, port)


def parse_server(text: str) -> tuple[str, ServerAddress]:
    """Read ``FUNCTION=URL``; return both.

    Raises:
        LocalServerError: the text is no function and URL of a model server.
    """
    function, equals, url = text.partition("=")
    if not (function and equals) or "://" in function:
        raise LocalServerError(
            f"{quoted(text)} is not FUNCTION=URL; write encoder=grpc://127.0.0.1:8081"
        )
    return function, parse_address(url)


def match_servers(
    servers: Iterable[tuple[str, ServerAddress]], workflows: Iterable[Workflow]
) -> dict[str, ServerAddress]:
    """Return the servers by function, one for each function of the workflows.

    Raises:
        LocalServerError: a function has no server, or several, or a server has no stage.
    """
    stages = {
        stage.function: f"stage {stage.name!r} of workflow {'/'.join(workflow.key)}"
        for workflow in workflows
        for stage in workflow.spec.stages
    }
    by_function: dict[str, ServerAddress] = {}
    for function, address in servers:
        if function not in stages:
            similar = get_close_matches(function, stages, n=1)
            hint = f"did you mean {similar[0]!r}?" if similar else f"they run {listed([*stages])}"
            raise LocalServerError(f"--server {function}: no workflow runs this function; {hint}")
        if function in by_function:
            raise LocalServerError(f"--server {function}: is given twice; keep one")
        by_function[function] = address
    for function, stage in stages.items():
        if function not in by_function:
            raise LocalServerError(
                f"{stage} runs {function!r}, which has no model server; "
                f"add --server {function}=grpc://HOST:PORT (or http://)"
            )
    return by_function


async def protocol_of(address: ServerAddress, model: str) -> ServerProtocol:
    """Return the protocol of a server that answers and has its model ready.

    Over HTTP it takes binary tensors if its metadata say so.

    Raises:
        LocalServerError: it does not answer, has no such model, or the model is not ready.
    """
    protocol: ServerProtocol = "grpc" if address.is_grpc else "http-json"
    client = model_server(protocol, address.host, address.port)
    try:
        if not await client.ready(model):
            reason = await _reason_of(client, model)
            raise LocalServerError(f"{address.url}: {reason}")
    finally:
        await client.close()
    return "http-binary" if not address.is_grpc and await _takes_binary(address) else protocol


async def _reason_of(client: ModelServer, model: str) -> str:
    """Return why a model is not ready, and what to do."""
    try:
        await client.metadata(model)
    except ModelServerError as error:
        if error.is_unreachable:
            return f"no server answers ({error}); start it, and run this again"
        if error.status == _NOT_FOUND:
            return (
                f"the server has no model {model!r} ({error}); give its name (`model` of a "
                "FunctionServer, or --model), or correct the URL"
            )
        return f"the server does not speak the protocol ({error}); is it another port of it?"
    return f"model {model!r} is not ready; run this again when it is"


async def _takes_binary(address: ServerAddress) -> bool:
    try:
        async with (
            aiohttp.ClientSession(timeout=_LOOK_UP) as session,
            session.get(f"{address.url.rstrip('/')}/v2") as answer,
        ):
            described = await answer.json(content_type=None) if answer.ok else {}
            return _BINARY in described.get("extensions", ())
    except (aiohttp.ClientError, TimeoutError, ValueError, AttributeError):
        return False
