"""Pods, plans, AdmissionReviews and an Admission over a fake planner."""

import asyncio
import json
from base64 import b64decode
from collections.abc import Callable
from copy import deepcopy
from typing import Any

from scheduler.model import names
from scheduler.model.plan import Candidate, Configuration, Plan
from scheduler.model.pod import FunctionPod
from scheduler.webhook.admission import Admission
from scheduler.webhook.mutation import PodDefaults
from scheduler.webhook.wire import AdmissionRequest, AdmissionResponse

Json = dict[str, Any]
NOW_S = 1_800_000_000.0
WORKFLOW = {names.LABEL_WORKFLOW: "w", names.LABEL_STAGE: "s"}
DEFAULTS = PodDefaults(mps_root="/run/mps")


def pod(*containers: Json, labels: Json | None = None, **metadata: Any) -> Json:
    """A Pod of a ReplicaSet: no name, no namespace."""
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "generateName": "p-",
            "labels": WORKFLOW if labels is None else labels,
            **metadata,
        },
        "spec": {"containers": list(containers or [{"name": "main"}])},
    }


def candidate(cpu: int, gpu_percent: int, batch: int = 1) -> Candidate:
    """Create a candidate of that size; its times do not matter here."""
    return Candidate(Configuration(batch, cpu, gpu_percent, 1000, 10.0), "A100", 10.0, 20.0, 1e-4)


def plan(*candidates: Candidate, feasible: bool = True, budget_ms: float | None = 100.0) -> Plan:
    """Create a plan of these candidates, cheapest first."""
    return Plan(feasible, budget_ms, candidates or (candidate(2, 28),))


async def _at_once(_: FunctionPod) -> None:
    """Wait for nothing: a fake planner needs no preparation."""


def admission(
    planner: Callable[[FunctionPod], Plan] = lambda _: plan(),
    *,
    defaults: PodDefaults = DEFAULTS,
    not_ready_reason: str = "",
    headroom_ratio: float = 0.2,
) -> Admission:
    return Admission(
        planner=planner,
        prepared=_at_once,
        not_ready_reason=lambda: not_ready_reason,
        clock=lambda: NOW_S,
        headroom_ratio=headroom_ratio,
        defaults=defaults,
    )


def request(raw: Json | None, **fields: Any) -> Json:
    """Create the request of an AdmissionReview that creates ``raw``."""
    kind = {"group": "", "version": "v1", "kind": "Pod"}
    fields = {"uid": "u", "kind": kind, "operation": "CREATE", "namespace": "space"} | fields
    return {"object": raw} | fields


def review(raw: Json | None, **fields: Any) -> Json:
    """Create the whole AdmissionReview."""
    return {
        "apiVersion": "admission.k8s.io/v1",
        "kind": "AdmissionReview",
        "request": request(raw, **fields),
    }


def respond(by: Admission, raw: Json, **fields: Any) -> AdmissionResponse:
    """Return the response to the creation of a pod."""
    return asyncio.run(by.admit(AdmissionRequest.model_validate(request(deepcopy(raw), **fields))))


def admitted(by: Admission, raw: Json) -> Json:
    """Return the pod that the API server stores after the response."""
    response = respond(by, raw)
    assert response.allowed, response.status
    return patched(raw, operations(response.patch))


def operations(patch: str | None) -> list[Json]:
    """Decode a patch."""
    return [] if patch is None else json.loads(b64decode(patch, validate=True))


def patched(raw: Json, patch: list[Json]) -> Json:
    """Apply a JSON patch (RFC 6902) that replaces top-level fields."""
    whole = deepcopy(raw)
    for operation in patch:
        field = operation["path"].removeprefix("/")
        assert operation["op"] == "replace"
        assert field in whole
        whole[field] = deepcopy(operation["value"])
    return whole


def environment(container: Json) -> dict[str, str | None]:
    """Map each variable to its value, or to the field that it refers to."""
    return {
        v["name"]: v["valueFrom"]["fieldRef"]["fieldPath"] if "valueFrom" in v else v.get("value")
        for v in container.get("env") or []
    }


def annotation(key: str) -> str:
    """Return the field path of an esg-scheduler annotation."""
    return f"metadata.annotations['{names.GROUP}/{key}']"
