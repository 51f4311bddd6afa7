"""The four calls of kube-scheduler over HTTP.

The bodies are read and written by pydantic's own parser, past FastAPI's model handling: with five
hundred names a call that is most of the time. What is wrong with a request's *form* is 4xx with a
sentence; what is wrong with its *meaning* is 200 with ``Error``, all that kube-scheduler reads.
"""

import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from fastapi import APIRouter, HTTPException, Request, Response
from pydantic import BaseModel, ValidationError
from pydantic_core import to_json

from scheduler.extender.scheduling import RefusedError
from scheduler.extender.service import Service
from scheduler.extender.wire import (
    ExtenderArgs,
    ExtenderBindingArgs,
    ExtenderBindingResult,
    ExtenderFilterResult,
    ExtenderPreemptionArgs,
    ExtenderPreemptionResult,
    HostPriority,
    Message,
    NamedPod,
    Reader,
)
from scheduler.settings import Settings

_FILTER = Reader(ExtenderArgs)
_BIND = Reader(ExtenderBindingArgs)
_PREEMPT = Reader(ExtenderPreemptionArgs)


class ProblemDetail(BaseModel):
    """Why a request was not taken."""

    detail: str


_PROBLEMS: dict[int | str, dict[str, Any]] = {
    400: {"model": ProblemDetail, "description": "the body is not JSON"},
    413: {"model": ProblemDetail, "description": "the body is too large"},
    422: {"model": ProblemDetail, "description": "the JSON is not the message that the call takes"},
}


def router(service: Service) -> APIRouter:
    """The routes of filter, prioritize, bind and preempt."""
    routes = APIRouter(tags=["kube-scheduler"])

    @routes.post("/filter", response_model=ExtenderFilterResult, **asks(ExtenderArgs))
    async def filter_nodes(request: Request) -> Response:
        """Which nodes can hold the pod, and why the others cannot."""
        return await _answer(service, "filter", request, _FILTER, _filter)

    @routes.post("/prioritize", response_model=list[HostPriority], **asks(ExtenderArgs))
    async def prioritize_nodes(request: Request) -> Response:
        """A score of 0 to 10 for every node asked about."""
        return await _answer(service, "prioritize", request, _FILTER, _prioritize)

    @routes.post("/bind", response_model=ExtenderBindingResult, **asks(ExtenderBindingArgs))
    async def bind_pod(request: Request) -> Response:
        """Bind the pod to the node, with its GPU and its limits; idempotent."""
        return await _answer(service, "bind", request, _BIND, _bind)

    @routes.post(
        "/preempt", response_model=ExtenderPreemptionResult, **asks(ExtenderPreemptionArgs)
    )
    async def preempt_pods(request: Request) -> Response:
        """On which nodes evicting makes room on one GPU, and whom to evict there."""
        return await _answer(service, "preempt", request, _PREEMPT, _preempt)

    return routes


async def _filter(service: Service, args: ExtenderArgs) -> Mapping[str, Any]:
    whole = args.NodeNames is None and args.Nodes is not None
    try:
        service.ready_or_refuse()
        names = args.names()
        service.on_filter(args.Pod)
        answer = service.decider.filter(args.Pod, names)
        if service.watches and answer.refused and not answer.passing:
            answer = await service.second_look.answer(args.Pod, names, answer)
    except RefusedError as error:
        return _filter_result(Error=tellable(str(error)), NodeNames=None if whole else [])
    nodes = None
    if whole and args.Nodes is not None:
        objects = {node["metadata"]["name"]: node for node in args.Nodes["items"] or []}
        nodes = {**args.Nodes, "items": [objects[name] for name in answer.passing]}
    return _filter_result(
        Nodes=nodes,
        NodeNames=None if whole else answer.passing,
        FailedNodes={n: tellable(r.reason) for n, r in answer.refused.items() if r.resolvable},
        FailedAndUnresolvableNodes={
            n: tellable(r.reason) for n, r in answer.refused.items() if not r.resolvable
        },
    )


async def _prioritize(service: Service, args: ExtenderArgs) -> list[dict[str, Any]]:
    names = args.names()
    try:
        service.ready_or_refuse()
        scores = service.decider.prioritize(args.Pod, names)
    except RefusedError as error:
        # The call has no field for an error; equal scores leave the choice to the scheduler's own.
        service.log_refusal("prioritize", str(error))
        scores = dict.fromkeys(names, 0)
    return [{"Host": name, "Score": score} for name, score in scores.items()]


async def _bind(service: Service, args: ExtenderBindingArgs) -> Mapping[str, Any]:
    try:
        service.ready_or_refuse()
        await service.binder.bind(args)
    except RefusedError as error:
        return {"Error": tellable(str(error))}
    return {"Error": ""}


async def _preempt(service: Service, args: ExtenderPreemptionArgs) -> Mapping[str, Any]:
    try:
        service.ready_or_refuse()
        answer = service.preemptor.preempt(args)
    except RefusedError as error:
        # No field for an error here either; no node is answered, so nobody is evicted.
        service.log_refusal("preempt", str(error))
        answer = {}
    return {"NodeNameToMetaVictims": {n: v.model_dump() for n, v in answer.items()}}


async def _answer(
    service: Service,
    verb: str,
    request: Request,
    reader: Reader[Message],
    call: Callable[[Service, Message], Awaitable[Any]],
) -> Response:
    began = time.perf_counter()
    args = await read_body(request, reader, service.settings)
    content = to_json(await call(service, args), inf_nan_mode="null")
    service.metrics.call_duration.labels(verb).observe(time.perf_counter() - began)
    return Response(content, media_type="application/json")


async def read_body(request: Request, reader: Reader[Message], settings: Settings) -> Message:
    """The message in the body; FastAPI's HTTPException with 400, 413 or 422 where there is none."""
    body = await _bytes(request, settings.body_max_mib * 2**20)
    try:
        return reader.read(body)
    except ValidationError as error:
        raise _malformed(error, reader.kind.__name__) from None


async def _bytes(request: Request, most: int) -> bytes:
    """The body, refused as soon as it is known to be too large."""
    too_large = HTTPException(413, f"the body is larger than {most:,} bytes (ESG_BODY_MAX_MIB)")
    length = request.headers.get("content-length", "")
    if length.isdecimal() and int(length) > most:
        raise too_large
    parts, size = [], 0
    async for part in request.stream():
        size += len(part)
        if size > most:
            raise too_large
        parts.append(part)
    return b"".join(parts)


def _malformed(error: ValidationError, kind: str) -> HTTPException:
    first = error.errors(include_url=False, include_input=False)[0]
    if first["type"] == "json_invalid":
        return HTTPException(400, f"the body is not JSON: {first['msg']}")
    place = ".".join(str(part) for part in first["loc"]) or kind
    more = f" (and {error.error_count() - 1} more)" if error.error_count() > 1 else ""
    return HTTPException(422, f"this is no {kind}: {place}: {first['msg']}{more}")


def tellable(text: str) -> str:
    """The text without percent signs.

    kube-scheduler takes what it tells in the Event FailedScheduling for a Go format string
    (v1.34, pkg/scheduler/schedule_one.go, handleSchedulingFailure), and "40 % free" would come out
    as "40 %!f(MISSING)ree".
    """
    return text.replace("%", "percent")


def _filter_result(**fields: Any) -> dict[str, Any]:
    return {
        "Nodes": None,
        "NodeNames": None,
        "FailedNodes": {},
        "FailedAndUnresolvableNodes": {},
        "Error": "",
    } | fields


def asks(kind: type[BaseModel]) -> dict[str, Any]:
    """What OpenAPI says of the request body, which FastAPI does not read for us."""
    schema = kind.model_json_schema(ref_template="#/components/schemas/{model}")
    schema.pop("$defs", None)
    return {
        "responses": _PROBLEMS,
        "openapi_extra": {
            "requestBody": {"required": True, "content": {"application/json": {"schema": schema}}}
        },
    }


def request_schemas() -> dict[str, Any]:
    """The components that the request bodies refer to."""
    components: dict[str, Any] = {}
    for kind in (ExtenderArgs, ExtenderBindingArgs, ExtenderPreemptionArgs, NamedPod):
        schema = kind.model_json_schema(ref_template="#/components/schemas/{model}")
        components |= schema.get("$defs", {})
    return components
