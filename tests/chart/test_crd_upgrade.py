"""Upgrade of CRDs: Helm installs CRDs and never changes them, so the user applies the new ones."""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from tests.chart.installation import installed
from tests.chart.rendering import CHART, Json, one, render
from tests.testbed import REPOSITORY
from tests.testbed.api import Api, ApiError, apply_all, wait_until
from tests.testbed.control_plane import ControlPlane

pytestmark = [pytest.mark.e2e, pytest.mark.usefixtures("helm_built")]
ESG = str(Path(sys.executable).with_name("esg"))
PROFILES = REPOSITORY / "deploy" / "samples" / "profiles.yaml"


def test_a_forced_server_side_apply_updates_the_crds(cluster: ControlPlane, tmp_path: Path) -> None:
    """Helm owns the fields that it wrote, so force is needed; afterwards a new field is stored."""
    api, older = cluster.api, tmp_path / "older"
    shutil.copytree(CHART, older)
    [file] = (older / "crds").iterdir()
    definitions = list(yaml.safe_load_all(file.read_text()))
    file.write_text(yaml.safe_dump_all(without_cold_starts(definitions)))
    remove(api, definitions)
    with installed(cluster, older):
        profile = next(yaml.safe_load_all(PROFILES.read_text()))
        path = api.path(api.create(profile))

        def is_stored() -> bool:
            api.patch(path, {"spec": {"coldStartMs": 7}})
            return "coldStartMs" in api.get(path)["spec"]

        assert not is_stored()
        with pytest.raises(ApiError, match="conflict"):
            apply_without_force(api, definitions[-1])
        apply_all(api, definitions)
        wait_until(is_stored, what="the new field is stored")


def test_the_job_of_an_upgrade_writes_the_crds(cluster: ControlPlane) -> None:
    """With the rights of its account alone; a definition that is missing is created."""
    definitions = [o for o in render(upgradeCrds=True) if o["kind"] == "CustomResourceDefinition"]
    older = list(without_cold_starts(definitions))
    remove(cluster.api, definitions)
    role, missing = one(render(), "ClusterRole", "-crds"), "workflows.esg-scheduler.io"
    apply_all(cluster.api, [o for o in older if o["metadata"]["name"] != missing])
    cluster.api.apply(role)
    cluster.api.apply(
        {
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "ClusterRoleBinding",
            "metadata": {"name": "upgrade"},
            "roleRef": {
                "apiGroup": "rbac.authorization.k8s.io",
                "kind": "ClusterRole",
                "name": role["metadata"]["name"],
            },
            "subjects": [
                {"kind": "User", "name": "upgrade", "apiGroup": "rbac.authorization.k8s.io"}
            ],
        }
    )
    command = [ESG, "crds", "--apply", f"--kubeconfig={cluster.kubeconfig_for('upgrade')}"]

    def is_written() -> bool:
        environment = {**os.environ, "no_proxy": "127.0.0.1"}
        done = subprocess.run(command, env=environment, capture_output=True, check=False)
        return done.returncode == 0

    wait_until(is_written, what="the role works")
    for definition in definitions:
        stored = cluster.api.get(cluster.api.path(definition))["spec"]["versions"][0]["schema"]
        assert stored == definition["spec"]["versions"][0]["schema"]


def without_cold_starts(definitions: list[Json]) -> Iterator[Json]:
    """Change the CRDs to those of an older release: another description, and no cold starts."""
    for definition in yaml.safe_load_all(yaml.safe_dump_all(definitions)):
        schema = definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
        schema["description"] = "older"
        schema["properties"]["spec"]["properties"].pop("coldStartMs", None)
        yield definition


def remove(api: Api, definitions: list[Json]) -> None:
    """Delete the CRDs and wait until they no longer exist."""
    paths = [api.path(definition) for definition in definitions]
    for path in paths:
        api.delete(path)
    wait_until(lambda: not any(map(api.exists, paths)), what="the CRDs are deleted")


def apply_without_force(api: Api, document: Json) -> None:
    """Send the request of `kubectl apply --server-side`."""
    api.request(
        "PATCH", api.path(document), document,
        content_type="application/apply-patch+yaml", query={"fieldManager": "kubectl"},
    )  # fmt: skip
