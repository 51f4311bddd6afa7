"""Configuration of the kind cluster; the cluster itself is tested by tests/node."""

import re

import pytest
import yaml

from tests.testbed import REPOSITORY, binaries, kind, kubernetes_release
from tests.testbed.kind_cluster import CONFIG, cluster_config

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


def test_a_text_that_is_no_kubernetes_release_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """The message has an example."""
    monkeypatch.setenv(kubernetes_release.VARIABLE, "latest")
    with pytest.raises(binaries.BuildFailedError, match="latest is no release"):
        kubernetes_release.build(["kubelet"])
