"""Profiles corrected by the run times that gateways observed."""

from collections.abc import Iterable, Mapping
from typing import Any, cast

from pydantic import BaseModel, Field

from scheduler.dispatch.run_times import RATIO_MAX, RUNS_MIN, Correction
from scheduler.model.document_reader import parse_document
from scheduler.model.documents import FunctionProfile, to_manifest
from scheduler.model.names import GROUP

ANNOTATION_REFRESHED = f"{GROUP}/refreshed"
_DIGITS = 4  # a tenth of a microsecond
_BOUND_RATIO = 0.99  # part of the bound on a run's ratio from which most runs are at the bound


class RefreshError(Exception):
    """A profile cannot be corrected; the message says why, and what to do."""


class NamespaceRunTimes(BaseModel):
    """Run times of a function in one namespace, as ``/v1/run-times/FUNCTION`` has them."""

    runs: int = Field(ge=0)
    ratio: float = Field(gt=0)
    spread_ratio: float | None = Field(ge=0)


class ObservedRunTimes(BaseModel):
    """Answer of ``/v1/run-times/FUNCTION``."""

    spec_sha256: str
    namespaces: dict[str, NamespaceRunTimes]


def refreshed_profile(
    profile: FunctionProfile, observations: Iterable[ObservedRunTimes]
) -> FunctionProfile:
    """Return a profile with the times that the gateways expect, of the namespace with most runs.

    Args:
        profile: profile that the gateways use.
        observations: answers of gateways.

    Raises:
        RefreshError: no gateway serves the function, or their observations correct nothing.
        DocumentError: a corrected time is beyond the limits of a profile.
    """
    name = profile.metadata.name
    by_namespace: list[tuple[int, str, NamespaceRunTimes]] = []
    for observed in observations:
        if observed.spec_sha256 != profile.spec_sha256:
            raise RefreshError(
                f"{name}: the gateway uses another profile; give the one that is applied"
            )
        by_namespace += [(o.runs, key, o) for key, o in observed.namespaces.items()]
    if not by_namespace:
        raise RefreshError(f"{name}: no gateway serves the function; give the URL of one that does")
    runs, namespace, best = max(by_namespace, key=lambda item: item[:2])
    if runs < RUNS_MIN:
        raise RefreshError(
            f"{name}: {runs} full batches were observed; a correction needs {RUNS_MIN}"
        )
    if not RATIO_MAX * _BOUND_RATIO > best.ratio > 1 / (RATIO_MAX * _BOUND_RATIO):
        raise RefreshError(
            f"{name}: runs take {best.ratio:.2f} times as long, and one counts with at most "
            f"{RATIO_MAX:g} times; measure again"
        )
    correction = Correction(best.ratio, best.spread_ratio)
    remark = (
        f"times are {best.ratio:.3f} times those before, over {runs} runs in namespace {namespace}"
    )
    return _corrected(profile, correction, remark)


def _corrected(profile: FunctionProfile, correction: Correction, remark: str) -> FunctionProfile:
    manifest = to_manifest(profile)
    metadata = manifest["metadata"]
    metadata["annotations"] = {**(metadata.get("annotations") or {}), ANNOTATION_REFRESHED: remark}
    for raw_gpu, gpu in zip(
        manifest["spec"]["gpus"], correction.profile(profile).spec.gpus, strict=True
    ):
        for raw, c in zip(raw_gpu["configurations"], gpu.configurations, strict=True):
            raw.update(_times(c.latency_ms, c.p95_ms))
    return cast("FunctionProfile", parse_document(manifest, "the corrected profile"))


def _times(latency_ms: float, p95_ms: float | None) -> Mapping[str, Any]:
    times = {"latencyMs": round(latency_ms, _DIGITS)}
    return times if p95_ms is None else times | {"p95Ms": round(p95_ms, _DIGITS)}
