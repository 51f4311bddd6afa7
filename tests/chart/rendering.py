"""Objects of the chart, rendered by Helm without a cluster."""

import functools
import json
import os
import pickle
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from scheduler.model.yaml_parser import parse_yaml
from tests.testbed import REPOSITORY, binaries

CHART = REPOSITORY / "helm" / "esg-scheduler"
EVERYTHING = Path(__file__).parent / "everything.yaml"
KUBERNETES = "1.34.4"
LIMIT_S = 400
"""More than the five minutes after which Helm itself reports what it waits for."""

Json = dict[str, Any]


class RefusedError(Exception):
    """Error of Helm; the message is its standard error."""


def helm(*arguments: str, with_log: bool = False) -> str:
    """Run Helm and return its standard output, on request followed by its log.

    Raises:
        RefusedError: Helm failed.
    """
    environment = {**os.environ, "GOGC": "off"}  # it ends sooner than its garbage matters
    done = subprocess.run(
        [_program(), *arguments],
        capture_output=True, text=True, check=False, timeout=LIMIT_S, env=environment,
    )  # fmt: skip
    if done.returncode != 0:
        raise RefusedError(done.stderr)
    return done.stdout + (done.stderr if with_log else "")


@functools.cache
def _program() -> Path:
    return binaries.build(["helm"])["helm"]


@functools.cache
def _template(
    values: tuple[str, ...], release: str, namespace: str, kubernetes: str, apis: tuple[str, ...]
) -> str:
    apis_flags = [flag for api in apis for flag in ("--api-versions", api)]
    return helm(
        "template", release, str(CHART), "--namespace", namespace, "--kube-version", kubernetes,
        "--include-crds", *apis_flags, *values,
    )  # fmt: skip


@functools.cache  # most documents are the same with other values
def _parsed(part: str) -> bytes:
    """Return the documents of a part of a rendered text, pickled: a test may change its own."""
    return pickle.dumps([document for document in parse_yaml(part) if document])


def render(
    *values: str | Path,
    release: str = "esg",
    namespace: str = "serving",
    kubernetes: str = KUBERNETES,
    apis: tuple[str, ...] = (),
    **overrides: Any,
) -> list[Json]:
    """Render the objects of the chart.

    Args:
        values: files of values.
        release: name of the release.
        namespace: namespace of the release.
        kubernetes: version of the cluster.
        apis: further API groups and versions of the cluster.
        overrides: JSON values by top-level key; they override the files.

    Raises:
        RefusedError: the chart rejects the values.
    """
    flags = [flag for path in values for flag in ("--values", str(path))]
    for key, value in overrides.items():
        flags += ["--set-json", f"{key}={json.dumps(value)}"]
    text = _template(tuple(flags), release, namespace, kubernetes, apis)
    return [document for part in text.split("\n---\n") for document in pickle.loads(_parsed(part))]


def one(objects: list[Json], kind: str, suffix: str = "") -> Json:
    """Return the only object of the kind whose name ends with the suffix."""
    [match] = [
        candidate
        for candidate in objects
        if candidate["kind"] == kind and candidate["metadata"]["name"].endswith(suffix)
    ]
    return match


def pod_specs(objects: list[Json]) -> Iterator[tuple[str, Json]]:
    """Yield kind and pod spec of every Pod and of every object with a pod template."""
    for document in objects:
        if document["kind"] in {"Deployment", "DaemonSet", "Job"}:
            yield document["kind"], document["spec"]["template"]["spec"]
        elif document["kind"] == "Pod":
            yield document["kind"], document["spec"]


def containers(objects: list[Json]) -> Iterator[tuple[str, Json]]:
    """Yield ``Kind/name`` and spec of every container, init containers and sidecars included."""
    for kind, spec in pod_specs(objects):
        for container in [*spec.get("initContainers", []), *spec["containers"]]:
            yield f"{kind}/{container['name']}", container


def environment(container: Json) -> dict[str, str]:
    """Return the variables that have plain values."""
    return {v["name"]: v["value"] for v in container.get("env", []) if "value" in v}
