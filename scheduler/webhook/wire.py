"""The wire of an admission webhook, as far as it is read and written here.

Source: k8s.io/api/admission/v1/types.go. The object stays the JSON it came as: the patch must fit
what the API server has, to the letter.
"""

from collections.abc import Mapping
from typing import Annotated, Any, Final, Literal, NotRequired

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, TypeAdapter, with_config
from typing_extensions import TypedDict

from scheduler.extender.wire import PodJson

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


@with_config(_Open)
class _ChangedPodJson(TypedDict):
    """What is changed of a Pod; what is read of one is the extender's `PodJson`."""

    spec: _AdmittedPodSpecJson


_POD_FORMS: tuple[TypeAdapter[Any], ...] = (TypeAdapter(PodJson), TypeAdapter(_ChangedPodJson))


def check_pod(raw: Any) -> None:
    """Nothing, for a Pod that can be read and changed here.

    Raises:
        ValidationError: pydantic's; it has another form.
    """
    for form in _POD_FORMS:
        form.validate_python(raw)


class _AdmissionMessage(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore")


class GroupVersionKind(_AdmissionMessage):
    """What the object is."""

    group: str = ""
    version: str = ""
    kind: str


class AdmissionRequest(_AdmissionMessage):
    """What is to be admitted."""

    uid: Annotated[str, StringConstraints(min_length=1, max_length=128)]
    kind: GroupVersionKind
    sub_resource: Annotated[str, Field(alias="subResource")] = ""
    operation: str
    namespace: str = ""
    object: Mapping[str, Any] | None = None

    def creates_pod(self) -> bool:
        """Whether a Pod is being created; nothing else is looked at."""
        what = (self.kind.group, self.kind.kind, self.sub_resource, self.operation)
        return what == ("", "Pod", "", "CREATE")


class AdmissionReview(_AdmissionMessage):
    """The question of the API server."""

    api_version: Annotated[Literal["admission.k8s.io/v1"], Field(alias="apiVersion")]
    kind: Literal["AdmissionReview"]
    request: AdmissionRequest


class Status(_AdmissionMessage):
    """Why it is not admitted; the code becomes that of the creator's request."""

    code: int
    reason: str
    message: str


class AdmissionResponse(_AdmissionMessage):
    """Whether it is admitted, and as what."""

    uid: str
    allowed: bool
    patch_type: Annotated[Literal["JSONPatch"] | None, Field(serialization_alias="patchType")] = (
        None
    )
    patch: str | None = None  # the JSON patch (RFC 6902) in base64
    status: Status | None = None
    warnings: tuple[str, ...] | None = None  # shown to the creator by kubectl and others


class AdmissionAnswer(_AdmissionMessage):
    """The answer to the API server."""

    api_version: Annotated[str, Field(serialization_alias="apiVersion")] = API_VERSION
    kind: str = "AdmissionReview"
    response: AdmissionResponse

    def as_json(self) -> str:
        """As it goes over the wire: what is not set is left out."""
        return self.model_dump_json(by_alias=True, exclude_none=True)
