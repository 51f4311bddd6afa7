"""Request bodies: size limit, parsing by pydantic, and their OpenAPI schema.

FastAPI's own model handling is bypassed: with five hundred node names a call it takes most of the
time. A body of the wrong form is answered with 400, 413 or 422 and a sentence.
"""

from functools import cache
from typing import Any, Generic, TypeVar

import structlog
from fastapi import HTTPException, Request
from pydantic import BaseModel, TypeAdapter, ValidationError
from starlette.requests import ClientDisconnect

log = structlog.get_logger(__name__)

Message = TypeVar("Message", bound=BaseModel)


class ProblemDetail(BaseModel):
    """Reason why a request was rejected."""

    detail: str


_PROBLEMS: dict[int | str, dict[str, Any]] = {
    400: {"model": ProblemDetail, "description": "the body is not JSON"},
    413: {"model": ProblemDetail, "description": "the body is too large"},
    422: {"model": ProblemDetail, "description": "the JSON is not the message of this call"},
}


class Reader(Generic[Message]):
    """Reads one type of message from JSON bytes."""

    def __init__(self, kind: type[Message]) -> None:
        self.kind = kind
        self._adapter: TypeAdapter[Message] = TypeAdapter(kind)

    def parse(self, body: bytes) -> Message:
        """Parse a message.

        Raises:
            HTTPException: FastAPI's, with 400 or 422.
        """
        try:
            return self._adapter.validate_json(body)
        except ValidationError as error:
            raise _malformed(error, self.kind.__name__) from None


async def read_bytes(request: Request, *, limit_mib: int) -> bytes:
    """Read the body of a request; reject it as soon as it is known to be too large.

    Raises:
        HTTPException: FastAPI's, with 400 or 413.
    """
    limit = limit_mib * 2**20
    too_large = HTTPException(413, f"the body is larger than {limit:,} bytes (ESG_BODY_MAX_MIB)")
    length = request.headers.get("content-length", "")
    if length.isdecimal() and int(length) > limit:
        raise too_large
    parts, size = [], 0
    try:
        async for part in request.stream():
            size += len(part)
            if size > limit:
                raise too_large
            parts.append(part)
    except ClientDisconnect:
        raise hung_up(request) from None
    return b"".join(parts)


def hung_up(request: Request) -> HTTPException:
    """Log that a client closed its connection within a body; nobody reads the answer."""
    log.info("client hung up within the body", path=request.url.path)
    return HTTPException(400, "the client hung up within the body")


def _malformed(error: ValidationError, kind: str) -> HTTPException:
    first = error.errors(include_url=False, include_input=False)[0]
    if first["type"] == "json_invalid":
        return HTTPException(400, f"the body is not JSON: {first['msg']}")
    place = ".".join(str(part) for part in first["loc"]) or kind
    count = error.error_count()
    suffix = f" (and {count - 1} more)" if count > 1 else ""
    return HTTPException(422, f"this is no {kind}: {place}: {first['msg']}{suffix}")


def openapi_body(kind: type[BaseModel]) -> dict[str, Any]:
    """OpenAPI's description of a request body that FastAPI does not read itself."""
    content = {"application/json": {"schema": _body_schema(kind)}}
    return {
        "responses": _PROBLEMS,
        "openapi_extra": {"requestBody": {"required": True, "content": content}},
    }


@cache  # a type has one schema, which takes pydantic several milliseconds
def _body_schema(kind: type[BaseModel]) -> dict[str, Any]:
    schema = kind.model_json_schema(ref_template="#/components/schemas/{model}")
    schema.pop("$defs", None)
    return schema
