"""Nodes and their GPUs, as the node's annotation and status tell them."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from scheduler.model.names import ANNOTATION_GPUS
from scheduler.model.pod import CPU_MILLI_MAX
from scheduler.model.quantity import QuantityError, milli


class NodeError(ValueError):
    """A node's annotation or status that cannot be used; the message says which and why."""


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
    """A node with what it can give: GPUs, and vCPUs in thousandths."""

    name: str
    gpus: tuple[Gpu, ...]
    cpu_milli: int


def node_from_json(raw: Mapping[str, Any]) -> Node:
    """A Node object of the Kubernetes API as a `Node`.

    A node without the annotation has no GPU to share.

    Raises:
        NodeError: the annotation or the allocatable cpu cannot be read.
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
    """The GPUs in a node's annotation ``esg-scheduler.io/gpus``; none where it is absent.

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
