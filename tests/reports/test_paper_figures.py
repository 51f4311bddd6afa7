"""Figures of docs/paper.md: small PNGs, the same bytes for the same points."""

import struct

import pytest

from workbench.reports.paper_figures import positions_png
from workbench.reports.points import Panel, Point

PANELS = tuple(
    Panel(title, (Point("exact", 0.25, 0.99, 0.01, 0.02), Point("esg & co", 0.26, 0.97)))
    for title in ("strict-light", "moderate-normal", "relaxed-heavy", "another")
)
SIZE_MAX_BYTES = 150_000


def positions():
    return positions_png(PANELS, "$ per 1,000 requests", "in SLO")


def test_a_figure_is_a_small_png():
    """The picture has the width of a page and a size that suits a repository."""
    png = positions()
    width, height = struct.unpack(">II", png[16:24])
    assert png.startswith(b"\x89PNG")
    assert width == 990
    assert height > 100
    assert len(png) < SIZE_MAX_BYTES


@pytest.mark.slow
def test_the_same_points_give_the_same_file():
    """Output is reproducible byte for byte."""
    assert positions() == positions()
