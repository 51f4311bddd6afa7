"""Nothing that others' tools find wrong is left without a written reason.

checkov and kube-score look at what the chart makes, hadolint at the Dockerfile. The reasons are in
`helm/exceptions.yaml`. `make lint-chart` installs the tools and runs this.
"""

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
import yaml

from tests.chart.rendering import EVERYTHING, KUBERNETES, Json, render
from tests.require import needing
from tests.testbed import REPOSITORY, binaries

CHECKERS = REPOSITORY / "build" / "checkers" / "bin"
EXCEPTIONS = REPOSITORY / "helm" / "exceptions.yaml"
ALL_WELL = 10  # kube-score's best grade
needs_checkers = needing(
    (CHECKERS / "checkov").exists(),
    "checkov and hadolint are not installed: `make lint-chart` does",
)


class Finding(NamedTuple):
    check: str
    """The tool, and its name of what it looked for."""
    kind: str


def told_by(*command: str | Path) -> str:
    """What a tool prints; findings are no error here."""
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=100)
    assert done.stdout, done.stderr
    return done.stdout


def of_checkov(manifest: Path) -> Iterator[Finding]:
    command = ["--framework", "kubernetes", "--skip-download", "--quiet", "--output", "json"]
    told = json.loads(told_by(CHECKERS / "checkov", *command, "--file", manifest))
    assert not told["summary"]["parsing_errors"]
    assert told["summary"]["passed"] > 0
    for each in told["results"]["failed_checks"]:
        yield Finding(f"checkov {each['check_id']}", each["resource"].partition(".")[0])


def of_kube_score(manifest: Path) -> Iterator[Finding]:
    program = binaries.build(["kube-score"])["kube-score"]
    minor = "v" + KUBERNETES.rpartition(".")[0]
    told = json.loads(
        told_by(program, "score", "--output-format=json", f"--kubernetes-version={minor}", manifest)
    )
    assert told
    for looked_at in told:
        for each in looked_at["checks"]:
            if not each["skipped"] and each["grade"] < ALL_WELL:
                yield Finding(f"kube-score {each['check']['id']}", looked_at["type_meta"]["kind"])


def exceptions() -> list[Json]:
    found: list[Json] = yaml.safe_load(EXCEPTIONS.read_text(encoding="utf-8"))
    return found


@needs_checkers
@pytest.mark.usefixtures("helm_is_there", "kube_score_is_there")
def test_each_finding_has_a_reason_and_each_reason_a_finding(tmp_path: Path) -> None:
    """In what the defaults make, and in what everything that can be set makes."""
    found: set[Finding] = set()
    for name, values in (("defaults", []), ("everything", [EVERYTHING])):
        manifest = tmp_path / f"{name}.yaml"
        manifest.write_text(yaml.safe_dump_all(render(*values)), encoding="utf-8")
        found |= {*of_checkov(manifest), *of_kube_score(manifest)}
    excepted = {
        Finding(check, kind)
        for each in exceptions()
        for check in each["checks"]
        for kind in each["of"]
    }
    assert found - excepted == set(), "no reason in helm/exceptions.yaml"
    assert excepted - found == set(), "nothing needs these in helm/exceptions.yaml"


def test_every_exception_says_why() -> None:
    """In a sentence, and no finding has two reasons."""
    named = [(check, kind) for e in exceptions() for check in e["checks"] for kind in e["of"]]
    assert len(set(named)) == len(named)
    for each in exceptions():
        assert each["because"].endswith("."), each["checks"]


@needs_checkers
def test_the_dockerfile_has_no_fault() -> None:
    """By hadolint's own rules, with none left out."""
    assert (
        json.loads(told_by(CHECKERS / "hadolint", "--format", "json", REPOSITORY / "Dockerfile"))
        == []
    )


@needs_checkers
def test_a_fault_would_be_found(tmp_path: Path) -> None:
    """The tools look: each finds one that was made for it."""
    dockerfile = tmp_path / "Dockerfile"
    dockerfile.write_text("FROM debian\n", encoding="utf-8")
    assert "DL3006" in told_by(CHECKERS / "hadolint", "--format", "json", dockerfile)
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "any"}}
    container = {"name": "main", "image": "any", "securityContext": {"privileged": True}}
    manifest = tmp_path / "pod.yaml"
    manifest.write_text(yaml.safe_dump(pod | {"spec": {"containers": [container]}}))
    assert Finding("checkov CKV_K8S_16", "Pod") in set(of_checkov(manifest))
