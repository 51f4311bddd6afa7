"""Table of claims: verdicts from measured changes, rows of a document, and the command."""

import pytest

from studies.claims import __main__ as command
from studies.claims.catalogue import CLAIMS
from studies.claims.claim import Claim, ClaimedChange, Verdict, overall
from studies.claims.table import with_claims
from tests.testbed import REPOSITORY

DOCUMENT = "# Claims\n\n<!-- made: claims -->\n<!-- /made -->\n"


def change(*values, claimed_ratio=-0.2, **fields):
    return ClaimedChange(
        what="JCT",
        claimed_ratio=claimed_ratio,
        changes_ratio={f"load {i}": value for i, value in enumerate(values)},
        **fields,
    )


@pytest.mark.parametrize(
    ("values", "at_best", "verdict"),
    [
        ((-0.2, -0.5), False, Verdict.REPRODUCED),
        ((-0.1, -0.5), False, Verdict.IN_PART),
        ((-0.1, -0.5), True, Verdict.REPRODUCED),
        ((0.3, -0.1), False, Verdict.IN_PART),
        ((0.3, 0.1, -0.1), False, Verdict.NOT_REPRODUCED),
        ((0.0, 0.0), False, Verdict.NOT_REPRODUCED),
    ],
)
def test_a_verdict_follows_from_all_settings(values, at_best, verdict):
    """One good setting is enough only for a claim about the best one."""
    assert change(*values, at_best=at_best).verdict == verdict


def test_a_claim_of_not_worse_allows_equal_settings():
    """Settings without a difference reach a claim of 0."""
    assert change(0.0, -0.1, claimed_ratio=0.0).verdict == Verdict.REPRODUCED


def test_comparisons_that_differ_are_in_part():
    """A row is reproduced only if all its comparisons are."""
    good, bad = change(-0.5), change(0.5)
    assert overall([good, good]) == Verdict.REPRODUCED
    assert overall([good, bad]) == Verdict.IN_PART


def test_a_cell_is_a_change_or_points():
    """Parts of a whole differ in points."""
    assert change(-0.25, 0.1).text == "JCT: load 0: -25.0 %, load 1: +10.0 %"
    assert change(-0.25, points=True).text == "JCT: load 0: -25.0 points"


def test_rows_that_were_not_measured_stay(tmp_path, monkeypatch, capsys):
    """The command writes the selected systems, and a second run keeps them."""
    claims = (
        Claim(system="A", published="less", reason="why", measure=lambda _: [change(-0.5)]),
        Claim(system="B", published="more", reason="no queue"),
    )
    monkeypatch.setattr(command, "CLAIMS", claims)
    document = tmp_path / "claims.md"
    document.write_text(DOCUMENT, encoding="utf-8")
    arguments = ["--data", str(tmp_path), "--write", str(document), "--only"]
    assert command.main([*arguments, "A"]) == 0
    assert "| B | more |  | not run | no queue |" in document.read_text(encoding="utf-8")
    assert command.main([*arguments, "B"]) == 0
    text = document.read_text(encoding="utf-8")
    assert "| A | less | JCT: load 0: -50.0 % | reproduced | why |" in text
    assert "| B | more |  | out of scope | no queue |" in text
    assert "A: JCT: load 0: -50.0 % (reproduced)" in capsys.readouterr().out
    with pytest.raises(SystemExit):
        command.main([*arguments, "C"])
    assert "--only C: no such system; there are A, B" in capsys.readouterr().err


def test_the_shipped_table_has_a_row_of_every_system():
    """Each has run or is out of scope, and its claim and reason are those of the catalogue."""
    text = (REPOSITORY / "docs" / "claims.md").read_text(encoding="utf-8")
    assert with_claims(text, CLAIMS, {}) == text
    assert [line.split(" | ")[0] for line in text.splitlines() if line.startswith("| ")][2:] == [
        f"| {claim.system}" for claim in CLAIMS
    ]
