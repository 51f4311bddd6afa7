"""``esg paper``: the document is made out of runs, and a broken series of them goes on."""

import re

import pytest
from typer.testing import CliRunner

from scheduler.cli import app
from tests.testbed import REPOSITORY
from workbench.commands import paper_document
from workbench.commands.paper_document import MarkError, with_blocks

DOCUMENT = (REPOSITORY / "docs" / "paper.md").read_text(encoding="utf-8")
SMALL = ("--policy", "minimum", "--requests", "12", "--seeds", "2", "--jobs", "1")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("paper")


def paper(folder, *arguments):
    document = folder / "paper.md"
    if not document.exists():
        document.write_text(DOCUMENT, encoding="utf-8")
    given = [*SMALL, "--document", document, "--cache", folder / "cache", *arguments]
    return CliRunner().invoke(app, ["paper", *map(str, given)])


@pytest.fixture(scope="module")
def made(folder):
    """The document and its figures, of two policies and a few requests."""
    done = paper(folder)
    assert done.exit_code == 0, done.output
    return (folder / "paper.md").read_text(encoding="utf-8")


def block(text, name):
    """The rows of a table between its marks, as lists of cells."""
    (inner,) = re.findall(rf"<!-- made: {name} -->\n(.*?)<!-- /made -->", text, re.DOTALL)
    rows = [line.strip("| ").split(" | ") for line in inner.splitlines()]
    return [row for row in rows if not set("".join(row)) <= set("-")]


def test_tables_have_all_that_ran(made):
    assert [row[0] for row in block(made, "hits")[1:]] == ["`esg`", "`minimum`"]
    assert len(block(made, "hits")[0]) == 10 - 1  # the first cell is empty, and so stripped
    assert [row[:2] for row in block(made, "claims")[1:]] == [
        ["`minimum`", setting] for setting in ("strict-light", "moderate-normal", "relaxed-heavy")
    ]
    assert len(block(made, "ablation")) == 1 + len(paper_document.ABLATION)
    assert [row[0] for row in block(made, "planning")[1:]] == ["`esg`", "`minimum`"]


def test_intervals_are_told(made):
    """Two seeds, so each figure has one."""
    for row in block(made, "costs")[1:]:
        assert all("±" in cell for cell in row[1:])


def test_what_people_wrote_stays(made):
    """Everything outside the marks is as it was."""
    blank = re.compile(r"(<!-- made: [a-z-]+ -->\n).*?(<!-- /made -->)", re.DOTALL)
    assert blank.sub(r"\1\2", made) == blank.sub(r"\1\2", DOCUMENT)


def test_figures_lie_beside_it(made, folder):
    for name in re.findall(r"\]\(([a-z-]+\.png)\)", made):
        assert (folder / name).read_bytes().startswith(b"\x89PNG")


def test_a_broken_series_goes_on(made, folder):
    """What is kept is not done again, and the document comes out the same."""
    gone = sorted((folder / "cache").glob("*.json"))[:2]
    for path in gone:
        path.unlink()
    done = paper(folder, "--continue")
    assert done.exit_code == 0, done.output
    assert f"{len(gone)} of them to do" in done.stderr
    again = (folder / "paper.md").read_text(encoding="utf-8")
    for name in ("hits", "costs", "ablation"):
        assert block(again, name) == block(made, name)


def test_a_run_that_fails_is_told_and_the_rest_kept(made, folder, tmp_path):
    """An unknown policy: its runs are missing, so nothing is written into the document."""
    runs = len(list((folder / "cache").glob("*.json")))
    done = paper(tmp_path, "--policy", "unknown", "--continue", "--cache", folder / "cache")
    assert done.exit_code == 1
    assert "no policy 'unknown'" in done.stderr
    assert "completed runs are cached; resume with --continue" in done.stderr
    assert (tmp_path / "paper.md").read_text(encoding="utf-8") == DOCUMENT
    assert len(list((folder / "cache").glob("*.json"))) == runs


def test_blocks_without_a_place_are_refused():
    """A table that nobody shows, and a place that nothing fills."""
    text = "<!-- made: one -->\nold\n<!-- /made -->\n"
    assert with_blocks(text, {"one": "new\n"}) == "<!-- made: one -->\nnew\n<!-- /made -->\n"
    for made in ({}, {"one": "", "two": ""}, {"two": ""}):
        with pytest.raises(MarkError, match="has places for one, not"):
            with_blocks(text, made)
