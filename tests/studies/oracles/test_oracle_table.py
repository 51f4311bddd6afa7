"""Table of published figures in docs/jobs.md: written by runs, row by row."""

from functools import partial

import pytest

from studies.oracles import __main__ as command
from studies.oracles.catalogue import ORACLES
from studies.oracles.oracle import (
    PublishedComparison,
    PublishedFigure,
    below,
    equal_count,
    exact,
    near,
    order,
)
from studies.oracles.table import with_results
from studies.page import MarkError
from tests.testbed import REPOSITORY

DOCUMENT = "# Jobs\n\n<!-- made: oracles -->\n<!-- /made -->\n\nThe end.\n"
HOLDING = exact("mean", 1.5, 1.5)
FAILING = near("other mean", 3.0, 2.0, 0.1)


def yielded(comparisons, _):
    yield from comparisons


def oracle(number, *comparisons):
    return PublishedFigure(number, f"oracle {number}", partial(yielded, comparisons))


THREE = (oracle(1, HOLDING), oracle(2, FAILING, HOLDING), oracle(3, HOLDING))


def rows(text):
    return [line for line in text.splitlines() if line.startswith("| ") and "compared" not in line]


def test_a_row_shows_published_and_found():
    """An oracle without a run is listed as such, and the summary counts."""
    text = with_results(DOCUMENT, THREE, {1: [HOLDING], 2: [FAILING, HOLDING]})
    assert rows(text)[1:] == [
        "| 1 | mean | 1.5 | 1.5 | holds |",
        "| 2 | other mean | 2 ±10 % | 3 (+50.0 %) | does not hold |",
        "| 2 | mean | 1.5 | 1.5 | holds |",
        "| 3 | oracle 3 | | | not run |",
    ]
    assert "\n1 of 3 oracles hold. Does not hold: 2. Not run: 3.\n" in text
    assert text.startswith("# Jobs\n")
    assert text.endswith("<!-- /made -->\n\nThe end.\n")


def test_other_rows_stay():
    """A second run of one oracle renews its rows alone."""
    first = with_results(DOCUMENT, THREE, {1: [HOLDING], 2: [FAILING]})
    second = with_results(first, THREE, {2: [HOLDING]})
    assert rows(second)[1:] == [
        "| 1 | mean | 1.5 | 1.5 | holds |",
        "| 2 | mean | 1.5 | 1.5 | holds |",
        "| 3 | oracle 3 | | | not run |",
    ]
    assert with_results(second, THREE, {}) == second


def test_a_document_without_a_place_is_reported():
    """Nothing is written where the marks are missing."""
    with pytest.raises(MarkError, match="has places for nothing, not oracles"):
        with_results("# Jobs\n", THREE, {})


@pytest.mark.parametrize(
    ("comparison", "text"),
    [
        (exact("a", 3469.69375, 3469.69375), "a: 3469.69375 = 3469.69375"),
        (exact("a", 1.0, 2.0), "a: 1 ≠ 2 (does not hold)"),
        (near("a", 101.0, 100.0, 0.05), "a: 101 (+1.0 %) ≈ 100 ±5 %"),
        (equal_count("jobs", 1600, 1600), "jobs: 1,600 = 1,600"),
        (
            below("a over b", -0.1, "-30 %"),
            "a over b: -10.0 %; expected: below 0; published: -30 %",
        ),
        (order("a", ["x", "y"], [1, 2]), "a: x 1, y 2; expected: x < y"),
        (
            order("a", ["x", "y"], [2, 1], [3, 4]),
            "a: x 2, y 1; expected: x 3 < y 4 (does not hold)",
        ),
    ],
)
def test_a_comparison_is_one_line(comparison, text):
    """Found, then published, and a mark where it does not hold."""
    assert isinstance(comparison, PublishedComparison)
    assert comparison.text == text


def test_the_command_writes_what_it_compares(tmp_path, monkeypatch, capsys):
    """The document has the rows of the selected oracles, and the exit status reports a failure."""
    document = tmp_path / "jobs.md"
    document.write_text(DOCUMENT, encoding="utf-8")
    monkeypatch.setattr(command, "ORACLES", THREE)
    arguments = ["--data", str(tmp_path), "--write", str(document), "--only"]
    assert command.main([*arguments, "1,3"]) == 0
    assert command.main([*arguments, "2"]) == 1
    assert "2 of 3 oracles hold" in document.read_text(encoding="utf-8")
    assert capsys.readouterr().out.splitlines()[:3] == [
        "#1 mean: 1.5 = 1.5", "#3 mean: 1.5 = 1.5", "oracles: 2 of 2 hold",
    ]  # fmt: skip
    with pytest.raises(SystemExit):
        command.main([*arguments, "4"])
    assert "--only 4: no such oracle; there are 1 to 3" in capsys.readouterr().err


def test_a_wrong_document_is_reported_before_the_runs(tmp_path, monkeypatch, capsys):
    """The message names the document."""
    monkeypatch.setattr(command, "ORACLES", THREE)
    file = tmp_path / "none.md"
    with pytest.raises(SystemExit):
        command.main(["--data", str(tmp_path), "--write", str(file)])
    captured = capsys.readouterr()
    assert f"--write {file}" in captured.err
    assert captured.out == ""


def test_the_shipped_document_is_current():
    """It has rows of every oracle, and a new summary would be the same."""
    text = (REPOSITORY / "docs" / "jobs.md").read_text(encoding="utf-8")
    assert with_results(text, ORACLES, {}) == text
