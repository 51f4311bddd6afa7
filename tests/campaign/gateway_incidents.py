"""Incidents of the gateway: requests of clients, faults of its replicas, pods and model servers."""

from collections.abc import Iterator
from random import Random
from typing import Any

from tests.campaign.gateway_documents import GATEWAYS, SLOTS

EVERY = 10  # one run in so many has a gateway
TEXTS = {
    "infer": "client: request {number} of {rows} rows to {replica}, limit {limit_s} s",
    "gateway_crash": "{replica}: the gateway dies and is back after {seconds} s",
    "gateway_leaves": "{replica}: the gateway ends in order and is back after {seconds} s",
    "model_fault": "the next {times} batches {effect}",
    "pool_pod": "pod {index} of the gateway's {effect}",
    "server_gone": "FunctionServer {function} is deleted and created after {seconds} s",
}
_FAULTS = {
    "request": 8,
    "cut_watch": 2,
    "silence_watch": 2,
    "slow_watch": 2,
    "expire_watch": 1,
    "unreachable": 3,
    "gateway_crash": 3,
    "gateway_leaves": 2,
    "model_fault": 3,
    "pool_pod": 4,
    "server_gone": 1,
}
_RESOURCES = ("pods", "leases", "functionservers", "functionprofiles", "workflows")


def has_gateways(seed: int) -> bool:
    """Tell if a run has a gateway."""
    return seed % EVERY == 0


def draw_gateway_incidents(seed: int) -> Iterator[tuple[float, str, dict[str, Any]]]:
    """Draw times, kinds and details."""
    random = Random(f"gateways {seed}")
    duration_s = random.choice((15.0, 40.0, 80.0))
    bursts_s = [10.0 + duration_s * random.random() for _ in range(random.randint(1, 3))]
    for number in range(random.choice((4, 12, 30))):
        at_s = random.choice(bursts_s) + random.choice((0.02, 1.0, 10.0)) * random.random()
        details = {
            "number": number,
            "replica": random.choice(GATEWAYS),
            "rows": random.choice((1, 1, 2, 6)),
            "limit_s": random.choice((3.0, 20.0, 60.0)),
            "is_told": random.random() < 0.5,
        }
        yield round(at_s, 3), "infer", details
    for _ in range(random.choice((0, 2, 4, 8))):
        at_s = random.choice(bursts_s) + random.choice((0.1, 3.0, 20.0)) * random.random()
        kind = random.choices(tuple(_FAULTS), tuple(_FAULTS.values()))[0]
        yield round(at_s, 3), kind, _details(random, kind)


def _details(random: Random, kind: str) -> dict[str, Any]:
    details: dict[str, Any] = {"replica": random.choice(GATEWAYS)}
    details["seconds"] = round(random.choice((0.5, 5.0, 20.0)) * random.random(), 3)
    match kind:
        case "request":
            details |= _request(random)
        case "cut_watch" | "silence_watch" | "expire_watch":
            details = {"replica": details["replica"], "resource": random.choice(_RESOURCES)}
        case "slow_watch":
            details["resource"] = random.choice(_RESOURCES)
        case "model_fault":
            effects = ("fail", "are reset", "hang")
            details = {"times": random.choice((1, 2, 4)), "effect": random.choice(effects)}
        case "pool_pod":
            effects = ("is deleted", "is deleted by force", "ends", "is not ready")
            details = {"index": random.randrange(4), "effect": random.choice(effects)}
        case "server_gone":
            details = {"function": random.choice(tuple(SLOTS)), "seconds": details["seconds"]}
    return details


def _request(random: Random) -> dict[str, Any]:
    effects = ("unsent", "lost", "late", "refused", "failed", "cut", "slow", "duplicated")
    return {
        "verb": random.choice(("write", "write", "write", "read", "list", "watch")),
        "effect": random.choice(effects),
        "seconds": round(random.choice((0.2, 2.0, 10.0)) * random.random(), 3),
        "status": random.choice((429, 500, 503, 504)),
        "times": random.choice((1, 1, 4, 16)),
    }
