"""The runtime of containers on machines whose root lacks a capability."""

import json
from pathlib import Path

from tests.testbed.oci_runtime import bounding_set, limit_specification

AVAILABLE = frozenset({"CAP_CHOWN", "CAP_KILL"})
PROCESS = {
    "args": ["true"],
    "capabilities": {"bounding": ["CAP_CHOWN", "CAP_SYS_RESOURCE"], "ambient": []},
    "oomScoreAdj": -999,
}
LIMITED = {
    "args": ["true"],
    "capabilities": {"bounding": ["CAP_CHOWN"], "ambient": []},
    "oomScoreAdj": 0,
}


def test_the_bits_of_a_process_are_names(tmp_path: Path) -> None:
    """Bit 0 is CAP_CHOWN, bit 24 CAP_SYS_RESOURCE, bit 40 the last one."""
    status = tmp_path / "status"
    status.write_text("Name:\tpython\nCapBnd:\t0000010001000001\n", encoding="ascii")
    assert bounding_set(status) == {"CAP_CHOWN", "CAP_SYS_RESOURCE", "CAP_CHECKPOINT_RESTORE"}


def test_a_bundle_is_limited_before_its_creation(tmp_path: Path) -> None:
    """The other fields of the specification stay."""
    config = tmp_path / "config.json"
    config.write_text(json.dumps({"process": PROCESS, "hostname": "h"}), encoding="utf-8")
    limit_specification(["--root", "/r", "create", "--bundle", str(tmp_path), "id"], AVAILABLE)
    assert json.loads(config.read_text()) == {"process": LIMITED, "hostname": "h"}


def test_a_process_in_a_container_is_limited(tmp_path: Path) -> None:
    """`docker exec` starts it with a specification of its own."""
    process = tmp_path / "process.json"
    process.write_text(json.dumps(PROCESS), encoding="utf-8")
    limit_specification(["exec", "--process", str(process), "id"], AVAILABLE)
    assert json.loads(process.read_text()) == LIMITED


def test_other_commands_are_untouched() -> None:
    """They have no specification."""
    limit_specification(["--root", "/r", "delete", "id"], AVAILABLE)
