"""Nodes and their GPUs, read from a node's annotation and status."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from scheduler.model.message_text import quoted
from scheduler.model.names import ANNOTATION_GPUS
from scheduler.model.pod_resources import CPU_MILLI_MAX
from scheduler.model.quantity import QuantityError, milli


class NodeError(ValueError):
    """An invalid annotation or status of a node; the message names the field and the reason."""


class Gpu(BaseModel):
    """One physical GPU of a node."""

    model_config = ConfigDict(frozen=True, strict=True, extra="ignore")

    index: int = Field(ge=0, le=1023)
    uuid: str = Field(min_length=1, max_length=128, pattern=r"^[!-~]+$")
    model: str = Field(min_length=1, max_length=128)
    memory_mib: int = Field(ge=1, le=16_777_216)
    multiprocessors: int = Field(ge=1, le=4096)
    healthy: bool


_GPUS = TypeAdapter(Annotated[tuple[Gpu, ...], Field(max_length=64)])


@dataclass(frozen=True, slots=True)
class Node:
    """A node with its GPUs and its allocatable vCPUs in thousandths."""

    name: str
    gpus: tuple[Gpu, ...]
    cpu_milli: int


def checked_node(node: Any, number: int) -> dict[str, Any]:
    """Check the types of a Node's parts as an API server would; `node_from_json` reads the content.

    Raises:
        NodeError: it does not have the form of a Node with a name; ``number`` is its place.
    """
    metadata = node.get("metadata") if isinstance(node, Mapping) else None
    name = metadata.get("name") if isinstance(metadata, Mapping) else None
    if metadata is None or not isinstance(name, str) or not name:
        raise NodeError(f"document {number} is no Node with a metadata.name")
    status = node.get("status") or {}
    parts = {"metadata.annotations": metadata.get("annotations"), "status": status}
    if isinstance(status, Mapping):
        parts |= {f"status.{part}": status.get(part) for part in ("allocatable", "capacity")}
    for part, value in parts.items():
        if value is not None and not isinstance(value, Mapping):
            raise NodeError(f"Node {quoted(name)}: {part} must be a mapping, not {quoted(value)}")
    return dict(node)


def node_from_json(raw: Mapping[str, Any]) -> Node:
    """Parse a Node object of the Kubernetes API.

    A node without the annotation has no shareable GPU.

    Raises:
        NodeError: the annotation or the allocatable cpu is invalid.
    """
    metadata = raw.get("metadata") or {}
    name = metadata.get("name")
    if not isinstance(name, str) or not name:
        raise NodeError("metadata.name is missing")
    status = raw.get("status") or {}
    resources = status.get("allocatable") or status.get("capacity") or {}
    try:
        cpu_milli = min(milli(resources["cpu"]), CPU_MILLI_MAX) if "cpu" in resources else 0
    except QuantityError as error:
        raise NodeError(f"status.allocatable.cpu: {error}") from None
    return Node(name, gpus_of(metadata.get("annotations") or {}), cpu_milli)


def gpus_of(annotations: Mapping[str, Any]) -> tuple[Gpu, ...]:
    """Parse the annotation ``esg-scheduler.io/gpus`` of a node; no GPUs if it is absent.

    Raises:
        NodeError: the annotation is not the JSON that the agent writes, or repeats a UUID.
    """
    text = annotations.get(ANNOTATION_GPUS)
    if text is None:
        return ()
    try:
        gpus = _GPUS.validate_json(text)
    except ValidationError as error:
        detail = error.errors(include_url=False)[0]
        place = "".join(
            f"[{part}]" if isinstance(part, int) else f".{part}" for part in detail["loc"]
        )
        raise NodeError(f"annotation {ANNOTATION_GPUS}{place}: {detail['msg']}") from None
    if len({gpu.uuid for gpu in gpus}) != len(gpus):
        raise NodeError(f"annotation {ANNOTATION_GPUS}: two GPUs have the same uuid")
    return gpus
