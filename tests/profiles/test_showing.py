"""``esg profiles show``: tables, and the page of one profile."""

import pytest

from tests.command_line import esg
from tests.reports.parsed import Page
from tests.testbed import REPOSITORY

SAMPLES = REPOSITORY / "deploy" / "samples" / "profiles.yaml"


def test_prints_each_configuration():
    """A row has the point, its times, and the time of one request."""
    done = esg("profiles", "show", SAMPLES, "--function", "segmentation")
    assert done.exit_code == 0, done.output
    assert done.stdout.startswith("segmentation: cold start 2,300.0 ms, output 1.5 MiB\n")
    rows = [line.split() for line in done.stdout.splitlines()]
    assert ["1", "1", "14", "1,800", "293.0", "307.6", "293.0"] in rows
    assert "deblur" not in done.stdout


@pytest.mark.slow
def test_page_of_one_profile(tmp_path):
    """It needs a function where the file has several."""
    plot = tmp_path / "page.html"
    done = esg("profiles", "show", SAMPLES, "--plot", plot)
    assert done.exit_code == 1
    assert "choose one with --function" in done.stderr
    assert esg("profiles", "show", SAMPLES, "--function", "deblur", "--plot", plot).exit_code == 0
    page = Page(plot.read_text(encoding="utf-8"))
    assert len(page.rows) == 1 + 256
    assert all(0.0 <= at <= 1.0 for place in page.places for at in place)


@pytest.mark.slow
def test_a_file_without_the_profile():
    """The error names the function."""
    done = esg("profiles", "show", SAMPLES, "--function", "unknown")
    assert done.exit_code == 1
    assert "has no FunctionProfile unknown" in done.stderr
