"""The chart as Helm renders it, without a cluster."""

import functools
import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from tests.testbed import REPOSITORY, binaries

CHART = REPOSITORY / "helm" / "esg-scheduler"
EVERYTHING = Path(__file__).parent / "everything.yaml"
KUBERNETES = "1.34.4"

Json = dict[str, Any]


class RefusedError(Exception):
    """Helm did not render the chart; the message is Helm's."""


def helm(*arguments: str) -> str:
    """What Helm prints.

    Raises:
        RefusedError: it ended with an error.
    """
    done = subprocess.run(
        [_program(), *arguments], capture_output=True, text=True, check=False, timeout=60
    )
    if done.returncode != 0:
        raise RefusedError(done.stderr)
    return done.stdout


@functools.cache
def _program() -> Path:
    return binaries.build(["helm"])["helm"]


@functools.cache
def _template(values: tuple[str, ...], release: str, namespace: str, kubernetes: str) -> str:
    return helm(
        "template", release, str(CHART), "--namespace", namespace, "--kube-version", kubernetes,
        "--include-crds", *values,
    )  # fmt: skip


def render(
    *values: str | Path,
    release: str = "esg",
    namespace: str = "serving",
    kubernetes: str = KUBERNETES,
    **given: Any,
) -> list[Json]:
    """The objects of the chart.

    Args:
        values: files of values.
        release: name of the release.
        namespace: where it is installed.
        kubernetes: version of the cluster.
        given: values over those, each a top-level key with JSON.

    Raises:
        RefusedError: the values are refused.
    """
    flags = [flag for path in values for flag in ("--values", str(path))]
    for key, value in given.items():
        flags += ["--set-json", f"{key}={json.dumps(value)}"]
    text = _template(tuple(flags), release, namespace, kubernetes)
    return [document for document in yaml.safe_load_all(text) if document]


def one(objects: list[Json], kind: str, suffix: str = "") -> Json:
    """The one object of the kind whose name ends so."""
    [found] = [
        each
        for each in objects
        if each["kind"] == kind and each["metadata"]["name"].endswith(suffix)
    ]
    return found


def pod_specs(objects: list[Json]) -> Iterator[tuple[str, Json]]:
    """Kind and pod of everything that makes pods."""
    for each in objects:
        if each["kind"] in {"Deployment", "DaemonSet", "Job"}:
            yield each["kind"], each["spec"]["template"]["spec"]
        elif each["kind"] == "Pod":
            yield each["kind"], each["spec"]


def containers(objects: list[Json]) -> Iterator[tuple[str, Json]]:
    """``Kind/name`` and every container, sidecars and initial ones among them."""
    for kind, spec in pod_specs(objects):
        for each in [*spec.get("initContainers", []), *spec["containers"]]:
            yield f"{kind}/{each['name']}", each


def environment(container: Json) -> dict[str, str]:
    """The variables with plain values."""
    return {v["name"]: v["value"] for v in container.get("env", []) if "value" in v}
