"""Status of documents: conditions that programs write and `kubectl wait` reads.

Each condition has one writer (ADR 46); server-side apply merges what several of them write.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from pydantic import Field

from scheduler.model.document_fields import DocumentModel
from scheduler.model.document_reader import DocumentError

ConditionStatus = Literal["True", "False", "Unknown"]
MESSAGE_MAX = 1024  # as that of an Event, which has the same text
CONDITIONS_MAX = 16


class Condition(DocumentModel):
    """State of the document in one respect, as Kubernetes' metav1.Condition."""

    type: str = Field(
        min_length=1, max_length=63, description="respect in which the document is in this state"
    )
    status: ConditionStatus = Field(description="True, False or Unknown")
    observed_generation: int = Field(
        default=0, ge=0, description="`metadata.generation` of the spec that was judged"
    )
    last_transition_time: str = Field(
        max_length=32, description="time of the last change of `status`, RFC 3339"
    )
    reason: str = Field(
        min_length=1, max_length=128, description="cause of this state in one word, for programs"
    )
    message: str = Field(
        default="", max_length=32768, description="cause of this state, for people"
    )


class DocumentStatus(DocumentModel):
    """State of the document, as the scheduler and the gateway see it."""

    conditions: tuple[Condition, ...] = Field(
        default=(), max_length=CONDITIONS_MAX, description="conditions, one of each type"
    )


class WorkflowStatus(DocumentStatus):
    """State of a Workflow: Accepted, Attainable by the extender; Ready, pods by the gateway."""

    observed_generation: int = Field(
        default=0, ge=0, description="`metadata.generation` of the spec that the extender judged"
    )
    pods: int = Field(default=0, ge=0, description="ready pods of the functions of its stages")


class FunctionProfileStatus(DocumentStatus):
    """State of a FunctionProfile: Accepted and Used, by the extender."""

    observed_generation: int = Field(
        default=0, ge=0, description="`metadata.generation` of the spec that the extender judged"
    )


class FunctionServerStatus(DocumentStatus):
    """State of a FunctionServer: Accepted and Ready, and its pods, by the gateway."""

    observed_generation: int = Field(
        default=0, ge=0, description="`metadata.generation` of the spec that the gateway judged"
    )
    replicas: int = Field(default=0, ge=0, description="pods with an address, ready or not")
    wanted_replicas: int = Field(
        default=0, ge=0, description="pods that the load of the gateway needs"
    )
    selector: str = Field(
        default="", max_length=16384, description="label selector of its pods, for autoscalers"
    )


@dataclass(frozen=True, slots=True)
class ConditionState:
    """Content of a condition, apart from its type and times."""

    status: ConditionStatus
    reason: str
    message: str = ""


ACCEPTED = ConditionState("True", "Accepted")
NOT_ACCEPTED = ConditionState("Unknown", "NotAccepted", "the condition Accepted says why")


@dataclass(frozen=True, slots=True)
class ObservedDocument:
    """Identity and status of a document as the API server reported it last.

    Attributes:
        version: resource version.
        conditions: conditions by type.
        fields: other fields of the status.
    """

    uid: str
    generation: int
    version: str
    conditions: Mapping[str, Mapping[str, Any]]
    fields: Mapping[str, Any]

    @classmethod
    def of(cls, raw: Mapping[str, Any]) -> "ObservedDocument":
        """Read the object."""
        metadata, status = raw["metadata"], dict(raw.get("status") or {})
        conditions = {c["type"]: c for c in status.pop("conditions", None) or ()}
        return cls(
            metadata.get("uid") or "",
            metadata.get("generation") or 0,
            metadata.get("resourceVersion") or "",
            conditions,
            status,
        )

    def state(self, kind: str) -> ConditionState | None:
        """Return the state of a condition; None without one."""
        condition = self.conditions.get(kind)
        if condition is None:
            return None
        return ConditionState(
            condition["status"], condition["reason"], condition.get("message") or ""
        )

    def is_current(self, kind: str) -> bool:
        """Return true if a condition is there, for the present spec."""
        condition = self.conditions.get(kind)
        return condition is not None and condition.get("observedGeneration", 0) == self.generation


def rejected(error: DocumentError) -> ConditionState:
    """Return the state of an invalid document: the first problem's reason, all messages."""
    texts = [f"{p.field}: {p.message}" if p.field else p.message for p in error.problems]
    return ConditionState("False", error.problems[0].reason, shortened("; ".join(texts)))


def shortened(text: str) -> str:
    """Cut a message to `MESSAGE_MAX` characters."""
    return text if len(text) <= MESSAGE_MAX else f"{text[: MESSAGE_MAX - 1]}…"
