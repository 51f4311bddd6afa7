"""FunctionProfiles as manifests and as YAML."""

from collections.abc import Iterable, Mapping, Sequence
from math import prod
from typing import Any

import yaml

from scheduler.model.documents import FunctionProfile, ProfiledConfiguration, to_manifest
from scheduler.model.names import API_VERSION
from workbench.profiles.dominance import point

try:  # the C emitter is five times faster; PyYAML may have been built without it
    from yaml import CSafeDumper as _Dumper
except ImportError:  # pragma: no cover
    from yaml import SafeDumper as _Dumper  # type: ignore[assignment]

_WIDTH = 200  # characters of a line of YAML: a configuration needs one


def gpu_section(model: str, configurations: Sequence[ProfiledConfiguration]) -> dict[str, Any]:
    """Return the section of one GPU model; it is sparse where the grid has holes."""
    axes = zip(*map(point, configurations), strict=True)
    full = len(configurations) == prod(len(set(axis)) for axis in axes)
    return {
        "model": model,
        **({} if full else {"sparse": True}),
        "configurations": [
            configuration.model_dump(by_alias=True, exclude_unset=True)
            for configuration in configurations
        ],
    }


def profile_manifest(
    name: str,
    gpus: Sequence[Mapping[str, Any]],
    *,
    annotations: Mapping[str, str],
    cold_start_ms: float | None,
    output_mib: float | None,
) -> dict[str, Any]:
    """Return the manifest of a profile; a time or size of None is left out."""
    values = {"coldStartMs": cold_start_ms, "outputMib": output_mib}
    return {
        "apiVersion": API_VERSION,
        "kind": "FunctionProfile",
        "metadata": {"name": name, "annotations": dict(annotations)},
        "spec": {
            **{key: value for key, value in values.items() if value is not None},
            "gpus": list(gpus),
        },
    }


def as_yaml(profiles: Iterable[FunctionProfile], *comments: str) -> str:
    """Render the documents below comments, a line each."""
    lines = "".join(f"# {comment}\n" for comment in comments)
    return lines + yaml.dump_all(
        [to_manifest(profile) for profile in profiles],
        Dumper=_Dumper,
        default_flow_style=None,
        sort_keys=False,
        allow_unicode=True,
        width=_WIDTH,
    )
