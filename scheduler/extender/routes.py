"""The four calls of kube-scheduler over HTTP: wire messages in, results of the service out.

A malformed request is answered with 4xx. A request that cannot be fulfilled is answered with 200
and ``Error``, which is all that kube-scheduler reads.
"""

import time
from collections.abc import Awaitable, Callable, Iterable
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
    read_args,
    reasons_json,
)
from scheduler.placement.reasons import Group
from scheduler.server.errors import RefusedError
from scheduler.server.messages import Reader, openapi_body, read_bytes

_BIND = Reader(ExtenderBindingArgs)
_PREEMPT = Reader(ExtenderPreemptionArgs)


def router(service: Service) -> APIRouter:
    """Build the routes of filter, prioritize, bind and preempt."""
    routes = APIRouter(tags=["kube-scheduler"])

    @routes.post("/filter", response_model=ExtenderFilterResult, **openapi_body(ExtenderArgs))
    async def filter_nodes(request: Request) -> Response:
        """Select the nodes that can hold the pod, with the reasons of the others."""
        return await _answer(service, "filter", request, _filter)

    @routes.post("/prioritize", response_model=list[HostPriority], **openapi_body(ExtenderArgs))
    async def prioritize_nodes(request: Request) -> Response:
        """Score every node of the request, 0 to 10."""
        return await _answer(service, "prioritize", request, _prioritize)

    @routes.post("/bind", response_model=ExtenderBindingResult, **openapi_body(ExtenderBindingArgs))
    async def bind_pod(request: Request) -> Response:
        """Bind the pod to the node, with its GPU and its limits; idempotent."""
        return await _answer(service, "bind", request, _bind)

    @routes.post(
        "/preempt",
        response_model=ExtenderPreemptionResult,
        **openapi_body(ExtenderPreemptionArgs),
    )
    async def preempt_pods(request: Request) -> Response:
        """Select the nodes where eviction frees enough of one GPU, with the victims there."""
        return await _answer(service, "preempt", request, _preempt)

    return routes


async def _filter(service: Service, body: bytes) -> bytes:
    args, nodes = read_args(body, service.state.ledger.fleet.index)
    whole = args.NodeNames is None and args.Nodes is not None
    try:
        decision = await service.filter(args.Pod, nodes)
    except RefusedError as error:
        return _filter_result(NodeNames=None if whole else [], Error=escape_percent(str(error)))
    groups = decision.refusals.groups
    if not whole or args.Nodes is None:
        return _filter_result(groups, NodeNames=decision.passing)
    objects = {node["metadata"]["name"]: node for node in args.Nodes["items"] or []}
    items = [objects[name] for name in decision.passing]
    return _filter_result(groups, Nodes={**args.Nodes, "items": items})


async def _prioritize(service: Service, body: bytes) -> bytes:
    args, nodes = read_args(body, service.state.ledger.fleet.index)
    scores = await service.prioritize(args.Pod, nodes)
    return _json([{"Host": name, "Score": score} for name, score in scores.items()])


async def _bind(service: Service, body: bytes) -> bytes:
    try:
        await service.bind(_BIND.parse(body))
    except RefusedError as error:
        return _json({"Error": escape_percent(str(error))})
    return _json({"Error": ""})


async def _preempt(service: Service, body: bytes) -> bytes:
    victims = await service.preempt(_PREEMPT.parse(body))
    return _json({"NodeNameToMetaVictims": {node: v.model_dump() for node, v in victims.items()}})


async def _answer(
    service: Service,
    verb: str,
    request: Request,
    call: Callable[[Service, bytes], Awaitable[bytes]],
) -> Response:
    began_s = time.perf_counter()
    body = await read_bytes(request, limit_mib=service.settings.body_max_mib)
    content = await call(service, body)
    service.metrics.call_ended(verb, time.perf_counter() - began_s)
    return Response(content, media_type="application/json")


def escape_percent(text: str) -> str:
    """Replace percent signs.

    kube-scheduler passes the message of its Event FailedScheduling to Go's Sprintf as the format
    (v1.34, pkg/scheduler/schedule_one.go, handleSchedulingFailure): "40 % free" would come out as
    "40 %!f(MISSING)ree".
    """
    return text.replace("%", "percent")


def _filter_result(
    groups: Iterable[Group] = (),
    *,
    Nodes: Any = None,  # noqa: N803 - the field's name
    NodeNames: list[str] | None = None,  # noqa: N803
    Error: str = "",  # noqa: N803
) -> bytes:
    failed, unresolvable = (
        reasons_json(
            (escape_percent(refusal.reason), names)
            for refusal, names in groups
            if refusal.resolvable is resolvable
        )
        for resolvable in (True, False)
    )
    return (
        b'{"Nodes":%b,"NodeNames":%b,"FailedNodes":%b,"FailedAndUnresolvableNodes":%b,"Error":%b}'
        % (_json(Nodes), _json(NodeNames), failed, unresolvable, _json(Error))
    )


def _json(content: Any) -> bytes:
    return to_json(content, inf_nan_mode="null")


def request_schemas() -> dict[str, Any]:
    """OpenAPI components that the request bodies refer to."""
    components: dict[str, Any] = {}
    for kind in (ExtenderArgs, ExtenderBindingArgs, ExtenderPreemptionArgs):
        schema = kind.model_json_schema(ref_template="#/components/schemas/{model}")
        components |= schema.get("$defs", {})
    return components
