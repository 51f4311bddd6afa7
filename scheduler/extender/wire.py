"""The wire of a kube-scheduler extender, to the letter.

Source: k8s.io/kube-scheduler/extender/v1/types.go. Its structs have no JSON tags, so the keys are
the Go field names; Pod and Node inside are ordinary Kubernetes JSON, of which only what is read
here is typed, and everything else is carried along.
"""

from typing import Annotated, Any, Generic, NotRequired, TypeVar

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    StringConstraints,
    TypeAdapter,
    with_config,
)
from pydantic_core import PydanticCustomError
from typing_extensions import TypedDict

_Open = ConfigDict(extra="allow")
_Strings = dict[str, str]


def _number(given: Any) -> Any:
    """As in JSON Schema: 7.0 is an integer, true and "7" are none, unlike pydantic's."""
    if isinstance(given, bool | str):
        raise PydanticCustomError("int_type", "Input should be a valid integer")
    return given


_Int32 = Annotated[int, Field(ge=-(2**31), lt=2**31), BeforeValidator(_number)]
_Count = Annotated[int, Field(ge=0, lt=2**63), BeforeValidator(_number)]
_Quantities = dict[
    str, str | Annotated[int, Field(strict=True)] | Annotated[float, Field(strict=True)]
]


@with_config(_Open)
class _MetadataJson(TypedDict, total=False):
    name: str
    namespace: str | None
    uid: str
    labels: _Strings | None
    annotations: _Strings | None


@with_config(_Open)
class _ResourcesJson(TypedDict, total=False):
    requests: _Quantities | None
    limits: _Quantities | None


@with_config(_Open)
class _ContainerJson(TypedDict, total=False):
    name: str
    resources: _ResourcesJson | None


@with_config(_Open)
class _PodSpecJson(TypedDict, total=False):
    containers: list[_ContainerJson] | None
    initContainers: list[_ContainerJson] | None
    nodeName: str | None
    priority: _Int32 | None


@with_config(_Open)
class _PodStatusJson(TypedDict, total=False):
    phase: str | None


@with_config(_Open)
class PodJson(TypedDict, total=False):
    """A Pod, as far as it is read here."""

    metadata: _MetadataJson | None
    spec: _PodSpecJson | None
    status: _PodStatusJson | None


@with_config(_Open)
class _NamedMetadataJson(TypedDict):
    name: Annotated[str, StringConstraints(min_length=1, max_length=253)]
    uid: Annotated[str, StringConstraints(min_length=1, max_length=128)]
    namespace: NotRequired[str | None]
    labels: NotRequired[_Strings | None]
    annotations: NotRequired[_Strings | None]


class NamedPod(BaseModel):
    """A Pod with a name and a UID, as a cluster keeps it."""

    model_config = ConfigDict(frozen=True, extra="allow")

    metadata: _NamedMetadataJson
    spec: _PodSpecJson = {}
    status: _PodStatusJson = {}


@with_config(_Open)
class _NodeMetadataJson(TypedDict):
    name: str


@with_config(_Open)
class NodeJson(TypedDict):
    """A Node, as far as it is read here."""

    metadata: _NodeMetadataJson


@with_config(_Open)
class NodeListJson(TypedDict):
    """A NodeList: what the scheduler sends when the extender is not nodeCacheCapable."""

    items: list[NodeJson] | None


class _Message(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore")


class ExtenderArgs(_Message):
    """What filter and prioritize are asked: a pod, and nodes by name or as whole objects."""

    Pod: PodJson
    Nodes: NodeListJson | None = None
    NodeNames: list[str] | None = None

    def names(self) -> list[str]:
        """The nodes asked about, each once, in the order of the request."""
        if self.NodeNames is not None:
            return list(dict.fromkeys(self.NodeNames))
        items = (self.Nodes["items"] if self.Nodes is not None else None) or []
        return list(dict.fromkeys(node["metadata"]["name"] for node in items))


class ExtenderFilterResult(_Message):
    """What filter answers: who passes, in the form of the question, and why others do not."""

    Nodes: dict[str, Any] | None = None
    NodeNames: list[str] | None = None
    FailedNodes: dict[str, str] = {}
    FailedAndUnresolvableNodes: dict[str, str] = {}
    Error: str = ""


class HostPriority(_Message):
    """One node's score, 0 to 10."""

    Host: str
    Score: int


class ExtenderBindingArgs(_Message):
    """A pod to bind to a node."""

    PodName: Annotated[str, StringConstraints(min_length=1, max_length=253)]
    PodNamespace: Annotated[str, StringConstraints(min_length=1, max_length=63)]
    PodUID: Annotated[str, StringConstraints(min_length=1, max_length=128)]
    Node: Annotated[str, StringConstraints(min_length=1, max_length=253)]


class ExtenderBindingResult(_Message):
    """Empty when the pod is bound."""

    Error: str = ""


class MetaPod(_Message):
    """A victim, by its UID."""

    UID: str


class MetaVictims(_Message):
    """The pods to evict from one node."""

    Pods: list[MetaPod] | None = None
    NumPDBViolations: _Count = 0


class Victims(_Message):
    """The same with whole pods: sent when the extender is not nodeCacheCapable."""

    Pods: list[PodJson] | None = None
    NumPDBViolations: _Count = 0

    def as_meta(self) -> MetaVictims:
        """With the UIDs alone."""
        pods = [MetaPod(UID=(pod.get("metadata") or {}).get("uid", "")) for pod in self.Pods or []]
        return MetaVictims(Pods=pods, NumPDBViolations=self.NumPDBViolations)


class ExtenderPreemptionArgs(_Message):
    """A pod that wants room, and per node the pods that kube-scheduler would evict for it."""

    Pod: PodJson
    NodeNameToVictims: dict[str, Victims] | None = None
    NodeNameToMetaVictims: dict[str, MetaVictims] | None = None

    def victims(self) -> dict[str, MetaVictims]:
        """Per node, in the meta form, whichever form the question has."""
        if self.NodeNameToMetaVictims is not None:
            return self.NodeNameToMetaVictims
        return {name: whole.as_meta() for name, whole in (self.NodeNameToVictims or {}).items()}


class ExtenderPreemptionResult(_Message):
    """The nodes where evicting makes room, and whom to evict there; always the meta form."""

    NodeNameToMetaVictims: dict[str, MetaVictims] = {}


Message = TypeVar("Message", bound=BaseModel)


class Reader(Generic[Message]):
    """Reads one kind of message from JSON bytes."""

    def __init__(self, kind: type[Message]) -> None:
        self.kind = kind
        self._adapter: TypeAdapter[Message] = TypeAdapter(kind)

    def read(self, body: bytes) -> Message:
        """The message; raises pydantic's ValidationError for what is no such message."""
        return self._adapter.validate_json(body)
