"""``esg check --nodes``: a file of invalid nodes is an error before anything is checked."""

import pytest
import typer

from scheduler.cli.fleet_file import read_fleet
from scheduler.settings import Settings

BROKEN = {
    "not YAML": ("a: [", "while parsing a flow"),
    "binary": (b"\xff\xfe\x00", "is not UTF-8"),
    "not a node": ("- 1", "document 1 is no Node with a metadata.name"),
    "no name": ("kind: Node\nmetadata: {}", "document 1 is no Node with a metadata.name"),
    "a name that is a number": ("metadata: {name: 7}", "is no Node with a metadata.name"),
    "the second of two": ("metadata: {name: a}\n---\nkind: Node", "document 2 is no Node"),
    "annotations in a list": (
        "metadata: {name: a, annotations: [b]}",
        "Node 'a': metadata.annotations must be a mapping, not a list",
    ),
    "status in words": (
        "metadata: {name: a}\nstatus: good",
        "status must be a mapping, not 'good'",
    ),
    "resources in words": (
        "metadata: {name: a}\nstatus: {allocatable: all}",
        "status.allocatable must be a mapping, not 'all'",
    ),
}


@pytest.mark.parametrize(("content", "says"), BROKEN.values(), ids=BROKEN)
def test_a_broken_file(tmp_path, content, says):
    """A usage error with the name of the file, and the fault and number of the node."""
    file = tmp_path / "nodes.yaml"
    file.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(typer.BadParameter) as raised:
        read_fleet(file, Settings().limits)
    assert str(raised.value).startswith(f"{file}: ")
    assert says in str(raised.value)
