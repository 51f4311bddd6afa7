"""The Go program of the wire contract: stricter than kube-scheduler."""

import json
from pathlib import Path

import pytest

from tests.testbed.contract import GOLDEN, Kind, NotDecodedError, decode, write_golden
from tests.testbed.fixtures import needs_go

pytestmark = [pytest.mark.e2e, needs_go]

KINDS: dict[str, Kind] = {
    "answer-filter": "ExtenderFilterResult",
    "answer-prioritize": "HostPriorityList",
    "answer-bind": "ExtenderBindingResult",
    "answer-preempt": "ExtenderPreemptionResult",
}


def test_the_golden_files_are_those_of_the_go_types(tmp_path: Path) -> None:
    """A new version of Kubernetes with another wire format fails here first."""
    write_golden(tmp_path)
    assert contents(GOLDEN) == contents(tmp_path)


def contents(folder: Path) -> dict[str, str]:
    return {path.name: path.read_text(encoding="utf-8") for path in folder.iterdir()}


@pytest.mark.parametrize("path", sorted(GOLDEN.glob("answer-*.json")), ids=lambda path: path.stem)
def test_a_golden_answer_survives_decoding(path: Path) -> None:
    """Go reads its own output without a loss."""
    kind = next(kind for start, kind in KINDS.items() if path.stem.startswith(start))
    answer = path.read_bytes()
    assert json.loads(answer) == decode(kind, answer)


@pytest.mark.parametrize(
    ("kind", "answer", "reason"),
    [
        ("HostPriorityList", '[{"Host": "a", "Score": 7.5}]', "number 7.5"),
        ("HostPriorityList", '[{"Host": "a", "Score": "7"}]', "string"),
        ("HostPriorityList", '{"Host": "a"}', "cannot unmarshal object"),
        ("ExtenderFilterResult", '{"node_names": ["a"]}', 'unknown field "node_names"'),
        ("ExtenderBindingResult", '{"Error": ""} {}', "something follows"),
        ("ExtenderBindingResult", "", "EOF"),
    ],
)
def test_an_answer_that_go_would_drop_is_refused(kind: Kind, answer: str, reason: str) -> None:
    """The program gives a reason for mistakes that kube-scheduler ignores in silence."""
    with pytest.raises(NotDecodedError, match=reason):
        decode(kind, answer.encode())
