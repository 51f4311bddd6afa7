"""Routes of the HTTP front: the protocol's paths, with namespaces and single stages."""

from enum import Enum, auto
from functools import lru_cache
from typing import NamedTuple
from urllib.parse import unquote

from scheduler.gateway.calls import CallError, check_version
from scheduler.model.message_text import quoted

_PATHS = (
    "/openapi.json, /v2, /v2/health/live, /v2/health/ready, and /v2/models/WORKFLOW or "
    "/v2/models/WORKFLOW/stages/STAGE with nothing, /ready or /infer behind it; "
    "/NAMESPACE may stand in front of each"
)

_PATH_BYTES_MAX = 2048  # the last 1,024 paths are cached, whoever sent them


class Action(Enum):
    """Operations of the protocol."""

    INFER = auto()
    SERVER_METADATA = auto()
    LIVE = auto()
    READY = auto()
    MODEL_METADATA = auto()
    MODEL_READY = auto()
    OPENAPI = auto()


class Route(NamedTuple):
    """Operation of a path, and its workflow and stage; None where the path has none."""

    action: Action
    namespace: str | None = None
    workflow: str = ""
    stage: str | None = None

    @property
    def methods(self) -> tuple[bytes, ...]:
        return (b"POST",) if self.action is Action.INFER else (b"GET", b"HEAD")


_SERVER_ACTIONS = {
    (): Action.SERVER_METADATA,
    ("health", "live"): Action.LIVE,
    ("health", "ready"): Action.READY,
}
_MODEL_ACTIONS = {
    (): Action.MODEL_METADATA,
    ("ready",): Action.MODEL_READY,
    ("infer",): Action.INFER,
}


def templates() -> list[tuple[str, Action]]:
    """Return the paths of all operations, with their variable parts in braces."""
    paths = [("/openapi.json", Action.OPENAPI)]
    for prefix in ("/v2", "/{namespace}/v2"):
        paths += [("/".join((prefix, *path)), action) for path, action in _SERVER_ACTIONS.items()]
        for stage in ((), ("stages", "{stage}")):
            for version in ((), ("versions", "{version}")):
                model = (prefix, "models", "{workflow}", *stage, *version)
                paths += [("/".join((*model, *path)), act) for path, act in _MODEL_ACTIONS.items()]
    return paths


def find_route(target: bytes) -> Route:
    """Return the route of a request target.

    Raises:
        CallError: 404; there is no such path. 414: it is longer than any.
    """
    target = target.partition(b"?")[0]
    if len(target) > _PATH_BYTES_MAX:
        text = f"the path has {len(target):,} bytes, and no name is so long; use {_PATHS}"
        raise CallError(414, text)
    return _route_of(target)


@lru_cache(maxsize=1024)
def _route_of(target: bytes) -> Route:
    text = target.decode("latin-1")
    route: Route | None
    match [unquote(segment) for segment in text.strip("/").split("/")]:
        case ["openapi.json"]:
            route = Route(Action.OPENAPI)
        case ["v2", *path]:
            route = _below_v2(None, path)
        case [namespace, "v2", *path] if namespace:
            route = _below_v2(namespace, path)
        case _:
            route = None
    if route is None:
        raise CallError(404, f"there is no path {quoted(text)}; use {_PATHS}")
    return route


def _below_v2(namespace: str | None, path: list[str]) -> Route | None:
    server_action = _SERVER_ACTIONS.get(tuple(path))
    if server_action is not None:
        return Route(server_action, namespace)
    match path:
        case ["models", workflow, "versions", version, *operation]:
            check_version(workflow, version)
            return _below_v2(namespace, ["models", workflow, *operation])
        case ["models", workflow, "stages", stage, "versions", version, *operation]:
            check_version(workflow, version)
            return _below_v2(namespace, ["models", workflow, "stages", stage, *operation])
        case ["models", workflow, "stages", stage, *operation] if workflow and stage:
            action = _MODEL_ACTIONS.get(tuple(operation))
            return action and Route(action, namespace, workflow, stage)
        case ["models", workflow, *operation] if workflow:
            action = _MODEL_ACTIONS.get(tuple(operation))
            return action and Route(action, namespace, workflow)
    return None
