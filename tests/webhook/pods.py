"""Pods as creators send them, plans as the planner gives them, and patches applied the slow way."""

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
NOW = 1_800_000_000.0
WORKFLOW = {names.LABEL_WORKFLOW: "w", names.LABEL_STAGE: "s"}
WARDROBE = PodDefaults(mps_root="/run/mps")


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
    """A candidate of that size; its times do not matter here."""
    return Candidate(Configuration(batch, cpu, gpu_percent, 1000, 10.0), "A100", 10.0, 20.0, 1e-4)


def plan(*candidates: Candidate, feasible: bool = True, budget_ms: float | None = 100.0) -> Plan:
    """A plan of these candidates, cheapest first."""
    return Plan(feasible, budget_ms, candidates or (candidate(2, 28),))


def admission(
    planning: Callable[[FunctionPod], Plan] = lambda _: plan(),
    *,
    wardrobe: PodDefaults = WARDROBE,
    unreadiness: str = "",
    headroom_ratio: float = 0.2,
) -> Admission:
    """Admission over a planner made up here."""
    return Admission(
        planning=planning,
        unreadiness=lambda: unreadiness,
        clock=lambda: NOW,
        headroom_ratio=headroom_ratio,
        wardrobe=wardrobe,
    )


def request(raw: Json | None, **fields: Any) -> Json:
    """The request of an AdmissionReview that creates ``raw``."""
    kind = {"group": "", "version": "v1", "kind": "Pod"}
    whole = {"uid": "u", "kind": kind, "operation": "CREATE", "namespace": "space", "object": raw}
    return whole | fields


def review(raw: Json | None, **fields: Any) -> Json:
    """The whole AdmissionReview."""
    return {
        "apiVersion": "admission.k8s.io/v1",
        "kind": "AdmissionReview",
        "request": request(raw, **fields),
    }


def ask(by: Admission, raw: Json, **fields: Any) -> AdmissionResponse:
    """The answer to the creation of a pod."""
    return by.admit(AdmissionRequest.model_validate(request(deepcopy(raw), **fields)))


def admitted(by: Admission, raw: Json) -> Json:
    """The pod as the API server keeps it after the answer."""
    answer = ask(by, raw)
    assert answer.allowed, answer.status
    return applied(raw, operations(answer.patch))


def operations(patch: str | None) -> list[Json]:
    """The patch, read."""
    return [] if patch is None else json.loads(b64decode(patch, validate=True))


def applied(raw: Json, patch: list[Json]) -> Json:
    """A JSON patch applied as RFC 6902 says, for the three operations that are used."""
    whole = deepcopy(raw)
    for operation in patch:
        *way, last = [
            step.replace("~1", "/").replace("~0", "~") for step in operation["path"].split("/")[1:]
        ]
        place: Any = whole
        for step in way:
            place = place[int(step)] if isinstance(place, list) else place[step]
        assert isinstance(place, dict), "no operation is needed on an element of a list"
        if operation["op"] != "add":
            assert last in place
        if operation["op"] == "remove":
            del place[last]
        else:
            place[last] = deepcopy(operation["value"])
    return whole


def environment(container: Json) -> dict[str, str | None]:
    """Each variable's value; of one that refers to the pod, the field that it refers to."""
    return {
        v["name"]: v["valueFrom"]["fieldRef"]["fieldPath"] if "valueFrom" in v else v.get("value")
        for v in container.get("env") or []
    }


def annotation(key: str) -> str:
    """The field path of an annotation of ours."""
    return f"metadata.annotations['{names.GROUP}/{key}']"
