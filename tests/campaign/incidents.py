"""Incidents of a run: drawn from its seed, each in plain words."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any

from tests.campaign import gateway_incidents
from tests.campaign.gangs import draw_gangs, has_gangs

FUNCTIONS = {  # percent of a GPU and MiB, by name
    "tenth": (10, 4_000),
    "third": (33, 9_000),
    "half": (50, 20_000),
    "most": (60, 30_000),
    "wide": (20, 50_000),
    "whole": (100, 70_000),
}
NODES = ("n1", "n2", "n3")
GPUS_MAX = 2  # of each node
REPLICAS = ("a", "b")
RESOURCES = ("pods", "nodes", "functionprofiles")

_OF_ANY_CLIENT = {
    "request", "cut_watch", "silence_watch", "slow_watch", "expire_watch", "unreachable",
}  # fmt: skip
_TEXTS = {
    "create": "pod {pod} is created: function {function}, priority {priority}, grace {grace_s} s",
    "hold": "holder {pod} is created: {percent} %, priority {priority}, group {group!r}",
    "join": "member {pod} is created: function {function}, priority {priority}, group {group!r}",
    "gang": "gang {gang} is created: {size} pods of function {function}, {minimum} are needed, "
    "on one node: {has_racks}",
    "revert": "kube-scheduler gives up the next {times} attempts of gangs that succeed",
    "relabel": "a label of pod {pod} changes",
    "finish": "the containers of pod {pod} end",
    "delete": "pod {pod} is deleted",
    "force_delete": "pod {pod} is deleted by force",
    "recreate": "pod {pod} is deleted by force and created again at once: function {function}",
    "request": "{replica}: the next {times} {verb} requests are {effect} (status {status}, "
    "{seconds} s)",
    "cut_watch": "{replica}: the watch of {resource} breaks",
    "silence_watch": "{replica}: the watch of {resource} delivers nothing any more",
    "slow_watch": "{replica}: the watch of {resource} delivers {seconds} s late",
    "expire_watch": "{replica}: the watch of {resource} ends with 410",
    "compact": "the API server forgets its history",
    "unreachable": "{replica}: the API server cannot be reached for {seconds} s",
    "clock": "{replica}: the system clock jumps by {seconds} s",
    "node_gone": "node {node} is gone for {seconds} s and returns with {gpus} GPUs",
    "gpu_unhealthy": "GPU {gpu} of {node} is unhealthy for {seconds} s",
    "gpu_moves": "GPU {gpu} of {node} is in {new_node} for {seconds} s",
    "inventory": "the inventory of {node} cannot be read for {seconds} s",
    "restart": "{replica}: the extender dies and is back after {seconds} s",
    "crash": "the leader dies with its extender, the other leads after {seconds} s",
    "handover": "the leader leaves, the other leads after {seconds} s",
    "freeze": "{replica}: its machine stands still for {seconds} s",
    "suspend": "{replica}: its machine is suspended for {seconds} s: monotonic clocks stand, too",
    "lose_notes": "{replica}: kube-scheduler's notes in the status of pods fail for {seconds} s",
    "overlap": "the other replica leads, the old leader does not know for {seconds} s",
}


@dataclass(frozen=True, slots=True)
class Incident:
    """One thing that happens, at a time of the run in seconds."""

    at_s: float
    kind: str
    details: Mapping[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        text = (_TEXTS | gateway_incidents.TEXTS)[self.kind]
        return f"at {self.at_s:7.3f} s: {text.format(**self.details)}"


def draw_layout(seed: int) -> dict[str, int]:
    """Draw the nodes of a run: their numbers of GPUs, by name."""
    random = Random(f"layout {seed}")
    gpus = random.randint(1, GPUS_MAX)
    return dict.fromkeys(NODES[: random.randint(1, len(NODES))], gpus)


def draw_incidents(seed: int) -> list[Incident]:
    """Draw the incidents of one run, in their order: most of them around a few moments."""
    random = Random(seed)
    duration_s = random.choice((20.0, 60.0, 150.0))
    moments_s = [duration_s * random.random() for _ in range(random.randint(1, 4))]

    def time_s() -> float:
        if random.random() < 0.3:
            return 1.0 + duration_s * random.random()
        return 1.0 + random.choice(moments_s) + random.choice((0.02, 1.0, 10.0)) * random.random()

    incidents = [
        *_pods(random, time_s),
        *(_fault(random, time_s()) for _ in range(random.choice((0, 2, 4, 8, 16)))),
    ]
    if has_pools(seed):
        incidents += _pools(Random(f"pools {seed}"), duration_s)
    if has_gangs(seed):
        drawn_gangs = draw_gangs(Random(f"gangs {seed}"), list(FUNCTIONS), duration_s)
        incidents += [Incident(*drawn) for drawn in drawn_gangs]
    incidents += _pauses(Random(f"pauses {seed}"), incidents)
    if gateway_incidents.has_gateways(seed):
        incidents += [Incident(*drawn) for drawn in gateway_incidents.draw_gateway_incidents(seed)]
    return sorted(incidents, key=lambda incident: incident.at_s)


def _pods(random: Random, time_s: Callable[[], float]) -> Iterator[Incident]:
    for number in range(random.randint(2, 18)):
        pod = f"p{number}"
        function = random.choice(tuple(FUNCTIONS))
        created_s = round(time_s(), 3)
        details = {"pod": pod, "function": function, "priority": random.choice((0, 0, 0, 100))}
        graces = Random(f"grace of {pod} at {created_s}")
        details["grace_s"] = graces.choice((30, 30, 5, 0))
        yield Incident(created_s, "create", details)
        for _ in range(random.choice((0, 1, 1, 2))):
            kind = random.choice(("relabel", "finish", "delete", "force_delete", "recreate"))
            later_s = round(created_s + random.choice((0.01, 0.1, 3.0, 30.0)) * random.random(), 3)
            later = {"pod": pod}
            if kind == "recreate":
                later |= {"function": random.choice(tuple(FUNCTIONS)), "priority": 0}
            yield Incident(later_s, kind, later)


def has_pools(seed: int) -> bool:
    """Tell if a run has slices and members."""
    return seed % 10 in (2, 5)


def draw_group(pod: str, at_s: float) -> str:
    """Draw the group of gateways of a pod of a pool."""
    return Random(f"group of {pod} at {at_s}").choice(("", "", "a"))


def _pools(random: Random, duration_s: float) -> Iterator[Incident]:
    """Holders, the ends of some of them, and members, most of them before the middle of a run."""
    for number in range(random.randint(1, 5)):
        at_s = round(1.0 + duration_s * random.random() / 2, 3)
        percent = random.choice((20, 33, 50, 60, 100))
        details = {"pod": f"h{number}", "percent": percent, "priority": random.choice((0, 0, 50))}
        details["group"] = draw_group(details["pod"], at_s)
        yield Incident(at_s, "hold", details)
        kind = random.choice(("relabel", "finish", "delete", "force_delete", "force_delete"))
        ends_s = round(at_s + random.choice((1.0, 10.0, 60.0)) * random.random(), 3)
        yield Incident(ends_s, kind, {"pod": f"h{number}"})
    for number in range(random.randint(2, 12)):
        at_s = round(1.0 + duration_s * random.random() / 2, 3)
        details = {"pod": f"m{number}", "function": random.choice(tuple(FUNCTIONS)), "priority": 0}
        details["group"] = draw_group(details["pod"], at_s)
        yield Incident(at_s, "join", details)
        if random.random() < 0.4:
            kind = random.choice(("finish", "delete", "force_delete"))
            ends_s = round(at_s + 60.0 * random.random(), 3)
            yield Incident(ends_s, kind, {"pod": f"m{number}"})
    for number in range(random.randint(2, 6)):  # they wait for what slices free
        function = random.choice(("half", "most", "whole"))
        details = {"pod": f"r{number}", "function": function, "priority": 0, "grace_s": 30}
        yield Incident(round(1.0 + duration_s * random.random(), 3), "create", details)


def _pauses(random: Random, incidents: Sequence[Incident]) -> Iterator[Incident]:
    """Pauses of machines and of a scheduler's writes, after other incidents: pods wait then."""
    for _ in range(random.choice((0, 1, 1, 2))):
        at_s = random.choice(incidents).at_s + random.choice((0.02, 1.0)) * random.random()
        details = {
            "replica": random.choice(REPLICAS),
            "seconds": round(random.uniform(5.0, 60.0), 3),
        }
        kind = random.choice(("freeze", "suspend", "lose_notes"))
        yield Incident(round(at_s, 3), kind, details)


def _fault(random: Random, at_s: float) -> Incident:
    kinds = {
        "request": 10,
        "cut_watch": 2,
        "silence_watch": 2,
        "slow_watch": 2,
        "expire_watch": 1,
        "compact": 1,
        "unreachable": 2,
        "clock": 1,
        "node_gone": 2,
        "gpu_unhealthy": 1,
        "gpu_moves": 1,
        "inventory": 1,
        "restart": 2,
        "crash": 2,
        "handover": 2,
        "overlap": 1,
    }
    kind = random.choices(tuple(kinds), tuple(kinds.values()))[0]
    details: dict[str, Any] = {"replica": random.choice(REPLICAS)}
    if kind in _OF_ANY_CLIENT and random.random() < 1 / 8:
        details["replica"] = "webhook"
    seconds = round(random.choice((0.5, 5.0, 20.0, 59.0)) * random.random(), 3)
    match kind:
        case "request":
            details |= _request(random)
        case "cut_watch" | "silence_watch" | "expire_watch":
            details["resource"] = random.choice(RESOURCES)
        case "slow_watch":
            details |= {"resource": random.choice(RESOURCES), "seconds": seconds}
        case "clock":
            details["seconds"] = random.choice((-3600.0, -60.0, 60.0, 3600.0))
        case "node_gone":
            details = {
                "node": random.choice(NODES),
                "seconds": seconds,
                "gpus": random.choice(("the same", "the same", "other")),
            }
        case "gpu_unhealthy" | "gpu_moves" | "inventory":
            node, new_node = random.sample(NODES, 2)
            details = {
                "node": node,
                "new_node": new_node,
                "gpu": random.randrange(GPUS_MAX),
                "seconds": seconds,
            }
        case "compact":
            details = {}
        case "unreachable" | "restart" | "crash" | "handover" | "overlap":
            details["seconds"] = seconds
    return Incident(round(at_s, 3), kind, details)


def _request(random: Random) -> dict[str, Any]:
    verb = random.choice(("bind", "bind", "bind", "read", "list", "watch", "write"))
    effects = ["unsent", "lost", "late", "refused", "failed", "cut", "slow", "foreign_404"]
    if verb in ("bind", "write"):
        effects.append("duplicated")
    seconds = random.choice((0.2, 2.0, 10.0, 59.0)) * random.random()
    effect = random.choice(effects)
    status = random.choice((429, 500, 503, 504))
    if effect == "failed" and status == 429:
        effect = "refused"  # a server with too many requests says so before it does anything
    return {
        "verb": verb,
        "effect": effect,
        "seconds": round(seconds, 3),
        "status": status,
        "times": random.choice((1, 1, 2, 4)),
    }
