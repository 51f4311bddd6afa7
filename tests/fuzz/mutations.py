"""HTTP requests, and their mutations: bytes, JSON trees, headers that lie, paths and methods."""

import json
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any
from urllib.parse import quote

METHODS = (
    "GET",
    "POST",
    "PUT",
    "HEAD",
    "DELETE",
    "OPTIONS",
    "TRACE",
    "PATCH",
    "CONNECT",
    "get",
    "",
)
VALUES: tuple[Any, ...] = (
    None, True, False, 0, -1, 1, 2**31, 2**63, 2**64, 10**30, 0.5, -0.0, 1e308, "", "x", "0",
    "\x00", "x" * 5_000, "\u202e", "💥", "../../etc", "nan", [], {}, [[]], {"": None}, [None] * 50,
)  # fmt: skip
TEXTS = (b"NaN", b"-Infinity", b"1e999", b'"\\ud800"', b"[" * 3_000, b'{"a":' * 3_000, b"{", b"")
HEADERS = (
    ("Content-Length", "0"), ("Content-Length", "-1"), ("Content-Length", "1e3"),
    ("Content-Length", "99999999999999999999"), ("Content-Length", "5, 6"), ("Content-Length", ""),
    ("Transfer-Encoding", "chunked"), ("Transfer-Encoding", "gzip"), ("Expect", "100-continue"),
    ("Content-Type", "text/plain"), ("Content-Type", "application/octet-stream"),
    ("Content-Encoding", "gzip"), ("Connection", "close"), ("Connection", "upgrade"),
    ("Upgrade", "websocket"), ("Host", ""), ("Host", "a b"), ("Accept", "\x01"), ("X", "y" * 9_000),
    ("X", "\xff\xfe"), ("", "empty"), ("a b", "c"), ("Cookie", "=;" * 1_000),
    ("Inference-Header-Content-Length", "3"), ("Inference-Header-Content-Length", "-3"),
    ("Inference-Header-Content-Length", "999999999"), ("Traceparent", "00-" + "0" * 60),
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class HttpRequest:
    """One HTTP request, as it is written.

    Attributes:
        expected: status of the answer to this very request; 0 where that is open.
        is_cut: the client closes its side after the request.
    """

    method: str
    path: str
    body: bytes = b""
    headers: tuple[tuple[str, str], ...] = ()
    expected: int = 200
    version: str = "HTTP/1.1"
    is_cut: bool = field(default=False)

    def wire(self) -> bytes:
        """Return its bytes."""
        headers = self.headers
        names = {name.lower() for name, _ in headers}
        if "host" not in names:
            headers = (("Host", "fuzz"), *headers)
        if self.body and not names & {"content-length", "transfer-encoding"}:
            headers = (*headers, ("Content-Length", str(len(self.body))))
        lines = [f"{self.method} {self.path} {self.version}"]
        lines += [f"{name}: {value}" for name, value in headers]
        head = "\r\n".join(lines) + "\r\n\r\n"
        return head.encode("latin-1", "replace") + self.body


def json_request(path: str, document: Any, *, expected: int = 200) -> HttpRequest:
    """Create a POST of JSON."""
    headers = (("Content-Type", "application/json"),)
    return HttpRequest("POST", path, json.dumps(document).encode(), headers, expected)


def mutate(random: Random, request: HttpRequest) -> HttpRequest:
    """Return a mutation of a request; it expects no particular status."""
    changed = replace(request, expected=0)
    for _ in range(random.choice((1, 1, 1, 2, 3))):
        change = random.choice(_CHANGES if request.body else _HEAD_CHANGES)
        changed = change(random, changed)
    return changed


def garbage(random: Random) -> bytes:
    """Return bytes that are no request."""
    return bytes(random.randrange(256) for _ in range(random.randint(1, 300))) + b"\r\n\r\n"


def mutated_bytes(random: Random, text: bytes) -> bytes:
    """Return bytes with some replaced, removed, repeated or added."""
    result = bytearray(text)
    for _ in range(random.choice((1, 1, 2, 8))):
        at = random.randrange(len(result) + 1)
        match random.randrange(5):
            case 0 if at < len(result):
                result[at] = random.randrange(256)
            case 1:
                del result[at : at + random.choice((1, 2, 16, 200))]
            case 2:
                result[at:at] = result[at : at + random.choice((1, 8, 64))] * random.choice((1, 50))
            case 3:
                result[at:at] = bytes(random.randrange(256) for _ in range(random.randint(1, 8)))
            case _:
                result[at:at] = random.choice(TEXTS)
    return bytes(result)


def _mutated_body(random: Random, request: HttpRequest) -> HttpRequest:
    return replace(request, body=mutated_bytes(random, request.body))


def _mutated_tree(random: Random, request: HttpRequest) -> HttpRequest:
    try:
        document = json.loads(request.body)
    except (ValueError, RecursionError):
        return _mutated_body(random, request)
    for _ in range(random.choice((1, 1, 2, 5))):
        document = _mutated_value(random, document)
    return replace(request, body=json.dumps(document).encode())


def _mutated_value(random: Random, value: Any) -> Any:
    """Change one value somewhere in a document."""
    if not isinstance(value, dict | list) or not value or random.random() < 0.15:
        return random.choice(VALUES)
    return _mutated_list(random, value) if isinstance(value, list) else _mutated_map(random, value)


def _mutated_map(random: Random, value: dict[str, Any]) -> dict[str, Any]:
    key = random.choice(list(value))
    match random.randrange(8):
        case 0:
            return {k: v for k, v in value.items() if k != key}
        case 1:
            return {**value, random.choice(("", "x", key.upper(), key * 100)): value[key]}
    return {**value, key: _mutated_value(random, value[key])}


def _mutated_list(random: Random, value: list[Any]) -> list[Any]:
    at = random.randrange(len(value))
    match random.randrange(10):
        case 0 | 1:
            return value[:at] + value[at + 1 :]
        case 2:
            return value * random.choice((2, 100))
    return [*value[:at], _mutated_value(random, value[at]), *value[at + 1 :]]


def _truncated(random: Random, request: HttpRequest) -> HttpRequest:
    length = (("Content-Length", str(len(request.body))),)
    part = request.body[: random.randrange(len(request.body) + 1)]
    return replace(request, body=part, headers=request.headers + length, is_cut=True)


def _lying_header(random: Random, request: HttpRequest) -> HttpRequest:
    header = random.choice(HEADERS)
    return replace(request, headers=(*request.headers, header), is_cut=True)


def _chunked(random: Random, request: HttpRequest) -> HttpRequest:
    size = random.choice((f"{len(request.body):x}", "0", "-1", "zz", "ffffffffffffffff", ""))
    body = f"{size}\r\n".encode() + request.body + random.choice((b"\r\n0\r\n\r\n", b"", b"\r\n"))
    headers = (*request.headers, ("Transfer-Encoding", "chunked"))
    return replace(request, body=body, headers=headers, is_cut=True)


def _other_method(random: Random, request: HttpRequest) -> HttpRequest:
    return replace(request, method=random.choice(METHODS), is_cut=True)


def _other_path(random: Random, request: HttpRequest) -> HttpRequest:
    text = mutated_bytes(random, request.path.encode())[:4_000]
    path = random.choice(
        (
            quote(text),
            request.path + quote(text),
            request.path + "?" + quote(text, safe="=&%"),
            request.path + "/%00/%ff/..",
            "/" + "a/" * 2_000,
            "*",
            "http://other" + request.path,
        )
    )
    return replace(request, path=path)


def _other_version(random: Random, request: HttpRequest) -> HttpRequest:
    versions = ("HTTP/1.0", "HTTP/2.0", "HTTP/0.9", "HTTP/1.2", "HTP/1.1", "", "HTTP/1.1 x")
    return replace(request, version=random.choice(versions), is_cut=True)


def _many_headers(random: Random, request: HttpRequest) -> HttpRequest:
    headers = tuple((f"X-{number}", "y") for number in range(random.choice((50, 500, 3_000))))
    return replace(request, headers=request.headers + headers)


_Change = Callable[[Random, HttpRequest], HttpRequest]
_HEAD_CHANGES: tuple[_Change, ...] = (
    _other_method, _other_path, _lying_header, _other_version, _many_headers,
)  # fmt: skip
_CHANGES: tuple[_Change, ...] = (
    *(_mutated_tree,) * 8, *(_mutated_body,) * 4, _truncated, _chunked, *_HEAD_CHANGES,
)  # fmt: skip
