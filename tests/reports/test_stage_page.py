"""The page of ``esg plan --plot``: whole, true, safe, the same each time, and small."""

import sys
from dataclasses import replace

import matplotlib as mpl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler.model.plan import Plan
from scheduler.search.cost_curves import Curve
from tests.examples import examples
from tests.reports.parsed import Page
from tests.reports.stages import CURVES, FACTS, GPU, curves, in_groups, of_stages, planned_stage
from workbench.reports.renderer import MissingReportLibraryError
from workbench.reports.stage_page import stage_page

NASTY = """</title></svg><script>alert("1")</script> & 'it' {{ 7 * 7 }} $x$ id="a" #010200 é"""


@pytest.fixture(scope="module")
def page() -> str:
    return stage_page(planned_stage(), CURVES, FACTS)


def is_complete(page: Page) -> bool:
    """Return true if both figures are there, and the edge of neither cuts anything off."""
    shown = len(page.all_of("figcaption"))
    return shown == 2 and all(0.0 <= at <= 1.0 for place in page.places for at in place)


def test_tells_the_plan_in_numbers(page):
    """Each stage's run and each candidate is a row of a table, with its configuration."""
    rows = Page(page).rows
    configuration = ["segment", "segmentation", "4", "2", "57", "1,234"]
    assert rows[1] == [*configuration, "0.0", "100.2", "-10.0 to 110.0", "0.0200", GPU]
    configuration = ["classify", "classification", "1", "8", "28", "999"]
    assert rows[2] == [*configuration, "100.2", "175.2", "110.0 to 200.0", "0.0150", GPU]
    assert rows[3] == ["total", "175.2", "to 200.0", "0.0350", ""]
    assert rows[5] == ["1", "4", "2", "57", "1,234", "100.2", "175.2", "0.0350", GPU]
    assert rows[6] == ["2", "1", "8", "28", "999", "90.5", "165.5", "0.0413", GPU]


def test_tells_the_curves_in_numbers():
    """Tables repeat the figures; times at which the policy ends late are marked."""
    page = Page(stage_page(planned_stage(), in_groups([(150.0, None), (180.0, 5e-5)]), FACTS))
    assert ["80.0", "0.0900"] in page.rows
    assert ["150.0", "late"] in page.rows
    assert ["180.0", "0.0500"] in page.rows
    assert "ends late at 1 of the 2 times on the curve" in page.all_of("figcaption")[0]


def test_figures_speak(page):
    """Each has words for those who cannot see it, and says what is pointed at."""
    parsed = Page(page)
    figures = [attributes for tag, attributes in parsed.elements if tag == "svg"]
    assert [figure["role"] for figure in figures] == ["img", "img"]
    assert [figure["aria-label"] for figure in figures] == parsed.all_of("figcaption")
    first, second = f"batch 4, 2 vCPU, 57 % GPU, {GPU}", f"batch 1, 8 vCPU, 28 % GPU, {GPU}"
    assert parsed.all_of("title")[1:] == [
        f"the plan: {first}; 175.2 ms, $0.0350 per 1,000 requests",
        f"candidate 2: {second}; 165.5 ms, $0.0413 per 1,000 requests",
        "segment: budget -10.0 to 110.0 ms",
        f"segment: 0.0 to 100.2 ms, {first}, $0.0200 per 1,000 requests",
        "classify: budget 110.0 to 200.0 ms",
        f"classify: 100.2 to 175.2 ms, {second}, $0.0150 per 1,000 requests",
    ]


def test_free_text_is_shown_as_it_is(page):
    """Whatever a name is, it is text: it opens no element, and nothing of it is lost."""
    planned = replace(planned_stage(model=NASTY), workflow=NASTY)
    nasty = Page(stage_page(planned, CURVES, ((NASTY, NASTY),)))
    plain = Page(page)
    assert [tag for tag, _ in nasty.elements] == [tag for tag, _ in plain.elements]
    times_shown = sum(text.count(NASTY) for _, text in nasty.texts)
    named = sum(text.count(GPU) for _, text in plain.texts)
    assert times_shown == named + len(["the title", "the heading", "the fact's name", "its text"])


def test_the_same_plan_is_the_same_page(page):
    """Neither the day nor the user's taste in plots is in it; and that taste stays as it was."""
    with mpl.rc_context({"axes.facecolor": "red", "font.size": 30.0, "svg.fonttype": "path"}):
        assert stage_page(planned_stage(), CURVES, FACTS) == page
        assert mpl.rcParams["axes.facecolor"] == "red"


@pytest.mark.slow
def test_is_small():
    """The largest workflow's page can still be mailed."""
    times = [10.0 * 1.05**i for i in range(128)]
    lines = (
        Curve("exact", tuple((t, 1 / t) for t in times)),
        Curve("esg", tuple((t, 2 / t) for t in times)),
    )
    assert len(stage_page(of_stages(32), lines, FACTS).encode()) < 300_000


@examples(6)
@given(st.floats(1e-4, 1e5), st.floats(-3.0, 3.0))
@pytest.mark.slow
def test_any_scale_can_be_drawn(scale, slack_factor):
    """From microseconds to days, with much, little and no remaining time, all is in the figures."""
    planned = planned_stage(scale_factor=scale)
    planned = replace(planned, slack_ms=slack_factor * planned.slack_ms)
    parsed = Page(stage_page(planned, curves(scale), FACTS))
    assert is_complete(parsed)
    assert [title.partition(":")[0] for title in parsed.all_of("title")[1:3]] == [
        "the plan",
        "candidate 2",
    ]


def test_a_curve_may_be_one_point():
    """If the fastest completion is the cheapest, there is no choice."""
    parsed = Page(stage_page(planned_stage(), (Curve("exact", ((175.25, 3.5e-5),)),), FACTS))
    assert is_complete(parsed)
    assert ["175.2", "0.0350"] in parsed.rows
    ends = "fastest completion takes 175.2 ms and costs $0.0350, the cheapest 175.2 ms and $0.0350."
    assert parsed.all_of("figcaption")[0].endswith(ends)


def test_without_any_completion_there_is_no_curve():
    """The page says so, and has the rest."""
    parsed = Page(stage_page(planned_stage(), (), FACTS))
    assert len([tag for tag, _ in parsed.elements if tag == "svg"]) == 1
    assert "No configuration sustains the rate, whatever the time." in parsed.all_of("p")


@pytest.mark.parametrize("library", ["matplotlib", "jinja2"])
def test_a_missing_library_is_named(monkeypatch, library):
    """The message has the command that installs it."""
    monkeypatch.setitem(sys.modules, library, None)
    with pytest.raises(MissingReportLibraryError) as raised:
        stage_page(planned_stage(), CURVES, FACTS)
    assert str(raised.value) == (
        f"a page needs {library}, which is not installed; "
        "run pip install 'esg-scheduler[workbench]'"
    )


def test_remarks():
    """A lost SLO, late later stages, and an unfinished search are remarked."""
    planned = planned_stage()
    assert planned.remarks() == []
    plan = Plan(False, 9.0, planned.plan.candidates, message="the SLO is lost: 9.0 ms left")
    assert replace(planned, plan=plan).remarks() == ["The SLO is lost: 9.0 ms left."]
    (late,) = replace(planned, slack_ms=175.0).remarks()
    assert late.endswith("the completion ends 0.2 ms late.")
    for epsilon, percent in ((0.0071, "0.71 %"), (1.625, "162 %")):
        (inexact,) = replace(planned, plan=planned.plan._replace(epsilon=epsilon)).remarks()
        assert inexact.endswith(f"at most {percent} above the minimum cost.")


def test_candidates_of_a_group_alone_are_not_drawn():
    """Their time and cost are not those of the workflow, so they have no place in the figure."""
    planned = planned_stage()
    plan = planned.plan._replace(candidates=tuple(
        c._replace(path_ms=c.stage_ms, path_cost_dollars=c.path_cost_dollars / 2)
        for c in planned.plan.candidates
    ))  # fmt: skip
    parsed = Page(stage_page(replace(planned, plan=plan), CURVES, FACTS))
    assert not any("candidate 2" in text for text in parsed.all_of("title"))
    assert any("of the stage's group alone" in text for text in parsed.all_of("p"))
