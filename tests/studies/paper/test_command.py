"""``esg paper``: the document is generated from runs, and an interrupted series resumes."""

import re
import sys

import pytest
from typer.testing import CliRunner

from scheduler.cli.commands import app
from studies.page import MarkError, with_blocks
from studies.paper import document as paper_document
from studies.paper import equal_hits
from tests.testbed import REPOSITORY

DOCUMENT = (REPOSITORY / "docs" / "paper.md").read_text(encoding="utf-8")
SETTINGS = ("strict-light", "relaxed-heavy")
SMALL = (
    *(
        "--policy",
        "infless",
        "--policy",
        "esg",
        "--minutes",
        "0.005",
        "--ablation",
        "--seeds",
        "2",
        "--jobs",
        "1",
    ),
    *(option for setting in SETTINGS for option in ("--setting", setting)),
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("paper")


def paper(folder, *arguments):
    document = folder / "paper.md"
    if not document.exists():
        document.write_text(DOCUMENT, encoding="utf-8")
    options = [*SMALL, "--document", document, "--cache", folder / "cache", *arguments]
    return CliRunner().invoke(app, ["paper", *map(str, options)])


@pytest.fixture(scope="module")
def generated(folder):
    """Generate the document and its figures for three policies and some requests."""
    done = paper(folder)
    assert done.exit_code == 0, done.output
    return (folder / "paper.md").read_text(encoding="utf-8")


def test_a_missing_library_is_named_before_the_first_run(tmp_path, monkeypatch):
    """Without matplotlib the error names the extra, and nothing is simulated or written."""
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    done = paper(tmp_path)
    assert done.exit_code == 1
    assert "pip install 'esg-scheduler[workbench]'" in done.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["paper.md"]
    assert (tmp_path / "paper.md").read_text(encoding="utf-8") == DOCUMENT


def block(text, name):
    """Return the rows of a table between its marks, as lists of cells."""
    (inner,) = re.findall(rf"<!-- made: {name} -->\n(.*?)<!-- /made -->", text, re.DOTALL)
    rows = [line.strip("| ").split(" | ") for line in inner.splitlines()]
    return [row for row in rows if not set("".join(row)) <= set("-")]


@pytest.mark.slow
def test_tables_have_a_row_of_every_run(generated):
    names = ["`warm`", "`infless`", "`esg`"]
    assert [row[0] for row in block(generated, "hits")[1:]] == names
    assert block(generated, "hits")[0] == list(SETTINGS)  # the empty first cell is stripped
    assert [row[:2] for row in block(generated, "claims")[1:]] == [
        [name, setting] for name in names[1:] for setting in SETTINGS
    ]
    assert [row[:2] for row in block(generated, "resized")[1:]] == [
        ["`esg`", setting] for setting in SETTINGS
    ]
    assert len(block(generated, "ablation")) == 1 + len(paper_document.ABLATION)
    assert [row[0] for row in block(generated, "planning")[1:]] == names


@pytest.mark.slow
def test_the_parts_of_each_cost_begin_at_the_limit(generated):
    rows = [row for row in block(generated, "idle") if len(row) == 10]
    assert [row[:2] for row in rows] == [
        [name, setting] for name in ("`warm`", "`infless`", "`esg`") for setting in SETTINGS
    ]
    assert {row[2] for row in rows} == {"1.000"}


@pytest.mark.slow
def test_costs_are_compared_at_an_equal_hit_rate(generated):
    """Each policy that holds containers has a row for each setting."""
    assert block(generated, "equal")[0] == ["Target: 95 % of the requests within their SLO."]
    cells = [row[:2] for row in block(generated, "equal") if len(row) == 7]
    assert cells == 2 * [[name, s] for s in SETTINGS for name in ("`warm`", "`infless`")]
    assert ["Target: 99 % of the requests within their SLO."] in block(generated, "equal")


@pytest.mark.slow
def test_costs_have_confidence_intervals(generated):
    """Two seeds give an interval of every figure."""
    for row in block(generated, "costs")[1:]:
        assert all("±" in cell for cell in row[1:])


@pytest.mark.slow
def test_text_outside_the_marks_is_unchanged(generated):
    """Only the text between the marks is generated."""
    blank = re.compile(r"(<!-- made: [a-z-]+ -->\n).*?(<!-- /made -->)", re.DOTALL)
    assert blank.sub(r"\1\2", generated) == blank.sub(r"\1\2", DOCUMENT)


@pytest.mark.slow
def test_figures_are_in_the_folder_of_the_document(generated, folder):
    for name in re.findall(r"\]\(([a-z-]+\.png)\)", generated):
        assert (folder / name).read_bytes().startswith(b"\x89PNG")


@pytest.mark.slow
def test_an_interrupted_series_resumes(generated, folder):
    """Cached runs are not repeated, and the document is the same."""
    removed = sorted((folder / "cache").glob("*.json"))[:2]
    for path in removed:
        path.unlink()
    done = paper(folder, "--continue")
    assert done.exit_code == 0, done.output
    assert f"{len(removed)} of them to do" in done.stderr
    again = (folder / "paper.md").read_text(encoding="utf-8")
    for name in ("equal", "hits", "costs", "ablation"):
        assert block(again, name) == block(generated, name)


@pytest.mark.slow
def test_what_people_write_during_the_runs_stays(generated, folder, monkeypatch):
    """The document may change in the hours between its check and its update."""
    document = folder / "paper.md"
    next_orders = equal_hits.next_orders

    def edit(*arguments):
        document.write_text(f"{generated}\nwritten meanwhile\n", encoding="utf-8")
        return next_orders(*arguments)

    monkeypatch.setattr(equal_hits, "next_orders", edit)
    done = paper(folder, "--continue")
    assert done.exit_code == 0, done.output
    assert document.read_text(encoding="utf-8").endswith("\nwritten meanwhile\n")


@pytest.mark.slow
def test_a_failed_run_is_reported_and_the_others_are_cached(generated, folder, tmp_path):
    """The runs of an unknown policy are missing, so the document is not written."""
    runs = len(list((folder / "cache").glob("*.json")))
    done = paper(tmp_path, "--policy", "unknown", "--continue", "--cache", folder / "cache")
    assert done.exit_code == 1
    assert "no policy 'unknown'" in done.stderr
    assert "completed runs are cached; resume with --continue" in done.stderr
    assert (tmp_path / "paper.md").read_text(encoding="utf-8") == DOCUMENT
    assert len(list((folder / "cache").glob("*.json"))) == runs


@pytest.mark.parametrize(
    ("text", "problem"),
    [(None, "No such file"), ("without places\n", "has places for nothing, not")],
)
def test_a_document_that_cannot_be_updated_is_reported_before_the_first_run(
    tmp_path, text, problem
):
    """Runs may take hours."""
    document = tmp_path / "other.md"
    if text is not None:
        document.write_text(text, encoding="utf-8")
    done = paper(tmp_path, "--document", document)
    assert done.exit_code == 1
    assert f"error: {document}: " in done.stderr
    assert problem in done.stderr
    assert not (tmp_path / "cache").exists()


def test_blocks_and_marks_must_correspond():
    """A table without marks is an error, and so are marks without a table."""
    text = "<!-- made: one -->\nold\n<!-- /made -->\n"
    assert with_blocks(text, {"one": "new\n"}) == "<!-- made: one -->\nnew\n<!-- /made -->\n"
    for blocks in ({}, {"one": "", "two": ""}, {"two": ""}):
        with pytest.raises(MarkError, match="has places for one, not"):
            with_blocks(text, blocks)
