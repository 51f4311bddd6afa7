"""Architecture decision records have one format."""

import re
from pathlib import Path

import pytest

ADRS = sorted((Path(__file__).parents[2] / "docs" / "adr").glob("*.md"))
SECTIONS = ["Situation", "Decision", "Alternatives", "Consequences"]


@pytest.mark.parametrize("adr", ADRS, ids=lambda path: path.stem)
def test_an_adr_has_a_number_a_status_a_date_and_four_sections(adr: Path) -> None:
    """The number of the title is the number of the file."""
    text = adr.read_text(encoding="utf-8")
    number = int(adr.name[:4])
    title, blank, status, date = text.splitlines()[:4]
    assert re.fullmatch(rf"# {number}\. .+", title)
    assert not blank
    assert re.fullmatch(r"- Status: (accepted|superseded by ADR \d+)", status)
    assert re.fullmatch(r"- Date: \d{4}-\d\d-\d\d", date)
    assert re.findall(r"^## (.+)$", text, flags=re.MULTILINE) == SECTIONS


def test_numbers_are_consecutive() -> None:
    """No number is missing or used twice."""
    assert [int(adr.name[:4]) for adr in ADRS] == list(range(1, len(ADRS) + 1))
