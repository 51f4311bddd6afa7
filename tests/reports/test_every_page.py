"""Every page is self-contained, consistent and readable on light and on dark."""

import re

import pytest

from tests.reports.comparisons import compared
from tests.reports.parsed import Page
from tests.reports.stages import CURVES, FACTS, planned_stage
from workbench.reports.simulated_page import simulated_page
from workbench.reports.stage_page import stage_page

PAGES = {
    "simulated": lambda: simulated_page(compared([f"policy-{i}" for i in range(10)])),
    "stage": lambda: stage_page(planned_stage(), CURVES, FACTS),
}


@pytest.fixture(scope="module", params=[pytest.param("simulated", marks=pytest.mark.slow), "stage"])
def page(request) -> str:
    return PAGES[request.param]()


def test_takes_nothing_from_elsewhere(page):
    """No script, no address, and no link that leads out of the page."""
    parsed = Page(page)
    assert "http" not in page
    assert not {"script", "link", "img", "iframe"} & {tag for tag, _ in parsed.elements}
    for _, attributes in parsed.elements:
        assert "src" not in attributes
        assert (attributes.get("href") or "#").startswith("#")
    assert all(target.startswith("#") for target in re.findall(r"url\((.)", page))


def test_every_reference_has_one_target(page):
    """The figures share a document: their ids differ."""
    elements = Page(page).elements
    ids = [attributes["id"] for _, attributes in elements if "id" in attributes]
    assert len(ids) == len(set(ids))
    assert set(re.findall(r'(?:url\(|href=")#([^)"]+)', page)) <= set(ids)


def test_is_readable_on_light_and_on_dark(page):
    """Every colour of the figures is the page's, and defined for both."""
    light, dark = re.findall(r":root \{(.*?)\}", page, re.DOTALL)
    used = set(re.findall(r"var\((--\w+)\)", page))
    assert used <= set(re.findall(r"--\w+", light))
    assert used <= set(re.findall(r"--\w+", dark))
    assert not re.search(r"(fill|stroke): #", page)
