"""Configuration of the kind cluster; the cluster itself is tested by tests/node."""

import re
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path

import pytest
import yaml

from tests.testbed import REPOSITORY, binaries, kind
from tests.testbed.kind_cluster import CONFIG, KindCluster, cluster_config

IMAGE = "kindest/node:v1.36.4@sha256:0"
PINNED = r"kindest/node:v1\.\d+\.\d+@sha256:[0-9a-f]{64}"


def test_a_pulled_image_is_used_by_every_node_with_its_own_network() -> None:
    """One control plane and three workers; kubelets accept what the users' configuration lacks."""
    config = cluster_config(IMAGE)
    roles = [node["role"] for node in config["nodes"]]
    assert roles == ["control-plane", "worker", "worker", "worker"]
    assert {node["image"] for node in config["nodes"]} == {IMAGE}
    assert "networking" not in config
    [kubelet] = [
        patch
        for text in config["kubeadmConfigPatches"]
        if (patch := yaml.safe_load(text))["kind"] == "KubeletConfiguration"
    ]
    assert kubelet["failCgroupV1"] is False


def test_the_users_image_is_pinned_and_one_of_the_workflow_s() -> None:
    """A tag alone can be moved."""
    images = {node["image"] for node in yaml.safe_load(CONFIG.read_text())["nodes"]}
    [image] = images
    assert re.fullmatch(PINNED, image)
    workflow = yaml.safe_load((REPOSITORY / ".github/workflows/kind.yaml").read_text())
    nodes = workflow["jobs"]["suites"]["strategy"]["matrix"]["node"]
    assert image in {f"kindest/node:{node}" for node in nodes}
    assert all(re.fullmatch(PINNED, f"kindest/node:{node}") for node in nodes)


def test_kwok_has_one_version() -> None:
    """Users pull the release that the tests build."""
    manifest = (REPOSITORY / "deploy/kind/kwok.yaml").read_text()
    [version] = re.findall(r"image: registry\.k8s\.io/kwok/kwok:(v\S+)", manifest)
    assert f"sigs.k8s.io/kwok {version}\n" in (binaries.MODULES / "kwok/go.mod").read_text()


def test_a_machine_that_lacks_something_says_so_in_one_line(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """No cluster is created and no command runs."""
    monkeypatch.setenv("PATH", "")
    assert kind.main(["true"]) == 1
    [line] = capfd.readouterr().err.splitlines()
    assert "the suites on kind do not run" in line


@pytest.fixture
def existing_clusters(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """Names of the clusters that exist, in place of kind and Docker."""
    existing: list[str] = []

    @contextmanager
    def cluster(folder: Path) -> Iterator[KindCluster]:
        existing.append("created")
        try:
            yield KindCluster("created", folder)
        finally:
            existing.clear()

    monkeypatch.setattr(kind, "kind_cluster", cluster)
    monkeypatch.setattr(kind, "missing_for_kind", str)
    monkeypatch.setattr(kind, "build_with_network", nullcontext)
    monkeypatch.setattr(kind.docker, "daemon", nullcontext)
    monkeypatch.setattr(kind.docker, "enter_namespaces", nullcontext)
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    yield existing
    for number, handler in handlers.items():
        signal.signal(number, handler)


SIGNAL_TO_PARENT = """
import os, signal
os.kill(os.getppid(), {number})
signal.pause()
"""
"""Program of a command that its caller's signal interrupts, as Ctrl-C and `kill` do."""


@pytest.mark.parametrize(
    ("program", "status"),
    [("raise SystemExit(3)", 3), (SIGNAL_TO_PARENT.format(number=int(signal.SIGTERM)), 130)],
    ids=["failure", "SIGTERM"],
)
def test_the_cluster_is_deleted_after_the_command(
    existing_clusters: list[str], program: str, status: int
) -> None:
    """The status is the command's; an interrupted command ends first."""
    assert kind.main([sys.executable, "-I", "-S", "-c", program]) == status
    assert existing_clusters == []
