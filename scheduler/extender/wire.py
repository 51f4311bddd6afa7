"""The messages of a kube-scheduler extender.

Source: k8s.io/kube-scheduler/extender/v1/types.go. Its structs have no JSON tags, so the keys are
the Go field names. Of the Pods and Nodes inside, only the fields that are read are typed; all
others are passed on unchanged.
"""

import re
from collections.abc import Iterable
from contextlib import suppress
from typing import Annotated, Any

from fastapi import HTTPException
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, StringConstraints, with_config
from pydantic_core import to_json
from typing_extensions import TypedDict

from scheduler.placement.node_names import NameIndex, NodeNames
from scheduler.server.messages import Reader
from scheduler.server.pod_json import (
    OPEN,
    PodJson,
    json_number,
)

_Count = Annotated[int, Field(ge=0, lt=2**63), BeforeValidator(json_number)]


@with_config(OPEN)
class _NodeMetadataJson(TypedDict):
    name: str


@with_config(OPEN)
class NodeJson(TypedDict):
    """A Node."""

    metadata: _NodeMetadataJson


@with_config(OPEN)
class NodeListJson(TypedDict):
    """A NodeList; kube-scheduler sends it when the extender is not nodeCacheCapable."""

    items: list[NodeJson] | None


class _Message(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore")


class ExtenderArgs(_Message):
    """Arguments of filter and prioritize: a pod, and nodes as names or as whole objects."""

    Pod: PodJson
    Nodes: NodeListJson | None = None
    NodeNames: list[str] | None = None

    def names(self) -> list[str]:
        """Names of the nodes without repetition, in the order of the request."""
        if self.NodeNames is not None:
            return list(dict.fromkeys(self.NodeNames))
        items = (self.Nodes["items"] if self.Nodes is not None else None) or []
        return list(dict.fromkeys(node["metadata"]["name"] for node in items))


def read_args(body: bytes, index: NameIndex) -> tuple[ExtenderArgs, NodeNames]:
    """Read arguments, and the names of their nodes without repetition.

    kube-scheduler sends names that a fleet knows, and sends them last. These are looked up in the
    text itself. Any other form is parsed as a whole.

    Raises:
        HTTPException: FastAPI's, with 400 or 422.
    """
    begin = _names_begin(body)
    rows = index.find(body, begin) if begin else None
    if rows is not None:
        with suppress(HTTPException):  # the whole body has the position of what is wrong
            return _ARGS.parse(body[:begin] + b"]}"), NodeNames.of_rows(index, rows)
    args = _ARGS.parse(body)
    return args, NodeNames(args.names())


_ARGS = Reader(ExtenderArgs)
_NAMES = b'"NodeNames"'
_OPENING = re.compile(rb"\s?:\s?\[")


def _names_begin(body: bytes) -> int:
    """Return where the names begin if they seem to be the last field; 0 where they do not.

    If ``body[:begin] + b"]}"`` is JSON, the field is one of the outermost object: a quotation mark
    after a comma that ended a string would be followed by no name.
    """
    key = body.rfind(_NAMES)
    if key < 0 or body[max(0, key - 2) : key].rstrip()[-1:] != b",":
        return 0
    opening = _OPENING.match(body, key + len(_NAMES))
    return 0 if opening is None else opening.end()


class ExtenderFilterResult(_Message):
    """Result of filter: passing nodes in the form of the request, and reasons of the others."""

    Nodes: dict[str, Any] | None = None
    NodeNames: list[str] | None = None
    FailedNodes: dict[str, str] = {}
    FailedAndUnresolvableNodes: dict[str, str] = {}
    Error: str = ""


def reasons_json(groups: Iterable[tuple[str, list[str]]]) -> bytes:
    """Return an object of a reason by node as JSON, from reasons and the distinct nodes of each.

    Thousands of nodes share a few reasons, so each reason is written once, and then copied.
    """
    members = []
    for reason, names in groups:
        keys = to_json(names)[1:-1]
        if keys.count(b",") == len(names) - 1:  # no name has one
            value = b":" + to_json(reason)
            members.append(keys.replace(b'","', b'"' + value + b',"') + value)
        else:
            members.append(to_json(dict.fromkeys(names, reason))[1:-1])
    return b"{" + b",".join(members) + b"}"


class HostPriority(_Message):
    """Score of one node, 0 to 10."""

    Host: str
    Score: int


class ExtenderBindingArgs(_Message):
    """Arguments of bind."""

    PodName: Annotated[str, StringConstraints(min_length=1, max_length=253)]
    PodNamespace: Annotated[str, StringConstraints(min_length=1, max_length=63)]
    PodUID: Annotated[str, StringConstraints(min_length=1, max_length=128)]
    Node: Annotated[str, StringConstraints(min_length=1, max_length=253)]


class ExtenderBindingResult(_Message):
    """Result of bind; the error is empty when the pod is bound."""

    Error: str = ""


class MetaPod(_Message):
    """A victim, by its UID."""

    UID: str


class MetaVictims(_Message):
    """The pods to evict from one node."""

    Pods: list[MetaPod] | None = None
    NumPDBViolations: _Count = 0


class Victims(_Message):
    """The pods to evict as whole objects: sent when the extender is not nodeCacheCapable."""

    Pods: list[PodJson] | None = None
    NumPDBViolations: _Count = 0

    def as_meta(self) -> MetaVictims:
        """Reduce the pods to their UIDs."""
        pods = [MetaPod(UID=(pod.get("metadata") or {}).get("uid", "")) for pod in self.Pods or []]
        return MetaVictims(Pods=pods, NumPDBViolations=self.NumPDBViolations)


class ExtenderPreemptionArgs(_Message):
    """Arguments of preempt: a pod, and the pods that kube-scheduler would evict on each node."""

    Pod: PodJson
    NodeNameToVictims: dict[str, Victims] | None = None
    NodeNameToMetaVictims: dict[str, MetaVictims] | None = None

    def victims(self) -> dict[str, MetaVictims]:
        """Victims by node in the meta form, for either form of the request."""
        if self.NodeNameToMetaVictims is not None:
            return self.NodeNameToMetaVictims
        return {name: whole.as_meta() for name, whole in (self.NodeNameToVictims or {}).items()}


class ExtenderPreemptionResult(_Message):
    """Result of preempt: nodes where eviction helps, with their victims in the meta form."""

    NodeNameToMetaVictims: dict[str, MetaVictims] = {}
