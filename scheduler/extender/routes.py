"""The four calls of kube-scheduler over HTTP: wire messages in, results of the service out.

A malformed request is answered with 4xx. A request that cannot be fulfilled is answered with 200
and ``Error``, which is all that kube-scheduler reads.
"""

import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from fastapi import APIRouter, Request, Response
from pydantic_core import to_json

from scheduler.extender.service import Service
from scheduler.extender.wire import (
    ExtenderArgs,
    ExtenderBindingArgs,
    ExtenderBindingResult,
    ExtenderFilterResult,
    ExtenderPreemptionArgs,
    ExtenderPreemptionResult,
    HostPriority,
)
from scheduler.server.errors import RefusedError
from scheduler.server.messages import Message, Reader, openapi_body, read_body

_ARGS = Reader(ExtenderArgs)
_BIND = Reader(ExtenderBindingArgs)
_PREEMPT = Reader(ExtenderPreemptionArgs)


def router(service: Service) -> APIRouter:
    """Build the routes of filter, prioritize, bind and preempt."""
    routes = APIRouter(tags=["kube-scheduler"])

    @routes.post("/filter", response_model=ExtenderFilterResult, **openapi_body(ExtenderArgs))
    async def filter_nodes(request: Request) -> Response:
        """Select the nodes that can hold the pod, with the reasons of the others."""
        return await _answer(service, "filter", request, _ARGS, _filter)

    @routes.post("/prioritize", response_model=list[HostPriority], **openapi_body(ExtenderArgs))
    async def prioritize_nodes(request: Request) -> Response:
        """Score every node of the request, 0 to 10."""
        return await _answer(service, "prioritize", request, _ARGS, _prioritize)

    @routes.post("/bind", response_model=ExtenderBindingResult, **openapi_body(ExtenderBindingArgs))
    async def bind_pod(request: Request) -> Response:
        """Bind the pod to the node, with its GPU and its limits; idempotent."""
        return await _answer(service, "bind", request, _BIND, _bind)

    @routes.post(
        "/preempt",
        response_model=ExtenderPreemptionResult,
        **openapi_body(ExtenderPreemptionArgs),
    )
    async def preempt_pods(request: Request) -> Response:
        """Select the nodes where eviction frees enough of one GPU, with the victims there."""
        return await _answer(service, "preempt", request, _PREEMPT, _preempt)

    return routes


async def _filter(service: Service, args: ExtenderArgs) -> Mapping[str, Any]:
    whole = args.NodeNames is None and args.Nodes is not None
    try:
        decision = await service.filter(args.Pod, args.names())
    except RefusedError as error:
        return _filter_result(NodeNames=None if whole else [], Error=escape_percent(str(error)))
    reasons: dict[str, dict[str, str]] = {"FailedNodes": {}, "FailedAndUnresolvableNodes": {}}
    failed, unresolvable = reasons.values()
    for refusal, names in decision.refusals.groups:
        texts = dict.fromkeys(names, escape_percent(refusal.reason))
        (failed if refusal.resolvable else unresolvable).update(texts)
    if not whole or args.Nodes is None:
        return _filter_result(NodeNames=decision.passing, **reasons)
    objects = {node["metadata"]["name"]: node for node in args.Nodes["items"] or []}
    items = [objects[name] for name in decision.passing]
    return _filter_result(Nodes={**args.Nodes, "items": items}, **reasons)


async def _prioritize(service: Service, args: ExtenderArgs) -> list[dict[str, Any]]:
    scores = await service.prioritize(args.Pod, args.names())
    return [{"Host": name, "Score": score} for name, score in scores.items()]


async def _bind(service: Service, args: ExtenderBindingArgs) -> Mapping[str, Any]:
    try:
        await service.bind(args)
    except RefusedError as error:
        return {"Error": escape_percent(str(error))}
    return {"Error": ""}


async def _preempt(service: Service, args: ExtenderPreemptionArgs) -> Mapping[str, Any]:
    victims = await service.preempt(args)
    return {"NodeNameToMetaVictims": {node: v.model_dump() for node, v in victims.items()}}


async def _answer(
    service: Service,
    verb: str,
    request: Request,
    reader: Reader[Message],
    call: Callable[[Service, Message], Awaitable[Any]],
) -> Response:
    began_s = time.perf_counter()
    args = await read_body(request, reader, limit_mib=service.settings.body_max_mib)
    content = to_json(await call(service, args), inf_nan_mode="null")
    service.metrics.call_duration.labels(verb).observe(time.perf_counter() - began_s)
    return Response(content, media_type="application/json")


def escape_percent(text: str) -> str:
    """Replace percent signs.

    kube-scheduler passes the message of its Event FailedScheduling to Go's Sprintf as the format
    (v1.34, pkg/scheduler/schedule_one.go, handleSchedulingFailure): "40 % free" would come out as
    "40 %!f(MISSING)ree".
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


def request_schemas() -> dict[str, Any]:
    """OpenAPI components that the request bodies refer to."""
    components: dict[str, Any] = {}
    for kind in (ExtenderArgs, ExtenderBindingArgs, ExtenderPreemptionArgs):
        schema = kind.model_json_schema(ref_template="#/components/schemas/{model}")
        components |= schema.get("$defs", {})
    return components
