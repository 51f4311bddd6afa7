"""Figures as files: readable by themselves, on light and on dark."""

import re
import sys
from xml.etree import ElementTree as ET

import pytest

from workbench.reports.points import Panel, Point, differences_svg, positions_svg
from workbench.reports.standalone import standalone
from workbench.reports.writing import MissingReportLibraryError

SVG = "{http://www.w3.org/2000/svg}"
PANELS = tuple(
    Panel(title, (Point("exact", 0.25, 0.99, 0.01, 0.02), Point("esg & co", 0.26, 0.97)))
    for title in ("strict-light", "moderate-normal", "relaxed-heavy", "another")
)


def positions():
    return positions_svg(PANELS, "$ per 1,000 requests", "in SLO", "Where they stand.")


def differences():
    return differences_svg(PANELS[:3], "points", "What each is worth.")


@pytest.mark.parametrize("draw", [positions, differences])
def test_is_a_picture_of_its_own(draw):
    """Well-formed, with a size, words for those who cannot see it, and nothing from elsewhere."""
    text = draw()
    root = ET.fromstring(text)
    assert root.tag == f"{SVG}svg"
    assert int(root.attrib["width"]) == 720
    assert root.attrib["aria-label"]
    assert "exact" in "".join(root.itertext())
    assert "esg & co" in "".join(root.itertext())
    assert re.findall(r"https?://[^\"\s]+", text) == ["http://www.w3.org/2000/svg"]


@pytest.mark.parametrize("draw", [positions, differences])
def test_brings_its_colours(draw):
    text = draw()
    light, dark = re.findall(r":root \{(.*?)\}", text, re.DOTALL)
    used = set(re.findall(r"var\((--\w+)\)", text))
    assert used <= set(re.findall(r"--\w+", light))
    assert used <= set(re.findall(r"--\w+", dark))


def test_points_say_their_numbers():
    titles = [title.text for title in ET.fromstring(positions()).iter(f"{SVG}title")]
    assert titles.count("exact: 99.0 %, $0.2500") == len(PANELS)
    titles = [title.text for title in ET.fromstring(differences()).iter(f"{SVG}title")]
    assert "strict-light, exact: +0.2 ± 0.0" in titles


def test_the_same_points_are_the_same_file():
    assert positions() == positions()


def test_what_is_no_figure_is_refused():
    with pytest.raises(ValueError, match="not the output of Drawing"):
        standalone("<svg></svg>")


def test_a_missing_library_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(MissingReportLibraryError):
        positions()
