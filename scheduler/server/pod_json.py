"""The JSON of a Pod, as far as it is read here; every other field is passed on unchanged."""

from typing import Annotated, Any

from pydantic import BeforeValidator, ConfigDict, Field, with_config
from pydantic_core import PydanticCustomError
from typing_extensions import TypedDict

OPEN = ConfigDict(extra="allow")
Strings = dict[str, str]


def json_number(value: Any) -> Any:
    """Reject what JSON Schema's integer rejects: true and "7", which pydantic would accept."""
    if isinstance(value, bool | str):
        raise PydanticCustomError("int_type", "Input should be a valid integer")
    return value


_Int32 = Annotated[int, Field(ge=-(2**31), lt=2**31), BeforeValidator(json_number)]
_Quantities = dict[
    str, str | Annotated[int, Field(strict=True)] | Annotated[float, Field(strict=True)]
]


@with_config(OPEN)
class _OwnerJson(TypedDict, total=False):
    kind: str


@with_config(OPEN)
class _MetadataJson(TypedDict, total=False):
    name: str
    namespace: str | None
    uid: str
    labels: Strings | None
    annotations: Strings | None
    ownerReferences: list[_OwnerJson] | None


@with_config(OPEN)
class _ResourcesJson(TypedDict, total=False):
    requests: _Quantities | None
    limits: _Quantities | None


@with_config(OPEN)
class _ContainerJson(TypedDict, total=False):
    name: str
    resources: _ResourcesJson | None


@with_config(OPEN)
class PodSpecJson(TypedDict, total=False):
    """The spec of a Pod."""

    containers: list[_ContainerJson] | None
    initContainers: list[_ContainerJson] | None
    nodeName: str | None
    priority: _Int32 | None


@with_config(OPEN)
class PodStatusJson(TypedDict, total=False):
    """The status of a Pod."""

    phase: str | None


@with_config(OPEN)
class PodJson(TypedDict, total=False):
    """A Pod."""

    metadata: _MetadataJson | None
    spec: PodSpecJson | None
    status: PodStatusJson | None
