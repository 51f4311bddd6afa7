"""CRDs of an older release: Helm installs them and never changes them, so their user does."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from tests.chart.installation import installed
from tests.chart.rendering import CHART, Json
from tests.testbed import REPOSITORY
from tests.testbed.api import Api, ApiError, apply_all, wait_until
from tests.testbed.control_plane import ControlPlane

pytestmark = [pytest.mark.e2e, pytest.mark.usefixtures("helm_is_there")]
PROFILES = REPOSITORY / "deploy" / "samples" / "profiles.yaml"


def test_a_server_side_apply_that_wins_brings_them_up_to_date(
    cluster: ControlPlane, tmp_path: Path
) -> None:
    """It must win over Helm, which owns what it wrote; then a field that is new is kept."""
    api, older = cluster.api, tmp_path / "older"
    shutil.copytree(CHART, older)
    [file] = (older / "crds").iterdir()
    definitions = list(yaml.safe_load_all(file.read_text()))
    file.write_text(yaml.safe_dump_all(without_cold_starts(definitions)))
    remove(api, definitions)
    with installed(cluster, older):
        profile = next(yaml.safe_load_all(PROFILES.read_text()))
        path = api.path(api.create(profile))

        def is_kept() -> bool:
            api.patch(path, {"spec": {"coldStartMs": 7}})
            return "coldStartMs" in api.get(path)["spec"]

        assert not is_kept()
        with pytest.raises(ApiError, match="conflict"):
            apply_without_force(api, definitions[-1])
        apply_all(api, definitions)
        wait_until(is_kept, what="the new field is kept")


def without_cold_starts(definitions: list[Json]) -> Iterator[Json]:
    """The CRDs as if nobody had thought of cold starts yet, and had told of all else otherwise."""
    for each in yaml.safe_load_all(yaml.safe_dump_all(definitions)):
        schema = each["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
        schema["description"] = "as it was"
        schema["properties"]["spec"]["properties"].pop("coldStartMs", None)
        yield each


def remove(api: Api, definitions: list[Json]) -> None:
    """Delete the CRDs; returns when they are gone."""
    paths = [api.path(each) for each in definitions]
    for path in paths:
        api.delete(path)
    wait_until(lambda: not any(map(api.exists, paths)), what="no CRD is left")


def apply_without_force(api: Api, document: Json) -> None:
    """What `kubectl apply --server-side` asks for."""
    api.request(
        "PATCH", api.path(document), document,
        content_type="application/apply-patch+yaml", query={"fieldManager": "kubectl"},
    )  # fmt: skip
