"""Connections to the other replicas: they call one another as clients do."""

import ssl
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote

from scheduler.gateway.calls import CallError, InferAnswer, InferCall
from scheduler.gateway.http.exchange import HttpResponse
from scheduler.gateway.http.front import DEADLINE, FORWARDED
from scheduler.gateway.http.pool import HttpPool, error_text
from scheduler.oip.batch import RowRange, join
from scheduler.oip.infer_response import parse_response
from scheduler.oip.message import HEADER_LENGTH, decode

_OK = 200
_LOOK_UP_S = 5.0
_HEADER_LENGTH = HEADER_LENGTH.lower().encode()


class Peers:
    """The other replicas.

    Args:
        port: port of requests over HTTP, the same at all replicas.
        tls: returns the TLS context of a connection. Default: plain HTTP.
    """

    def __init__(self, port: int, tls: Callable[[], ssl.SSLContext] | None = None) -> None:
        self._port = port
        self._tls = tls
        self._hosts: dict[str, str] = {}
        self._pools: dict[str, HttpPool] = {}
        self._retired: list[HttpPool] = []  # with calls in flight

    def set_hosts(self, hosts: Mapping[str, str]) -> None:
        """Replace the addresses of replicas by name; calls to one that is gone go on."""
        self._hosts = dict(hosts)
        for host in self._pools.keys() - hosts.values():
            self._retired.append(self._pools.pop(host))
            self._retired[-1].retire()
        self._retired = [pool for pool in self._retired if pool.is_connected]

    def has(self, host: str) -> bool:
        """Return true for the address of a replica."""
        return host in self._hosts.values()

    def peer(self, name: str) -> "Peer | None":
        """Return a replica, or None while its address is not known."""
        host = self._hosts.get(name)
        if host is None:
            return None
        pool = self._pools.get(host)
        if pool is None:
            pool = self._pools[host] = HttpPool(host, self._port, connect_s=1.0, tls=self._tls)
        return Peer(pool)

    async def close(self) -> None:
        """Close all connections."""
        for pool in (*self._pools.values(), *self._retired):
            await pool.close()


class Peer:
    """One replica."""

    def __init__(self, pool: HttpPool) -> None:
        self._pool = pool

    async def forward(self, call: InferCall, now_ms: float) -> InferAnswer:
        """Forward a call.

        Raises:
            CallError: the answer is an error.
            MessageError: the call or the answer cannot be written or read.
            ModelServerError: there is no answer.
        """
        binary = any(tensor.is_binary for tensor in call.request.inputs)
        request = call.request.in_form(binary=binary)
        message = join([RowRange(request, 0, request.rows)], binary=binary)
        age_ms = now_ms - call.arrival_ms
        lines = [b"%b: %b\r\n" % header for header in call.headers]
        lines.append(
            f"{FORWARDED}: {age_ms:.3f}\r\nContent-Type: application/octet-stream\r\n".encode()
        )
        if call.authorization:  # the owner asks for itself: anybody can claim to be a replica
            lines.append(b"Authorization: %b\r\n" % call.authorization)
        if call.timeout_ms is not None:
            rest_ms = max(0.0, call.timeout_ms - age_ms)
            lines.append(f"{DEADLINE}: {rest_ms:.3f}\r\n".encode())
        if message.header_length is not None:
            lines.append(f"{HEADER_LENGTH}: {message.header_length}\r\n".encode())
        path = _path(call.namespace, call.workflow, call.stage)
        head = (
            f"POST {path}/infer HTTP/1.1\r\nHost: {self._pool.name}\r\n"
            f"Content-Length: {message.content_length}\r\n"
        ).encode()
        parts: list[bytes | memoryview] = [head, *lines, b"\r\n", message.header, *message.buffers]
        response = await self._pool.send(parts, None)
        _check_status(response)
        header_length = response.headers.get(_HEADER_LENGTH)
        outputs = parse_response(
            response.body,
            None if header_length is None else header_length.decode("latin-1"),
            rows=request.rows,
        )
        headers = response.headers
        return InferAnswer(
            outputs,
            float(headers.get(b"esg-queue-ms", 0)),
            float(headers.get(b"esg-execute-ms", 0)),
            int(headers.get(b"esg-batch", 0)),
            headers.get(b"esg-cold-start") == b"true",
        )

    async def metadata(self, namespace: str, workflow: str, stage: str | None) -> dict[str, Any]:
        """Return the metadata of a workflow; raises as `forward`."""
        head = (
            f"GET {_path(namespace, workflow, stage)} HTTP/1.1\r\nHost: {self._pool.name}\r\n"
            f"{FORWARDED}: 0\r\n\r\n"
        )
        response = await self._pool.send((head.encode(),), _LOOK_UP_S)
        _check_status(response)
        return decode(response.body, None)[0]


def peer_tls(certificate: Path) -> ssl.SSLContext:
    """Return a context that trusts the certificate that all replicas share, and no other one."""
    context = ssl.create_default_context(cafile=certificate)
    context.check_hostname = False  # replicas are called by their address
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    return context


def _path(namespace: str, workflow: str, stage: str | None) -> str:
    path = f"/{quote(namespace, safe='')}/v2/models/{quote(workflow, safe='')}"
    return path if stage is None else f"{path}/stages/{quote(stage, safe='')}"


def _check_status(response: HttpResponse) -> None:
    if response.status != _OK:
        retry_after = response.headers.get(b"retry-after")
        raise CallError(
            response.status,
            error_text(response.body),
            None if retry_after is None else float(retry_after),
        )
