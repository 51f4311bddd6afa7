"""The messages of a kube-scheduler extender.

Source: k8s.io/kube-scheduler/extender/v1/types.go. Its structs have no JSON tags, so the keys are
the Go field names. Of the Pods and Nodes inside, only the fields that are read are typed; all
others are passed on unchanged.
"""

from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, StringConstraints, with_config
from typing_extensions import TypedDict

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


class ExtenderFilterResult(_Message):
    """Result of filter: passing nodes in the form of the request, and reasons of the others."""

    Nodes: dict[str, Any] | None = None
    NodeNames: list[str] | None = None
    FailedNodes: dict[str, str] = {}
    FailedAndUnresolvableNodes: dict[str, str] = {}
    Error: str = ""


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
