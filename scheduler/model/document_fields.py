"""Fields that several kinds of documents share."""

from collections.abc import Mapping
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, StringConstraints
from pydantic.alias_generators import to_camel

from scheduler.model.names import LABEL_GATEWAY_GROUP

LATENCY_MAX_MS = 86_400_000.0  # one day; a larger number has most likely the wrong unit

NAME_PATTERN = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"

# A name must also be valid as a label value (Kubernetes: validation of label values, RFC 1123).
Name = Annotated[
    str,
    StringConstraints(max_length=63, pattern=NAME_PATTERN),
    Field(description="an RFC 1123 label: lower-case letters, digits and '-'"),
]
# Numbers are strict, as in the CRD: Kubernetes accepts neither "8" nor true as a number.
Milliseconds = Annotated[float, Field(gt=0, le=LATENCY_MAX_MS, allow_inf_nan=False, strict=True)]
Ratio = Annotated[float, Field(gt=0, lt=1, strict=True)]


class DocumentModel(BaseModel):
    """Base of documents and their parts: frozen, camelCase, no unknown fields."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", alias_generator=to_camel, populate_by_name=True
    )


class Metadata(BaseModel):
    """The parts of a Kubernetes ObjectMeta that the scheduler reads."""

    model_config = ConfigDict(frozen=True, extra="allow")

    name: Name
    namespace: str | None = None
    uid: str = ""
    generation: int = 0

    @property
    def group_label(self) -> str | None:
        """Label with the group of gateways that serves the object; None: it has no such label."""
        labels: Mapping[str, str] = (self.model_extra or {}).get("labels") or {}
        label = labels.get(LABEL_GATEWAY_GROUP)
        return None if label is None else str(label)

    @property
    def group(self) -> str:
        """Group of gateways that serves the object; empty: none."""
        return self.group_label or ""

    @property
    def group_labels(self) -> Mapping[str, str]:
        """Labels of a pod that the same group serves."""
        return {LABEL_GATEWAY_GROUP: self.group} if self.group else {}
