"""The release: rights and pins of its workflow, checks of its script, and the packaged chart."""

import re
import shutil
import subprocess
import tarfile
from pathlib import Path
from typing import Any

import pytest
import yaml

from scheduler import __version__
from tests.testbed import REPOSITORY, binaries

WORKFLOWS = sorted((REPOSITORY / ".github" / "workflows").glob("*.yaml"))
KIND = REPOSITORY / ".github" / "workflows" / "kind.yaml"
RELEASE = REPOSITORY / ".github" / "workflows" / "release.yaml"
REGISTRY = "registry.example/esg"
needs_helm = pytest.mark.skipif(
    not binaries.is_built("helm"), reason="Helm is not built: python -m tests.testbed.binaries helm"
)


def workflow(path: Path) -> dict[Any, Any]:
    document: dict[Any, Any] = yaml.safe_load(path.read_text(encoding="utf-8"))
    return document


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """Copy what the script reads."""
    names = (".ci", "CHANGELOG.md", "Dockerfile", "helm/esg-scheduler", "scheduler/__init__.py")
    for name in names:
        source, target = REPOSITORY / name, tmp_path / name
        target.parent.mkdir(parents=True, exist_ok=True)
        (shutil.copytree if source.is_dir() else shutil.copy)(source, target)
    return tmp_path


def check(repository: Path, version: str) -> subprocess.CompletedProcess[str]:
    """Run the script up to the point where it would push."""
    environment = {
        "PATH": "/usr/bin:/bin",
        "REGISTRY": REGISTRY,
        "HELM": str(binaries.build(["helm"])["helm"]),
        "HOME": str(repository),
    }
    return subprocess.run(
        [repository / ".ci" / "release", version, "--check"],
        env=environment, capture_output=True, text=True, check=False, timeout=300,
    )  # fmt: skip


@needs_helm
def test_the_chart_of_a_release_names_its_image(repository: Path) -> None:
    """By registry and digest; everything else is the chart of the repository."""
    done = check(repository, f"v{__version__}")
    assert done.returncode == 0, done.stderr
    with tarfile.open(repository / "build/release" / f"esg-scheduler-{__version__}.tgz") as archive:
        member = archive.extractfile("esg-scheduler/values.yaml")
        assert member is not None
        values = yaml.safe_load(member.read())
    assert values["image"]["repository"] == f"{REGISTRY}/esg-scheduler"
    assert re.fullmatch(r"sha256:[0-9a-f]{64}", values["image"]["digest"])
    original = yaml.safe_load((REPOSITORY / "helm/esg-scheduler/values.yaml").read_text())
    assert {**values, "image": original["image"]} == original


def test_documented_installs_name_what_a_release_publishes() -> None:
    """One line with the registry of the workflow, the chart's place in it, and the version."""
    [job] = workflow(RELEASE)["jobs"].values()
    owner = re.search(r"https://github\.com/([\w-]+)/", (REPOSITORY / "mkdocs.yml").read_text())
    assert owner is not None
    registry = job["env"]["REGISTRY"].replace("${{ github.repository_owner }}", owner[1])
    script = (REPOSITORY / ".ci" / "release").read_text(encoding="utf-8")
    pushed = re.search(r'helm" push \S+ "oci://\$registry/(\w+)"', script)
    assert pushed is not None
    chart = f"oci://{registry}/{pushed[1]}/esg-scheduler --version {__version__}"
    for name in ("README.md", "docs/install.md"):
        assert f"\nhelm install esg-scheduler {chart} " in (REPOSITORY / name).read_text(), name


@needs_helm
@pytest.mark.parametrize(
    ("file", "message"),
    [
        ("helm/esg-scheduler/Chart.yaml", "Chart.yaml: version is not"),
        ("scheduler/__init__.py", "__version__ is not"),
        ("CHANGELOG.md", "CHANGELOG.md has no section"),
    ],
)
def test_a_tag_that_is_not_the_version_is_refused(
    repository: Path, file: str, message: str
) -> None:
    """Chart, package and changelog must agree with it before anything is built."""
    path = repository / file
    path.write_text(path.read_text().replace(__version__, "9.9.9"))
    done = check(repository, f"v{__version__}")
    assert (done.returncode, message in done.stderr) == (1, True), done.stderr
    assert not (repository / "build").exists()


@needs_helm
def test_a_tag_that_is_no_version_is_refused(repository: Path) -> None:
    """It would be a part of commands."""
    assert "not a version" in check(repository, "v1; true").stderr


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_actions_are_pinned_and_rights_are_few(path: Path) -> None:
    """By commit, because a tag can be moved; what a job may write is listed there."""
    document = workflow(path)
    assert document["permissions"] == {"contents": "read"}
    for job in document["jobs"].values():
        assert job["timeout-minutes"]
        for step in job["steps"]:
            assert ("uses" in step) != ("run" in step)
            if "uses" in step:
                assert re.fullmatch(r"[\w-]+/[\w-]+@[0-9a-f]{40}", step["uses"])
            # An expression in a script would run what the name of a branch or a tag says.
            assert "${{" not in step.get("run", "")


@pytest.mark.skipif(
    not binaries.is_built("actionlint"),
    reason="actionlint is not built: python -m tests.testbed.binaries actionlint",
)
def test_workflows_have_no_findings() -> None:
    """Keys, expressions, matrices and the inputs of well-known actions pass actionlint."""
    program = binaries.build(["actionlint"])["actionlint"]
    command = [program, "-no-color", "-shellcheck=", "-pyflakes=", *WORKFLOWS]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    assert (done.returncode, done.stdout) == (0, "")


def test_the_suites_on_kind_run_on_three_releases() -> None:
    """One after the other, each with its official node image."""
    [job] = workflow(KIND)["jobs"].values()
    releases = [node.split("@")[0].rpartition(".")[0] for node in job["strategy"]["matrix"]["node"]]
    assert releases == ["v1.34", "v1.35", "v1.36"]
    [target] = [words[-1] for step in job["steps"] if (words := step.get("run", "").split())]
    assert re.search(rf"^{target}:", (REPOSITORY / "Makefile").read_text(), re.MULTILINE)


def test_only_a_tag_of_a_version_is_released() -> None:
    """Only that job may write packages and get an identity for signatures."""
    document = workflow(RELEASE)
    assert document[True] == {"push": {"tags": ["v[0-9]+.[0-9]+.[0-9]+*"]}}  # `on` is true in YAML
    [job] = document["jobs"].values()
    assert job["permissions"] == {"contents": "read", "packages": "write", "id-token": "write"}
    for path in WORKFLOWS:
        if path != RELEASE:
            assert not any("permissions" in job for job in workflow(path)["jobs"].values())


def test_a_release_has_its_bases_by_digest(repository: Path, tmp_path: Path) -> None:
    """Each base of the Dockerfile is an argument of the build, as the registry has it then.

    The script ends there, because this docker builds nothing.
    """
    digest = f"sha256:{'5' * 64}"
    docker = tmp_path / "docker"
    docker.write_text(
        f'#!/bin/sh\necho "$@" >> {tmp_path}/calls\n[ "$3" = inspect ] && echo {digest}\n:\n',
        encoding="utf-8",
    )
    docker.chmod(0o755)
    environment = {"PATH": f"{tmp_path}:/usr/bin:/bin", "REGISTRY": REGISTRY}
    script = [repository / ".ci" / "release", f"v{__version__}"]
    subprocess.run(script, env=environment, capture_output=True, check=False, timeout=300)
    *inspected, build = (tmp_path / "calls").read_text(encoding="utf-8").splitlines()
    dockerfile = (REPOSITORY / "Dockerfile").read_text(encoding="utf-8")
    bases = re.findall(r"^ARG (\w+)=(\S+)$", dockerfile, re.MULTILINE)
    assert len(inspected) == len(bases) > 0
    for name, base in bases:
        assert f"--build-arg {name}={base}@{digest}" in build


def test_the_image_has_both_architectures_an_sbom_and_a_signature() -> None:
    """The script's command line."""
    script = (REPOSITORY / ".ci" / "release").read_text(encoding="utf-8")
    assert "platforms=linux/amd64,linux/arm64" in script
    assert "--sbom=true --provenance=mode=max" in script
    assert script.count("cosign sign --yes") == 2
    subprocess.run(["bash", "-n", REPOSITORY / ".ci" / "release"], check=True)
