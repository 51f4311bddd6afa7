"""Bundles of profiles that people publish: a header with their origin, and FunctionProfiles.

The header has an API group of its own, so each command that reads documents reads the profiles of a
bundle and skips the header.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import Field, ValidationError

from scheduler.model.document_fields import DocumentModel, Metadata, Name
from scheduler.model.document_reader import DocumentError, Problem, items_of, read_documents
from scheduler.model.documents import FunctionProfile
from scheduler.model.yaml_parser import parse_yaml

BUNDLE_API_VERSION = "profiles.esg-scheduler.io/v1"
_LINE = Field(min_length=1, max_length=256)
_Slowdown = Annotated[float, Field(ge=0, allow_inf_nan=False)]
_Digest = Annotated[str, Field(pattern=r"^sha256:[0-9a-f]{64}$")]


class BundleSpec(DocumentModel):
    """Origin of the profiles of a bundle.

    Attributes:
        license: SPDX identifier of the license of the measurements.
        machine: machine and its CPUs.
        driver: version of the GPU driver; None without a GPU.
        command: command that measured the profiles.
        model_digests: digest of the measured model's file, by function.
        interference: slowdown by neighbours, as `interference` of a scenario.
    """

    license: str = _LINE
    machine: str = _LINE
    driver: str | None = None
    command: str = Field(min_length=1, max_length=4096)
    model_digests: dict[Name, _Digest]
    interference: dict[Name, _Slowdown | dict[Name, _Slowdown]] = Field(default={})


class BundleHeader(DocumentModel):
    """First document of a bundle."""

    api_version: Literal["profiles.esg-scheduler.io/v1"]
    kind: Literal["ProfileBundle"]
    metadata: Metadata
    spec: BundleSpec


@dataclass(frozen=True, slots=True)
class ProfileText:
    """Profiles of a text, and the header of the bundle; None: the text is no bundle."""

    header: BundleHeader | None
    profiles: Sequence[FunctionProfile]


def read_bundle(text: str, source: str) -> ProfileText:
    """Read the profiles of a YAML or JSON text, and its header if it has one.

    Raises:
        DocumentError: a document or the header is invalid, or they do not match.
    """
    documents, problems = read_documents(text, source)
    if problems:
        raise DocumentError(problems)
    profiles = [document for document in documents if isinstance(document, FunctionProfile)]
    headers = [
        item
        for raw in parse_yaml(text)
        if raw is not None
        for item in items_of(raw)
        if item.get("apiVersion") == BUNDLE_API_VERSION
    ]
    if not headers:
        return ProfileText(None, profiles)
    if len(headers) > 1:
        raise _error(source, "kind", f"{len(headers)} documents are headers; keep one")
    try:
        header = BundleHeader.model_validate(headers[0])
    except ValidationError as error:
        details = error.errors(include_url=False, include_context=False)
        raise DocumentError(
            Problem(source, "ProfileBundle", ".".join(map(str, e["loc"])), e["msg"])
            for e in details
        ) from None
    names = {profile.metadata.name for profile in profiles}
    if missing := sorted(names - header.spec.model_digests.keys()):
        raise _error(
            source, "spec.modelDigests", f"has no digest of {', '.join(missing)}; add sha256:…"
        )
    if unknown := sorted((header.spec.model_digests.keys() | header.spec.interference) - names):
        raise _error(source, "spec", f"the bundle has no profile of {', '.join(unknown)}; remove")
    return ProfileText(header, profiles)


def _error(source: str, place: str, message: str) -> DocumentError:
    return DocumentError([Problem(source, "ProfileBundle", place, message)])
