"""The runtime of containers on machines whose root lacks a capability."""

import json
from pathlib import Path

from tests.testbed.oci_runtime import bounding_set, limit_specification


def test_a_bundle_is_limited_to_the_machine_s_capabilities(tmp_path: Path) -> None:
    """Only before its creation: bit 0 is CAP_CHOWN, bit 24, which is unset, CAP_SYS_RESOURCE."""
    status, config = tmp_path / "status", tmp_path / "config.json"
    status.write_text("Name:\tpython\nCapBnd:\t0000010000000001\n", encoding="ascii")
    process = {
        "args": ["true"],
        "capabilities": {"bounding": ["CAP_CHOWN", "CAP_SYS_RESOURCE"], "ambient": []},
        "oomScoreAdj": -999,
    }
    config.write_text(json.dumps({"process": process, "hostname": "h"}), encoding="utf-8")
    before = config.read_text()
    limit_specification(["--root", "/r", "delete", "id"], bounding_set(status))
    assert config.read_text() == before
    limit_specification(["create", "--bundle", str(tmp_path), "id"], bounding_set(status))
    limited = process | {"capabilities": {"bounding": ["CAP_CHOWN"], "ambient": []}}
    assert json.loads(config.read_text()) == {
        "process": limited | {"oomScoreAdj": 0},
        "hostname": "h",
    }
