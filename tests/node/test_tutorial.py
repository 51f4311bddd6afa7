"""The commands of docs/kind.md, on the cluster that the tests have created from the same file."""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from tests.node.functions import PODS
from tests.node.real_cluster import NODE, RealCluster
from tests.node.release import Release
from tests.testbed import REPOSITORY, binaries, images

pytestmark = pytest.mark.e2e

TUTORIAL = REPOSITORY / "docs" / "kind.md"
DONE_BY_THE_TEST_BED = re.compile(r"kind (create|load|delete)|docker build")
KWOK = REPOSITORY / "deploy" / "kind" / "kwok.yaml"
POD = f"{PODS}/super-resolution"


def commands() -> list[str]:
    """Return the lines of the blocks marked as console, without those that the test bed does."""
    blocks = re.findall(r"^```console\n(.*?)^```$", TUTORIAL.read_text(), re.MULTILINE | re.DOTALL)
    lines = [line for block in blocks for line in block.splitlines()]
    return [line for line in lines if not DONE_BY_THE_TEST_BED.match(line)]


@pytest.fixture
def shell(cluster: RealCluster, fresh_release: Release, tmp_path: Path) -> Iterator[dict[str, str]]:
    """The environment of the tutorial's shell; what the commands create is deleted afterwards.

    KWOK runs in the cluster, so that of this machine pauses. No node is labelled for an agent.
    """
    for name, path in binaries.build(["helm", "kubectl"]).items():
        (tmp_path / name).symlink_to(path)
    load_kwok(cluster, tmp_path)
    label(cluster, None)
    cluster.plane.named("kwok").stop()
    try:
        yield {
            **os.environ,
            "PATH": f"{tmp_path}:{os.environ['PATH']}",
            "KUBECONFIG": str(cluster.plane.kubeconfig),
        }
    finally:
        label(cluster, "true")
        cluster.plane.named("kwok").start()
        fresh_release.uninstall()
        nodes = yaml.safe_load_all((REPOSITORY / "deploy/nodes/mocked-16x1.yaml").read_text())
        for document in [*nodes, *yaml.safe_load_all(KWOK.read_text())]:
            cluster.api.delete(cluster.api.path(document))
        cluster.api.delete("/api/v1/namespaces/kube-system/configmaps/kwok")


def load_kwok(cluster: RealCluster, folder: Path) -> None:
    """Give the workers KWOK's image: the pulled one, or the built program where none is pulled."""
    [image] = re.findall(r"image: (\S+)", KWOK.read_text())
    archive = folder / "kwok.tar"
    images.program_image(image, binaries.build(["kwok"])["kwok"], archive)
    cluster.kind.load(archive, cluster.kind.workers())


def label(cluster: RealCluster, value: str | None) -> None:
    """Set the label by which a node has an agent, or remove it."""
    cluster.api.patch(NODE, {"metadata": {"labels": {"esg-scheduler.io/shared": value}}})


def test_every_command_of_the_tutorial_succeeds(
    cluster: RealCluster, shell: dict[str, str]
) -> None:
    """The last pod is bound to a mocked node with the grant that the page shows."""
    output = ""
    for command in commands():
        done = subprocess.run(
            command, shell=True, check=False, cwd=REPOSITORY, env=shell,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        )  # fmt: skip
        sys.stdout.write(f"$ {command}\n{done.stdout}\n")
        assert done.returncode == 0
        output += done.stdout
    pod = cluster.api.get(POD)
    cluster.api.delete(POD)
    assert pod["spec"]["nodeName"].startswith("node-")
    assert re.search(r"esg-scheduler.io/gpu: GPU-", output)
    assert re.search(r"esg-scheduler.io/gpu-percent: \d+", output)
    assert re.search(r"esg-scheduler.io/gpu-percent +[1-9]\d* ", output)
