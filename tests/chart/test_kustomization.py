"""Installation without the chart by kustomize, as kubectl has it."""

import os
import subprocess
from pathlib import Path

import pytest

from scheduler.model.yaml_parser import parse_yaml
from tests.require import needing
from tests.testbed import REPOSITORY, binaries
from tests.testbed.control_plane import ControlPlane

DEPLOY = REPOSITORY / "deploy"
# Configuration of a program, and the file itself.
NOT_OBJECTS = {"kube-scheduler-config.yaml", "kustomization.yaml"}
pytestmark = needing(
    binaries.is_built("kubectl"),
    "kubectl is not built: python -m tests.testbed.binaries kubectl (needs Go)",
)


def kubectl(*arguments: str | Path) -> str:
    """Run kubectl and return its standard output."""
    program = binaries.build(["kubectl"])["kubectl"]
    environment = {"PATH": os.environ["PATH"], "no_proxy": "*"}
    done = subprocess.run(
        [program, *arguments], env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def names(*texts: str) -> list[tuple[str, str]]:
    """Return kind and name of every object."""
    documents = [document for text in texts for document in parse_yaml(text) if document]
    return sorted((document["kind"], document["metadata"]["name"]) for document in documents)


def test_the_kustomization_has_every_object_of_the_folder() -> None:
    """CRDs, rights, policies, the webhook's registration, kube-scheduler's configuration."""
    files = [*DEPLOY.glob("*.yaml"), *DEPLOY.glob("crds/*.yaml")]
    texts = [path.read_text(encoding="utf-8") for path in files if path.name not in NOT_OBJECTS]
    rendered = kubectl("kustomize", DEPLOY)
    assert names(rendered) == sorted([*names(*texts), ("ConfigMap", "esg-kube-scheduler")])
    [configuration] = [d for d in parse_yaml(rendered) if d and d["kind"] == "ConfigMap"]
    file = DEPLOY / "kube-scheduler-config.yaml"
    assert configuration["data"] == {file.name: file.read_text(encoding="utf-8")}


@pytest.mark.e2e
def test_an_api_server_accepts_the_kustomization(cluster: ControlPlane, tmp_path: Path) -> None:
    """`kubectl apply -k deploy` with a server that validates every object and writes none."""
    flags = (f"--kubeconfig={cluster.kubeconfig}", f"--cache-dir={tmp_path}")
    applied = kubectl(*flags, "apply", "--dry-run=server", "-k", DEPLOY).splitlines()
    assert len(applied) == len(names(kubectl("kustomize", DEPLOY)))
    assert all(line.endswith("(server dry run)") for line in applied), applied
