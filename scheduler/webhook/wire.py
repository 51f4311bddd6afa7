"""Wire types of an admission webhook; only the fields that are read or written here.

Source: k8s.io/api/admission/v1/types.go. The object stays raw JSON: the patch must apply to exactly
what the API server sent.
"""

from collections.abc import Mapping
from typing import Annotated, Any, Final, Literal, NotRequired

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, TypeAdapter, with_config
from typing_extensions import TypedDict

from scheduler.server.pod_json import PodJson

API_VERSION: Final = "admission.k8s.io/v1"
_Open = ConfigDict(extra="allow")


@with_config(_Open)
class _NamedJson(TypedDict):
    name: str


@with_config(_Open)
class _MountJson(TypedDict):
    name: str
    mountPath: str


@with_config(_Open)
class _AdmittedContainerJson(TypedDict):
    env: NotRequired[list[_NamedJson] | None]
    volumeMounts: NotRequired[list[_MountJson] | None]
    securityContext: NotRequired[dict[str, Any] | None]


@with_config(_Open)
class _InitContainerJson(_AdmittedContainerJson):
    name: str


@with_config(_Open)
class _AdmittedPodSpecJson(TypedDict):
    containers: Annotated[list[_AdmittedContainerJson], Field(min_length=1)]
    initContainers: NotRequired[list[_InitContainerJson] | None]
    volumes: NotRequired[list[_NamedJson] | None]
    schedulerName: NotRequired[str | None]
    runtimeClassName: NotRequired[str | None]
    imagePullSecrets: NotRequired[list[dict[str, Any]] | None]


@with_config(_Open)
class _ChangedPodJson(TypedDict):
    """The fields of a Pod that the webhook changes; the extender's `PodJson` has those it reads."""

    spec: _AdmittedPodSpecJson


_POD_FORMS: tuple[TypeAdapter[Any], ...] = (TypeAdapter(PodJson), TypeAdapter(_ChangedPodJson))


def check_pod(raw: Any) -> None:
    """Check that a Pod can be read and mutated.

    Raises:
        ValidationError: pydantic's; a field has the wrong form.
    """
    for form in _POD_FORMS:
        form.validate_python(raw)


class _AdmissionMessage(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore")


class GroupVersionKind(_AdmissionMessage):
    """The type of the object."""

    group: str = ""
    version: str = ""
    kind: str


class AdmissionRequest(_AdmissionMessage):
    """The object to admit."""

    uid: Annotated[str, StringConstraints(min_length=1, max_length=128)]
    kind: GroupVersionKind
    sub_resource: Annotated[str, Field(alias="subResource")] = ""
    operation: str
    namespace: str = ""
    object: Mapping[str, Any] | None = None

    def creates_pod(self) -> bool:
        """Return true if the request creates a Pod; no other request is processed."""
        operation = (self.kind.group, self.kind.kind, self.sub_resource, self.operation)
        return operation == ("", "Pod", "", "CREATE")


class AdmissionReview(_AdmissionMessage):
    """The API server's request."""

    api_version: Annotated[Literal["admission.k8s.io/v1"], Field(alias="apiVersion")]
    kind: Literal["AdmissionReview"]
    request: AdmissionRequest


class Status(_AdmissionMessage):
    """The reason for a denial; the code becomes the HTTP status of the creator's request."""

    code: int
    reason: str
    message: str


class AdmissionResponse(_AdmissionMessage):
    """The verdict, and the patch or the reason."""

    uid: str
    allowed: bool
    patch_type: Annotated[Literal["JSONPatch"] | None, Field(serialization_alias="patchType")] = (
        None
    )
    patch: str | None = None  # the JSON patch (RFC 6902) in base64
    status: Status | None = None
    warnings: tuple[str, ...] | None = None  # kubectl and other clients show them to the creator


class AdmissionAnswer(_AdmissionMessage):
    """The response to the API server."""

    api_version: Annotated[str, Field(serialization_alias="apiVersion")] = API_VERSION
    kind: str = "AdmissionReview"
    response: AdmissionResponse

    def as_json(self) -> str:
        """Serialise without unset fields."""
        return self.model_dump_json(by_alias=True, exclude_none=True)
