"""The Go program of the wire contract: stricter than kube-scheduler."""

from pathlib import Path

import pytest

from tests.testbed.contract import GOLDEN, NotDecodedError, decode, write_golden
from tests.testbed.fixtures import needs_go

pytestmark = [pytest.mark.e2e, needs_go]


def test_the_golden_files_are_those_of_the_go_types(tmp_path: Path) -> None:
    """A new version of Kubernetes with another wire format fails here first."""
    write_golden(tmp_path)
    assert contents(GOLDEN) == contents(tmp_path)


def contents(folder: Path) -> dict[str, str]:
    return {path.name: path.read_text(encoding="utf-8") for path in folder.iterdir()}


def test_an_answer_that_go_would_drop_is_refused() -> None:
    """The program gives a reason for mistakes that kube-scheduler ignores in silence."""
    with pytest.raises(NotDecodedError, match='unknown field "node_names"'):
        decode("ExtenderFilterResult", b'{"node_names": ["a"]}')
