"""Findings of checkov and kube-score in the chart's objects, and of hadolint in the Dockerfile.

Every finding needs a reason in `helm/exceptions.yaml`. `make lint-chart` installs the tools and
runs these tests.
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
GRADE_MAX = 10  # kube-score's best grade
pytestmark = pytest.mark.slow
needs_checkers = needing(
    (CHECKERS / "checkov").exists(),
    "checkov and hadolint are not installed: run `make lint-chart`",
)


class Finding(NamedTuple):
    check: str
    """The tool, and its name of the check."""
    kind: str


def output_of(*command: str | Path) -> str:
    """Return the standard output of a tool; an exit status of findings is no error."""
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    assert done.stdout, done.stderr
    return done.stdout


def checkov_findings(manifest: Path) -> Iterator[Finding]:
    command = ["--framework", "kubernetes", "--skip-download", "--quiet", "--output", "json"]
    report = json.loads(output_of(CHECKERS / "checkov", *command, "--file", manifest))
    assert not report["summary"]["parsing_errors"]
    assert report["summary"]["passed"] > 0
    for check in report["results"]["failed_checks"]:
        yield Finding(f"checkov {check['check_id']}", check["resource"].partition(".")[0])


def kube_score_findings(manifest: Path) -> Iterator[Finding]:
    program = binaries.build(["kube-score"])["kube-score"]
    minor = "v" + KUBERNETES.rpartition(".")[0]
    flags = ["--output-format=json", f"--kubernetes-version={minor}"]
    report = json.loads(output_of(program, "score", *flags, manifest))
    assert report
    for scored in report:
        for check in scored["checks"]:
            if not check["skipped"] and check["grade"] < GRADE_MAX:
                yield Finding(f"kube-score {check['check']['id']}", scored["type_meta"]["kind"])


def exceptions() -> list[Json]:
    documents: list[Json] = yaml.safe_load(EXCEPTIONS.read_text(encoding="utf-8"))
    return documents


@needs_checkers
@pytest.mark.usefixtures("helm_built", "kube_score_built")
def test_each_finding_has_a_reason_and_each_reason_a_finding(tmp_path: Path) -> None:
    """Objects of the defaults and of `everything.yaml` are checked."""
    findings: set[Finding] = set()
    for name, values in (("defaults", []), ("everything", [EVERYTHING])):
        manifest = tmp_path / f"{name}.yaml"
        manifest.write_text(yaml.safe_dump_all(render(*values)), encoding="utf-8")
        findings |= {*checkov_findings(manifest), *kube_score_findings(manifest)}
    excepted = {
        Finding(check, kind)
        for exception in exceptions()
        for check in exception["checks"]
        for kind in exception["of"]
    }
    assert findings - excepted == set(), "no reason in helm/exceptions.yaml"
    assert excepted - findings == set(), "no finding needs these exceptions in helm/exceptions.yaml"


def test_every_exception_has_one_reason() -> None:
    """The reason is a sentence, and no finding has two reasons."""
    named = [(check, kind) for e in exceptions() for check in e["checks"] for kind in e["of"]]
    assert len(set(named)) == len(named)
    for exception in exceptions():
        assert exception["because"].endswith("."), exception["checks"]


@needs_checkers
def test_hadolint_finds_nothing_in_the_dockerfile() -> None:
    """All of its rules are on."""
    assert (
        json.loads(output_of(CHECKERS / "hadolint", "--format", "json", REPOSITORY / "Dockerfile"))
        == []
    )


@needs_checkers
def test_the_tools_find_deliberate_faults(tmp_path: Path) -> None:
    """Each tool reports a fault in a file written for it."""
    dockerfile = tmp_path / "Dockerfile"
    dockerfile.write_text("FROM debian\n", encoding="utf-8")
    assert "DL3006" in output_of(CHECKERS / "hadolint", "--format", "json", dockerfile)
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "any"}}
    container = {"name": "main", "image": "any", "securityContext": {"privileged": True}}
    manifest = tmp_path / "pod.yaml"
    manifest.write_text(yaml.safe_dump(pod | {"spec": {"containers": [container]}}))
    assert Finding("checkov CKV_K8S_16", "Pod") in set(checkov_findings(manifest))
