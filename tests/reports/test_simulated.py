"""The page of ``esg simulate --out``: whole, true, safe, the same each time, and small."""

import math
import re
import sys
from dataclasses import replace
from itertools import chain

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.examples import examples
from tests.reports.comparisons import FACTS, compared, simulated
from tests.reports.parsed import Page
from workbench.reports.renderer import MissingReportLibraryError
from workbench.reports.simulated import Comparison
from workbench.reports.simulated_page import simulated_page

NASTY = """</title></svg><script>alert("1")</script> & 'it' {{ 7 * 7 }} $x$ é"""
FIGURES = 6


@pytest.fixture(scope="module")
def page() -> str:
    return simulated_page(compared())


def test_tells_each_policy_in_numbers(page):
    """A row has means over seeds, with their deviation."""
    rows = Page(page).rows
    assert rows[1] == [
        "strict-light", "exact", "2,000", "98.0 ± 1.4", "steady from 20 s", "35", "5", "0.71",
        "1.04",
        "0.2550 ± 0.0071", "0.0125", "1.86", "34 %", "1.25", "128", "17",
    ]  # fmt: skip
    assert [row[:2] for row in rows[1:5]] == [
        ["strict-light", "exact"],
        ["strict-light", "esg"],
        ["relaxed-heavy", "exact"],
        ["relaxed-heavy", "esg"],
    ]


def test_tells_where_the_time_of_misses_went(page):
    rows = Page(page).rows
    assert ["strict-light", "exact", "35", "12.0", "300.5", "4.2", "800.0"] in rows


@pytest.mark.slow
def test_one_seed_has_no_deviation():
    policy = simulated(hits=(0.5,), costs_dollars_per_thousand=(0.25,), paid_bound_ratio=None)
    rows = Page(simulated_page(Comparison(policies=(policy,)))).rows
    assert rows[1][3] == "50.0"
    assert rows[1][9] == "0.2500"
    assert rows[1][11] == "-"  # no request could have been in time


@pytest.mark.slow
def test_names_who_is_best():
    """Per setting: the highest hit rate, and the lowest cost near that rate."""
    keeps = simulated("keeps", hits=(0.99,), costs_dollars_per_thousand=(0.3,))
    near = simulated("near", hits=(0.985,), costs_dollars_per_thousand=(0.2,))
    cheap = simulated("cheap", hits=(0.42,), costs_dollars_per_thousand=(0.1,))
    text = simulated_page(Comparison(policies=(cheap, near, keeps)))
    assert (
        "keeps has the highest hit rate, 99.0 % of 2,000 requests, for $0.3000 a thousand; near "
        in text
    )
    assert "near has 98.5 % for $0.2000." in text
    alone = simulated_page(Comparison(policies=(keeps, cheap)))
    assert "for $0.3000 a thousand.</p>" in alone


def test_figures_speak(page):
    """Each has words for those who cannot see it, and says what is pointed at."""
    parsed = Page(page)
    figures = [attributes for tag, attributes in parsed.elements if tag == "svg"]
    assert len(figures) == FIGURES
    assert [figure["aria-label"] for figure in figures] == parsed.all_of("figcaption")
    titles = parsed.all_of("title")
    assert "exact, strict-light: 98.0 % of 2,000 in SLO" in titles
    assert "esg, relaxed-heavy: $0.2550 paid per 1,000 requests" in titles
    assert "exact, strict-light: starting 300.5 ms" in titles
    assert "exact: batching 0.120" in titles
    assert "1.86" in [text.strip() for text in parsed.all_of("text")]
    assert titles.count("exact") == 6  # a line in each panel of three figures


@pytest.mark.slow
def test_remarks_and_facts_are_told():
    remarks = ("exact, seed 0: out of ideas.", "The profiles are generated.")
    parsed = Page(simulated_page(compared(remarks=remarks)))
    warned = [a for tag, a in parsed.elements if tag == "p" and a.get("class") == "warn"]
    assert len(warned) == len(remarks)
    assert set(remarks) <= set(parsed.all_of("p"))
    assert parsed.all_of("dd")[-len(FACTS) :] == [text for _, text in FACTS]


def test_without_any_result_the_facts_are_left():
    parsed = Page(simulated_page(Comparison(policies=(), facts=FACTS, remarks=("it failed.",))))
    assert not [tag for tag, _ in parsed.elements if tag in {"svg", "table"}]
    assert "it failed." in parsed.all_of("p")


@pytest.mark.slow
def test_ten_policies_use_every_colour():
    """More policies than colours use the last colour too."""
    page = simulated_page(compared([f"policy-{i}" for i in range(10)]))
    latencies = page.split("<svg")[3]
    assert {"--series4", "--series8"} <= set(re.findall(r"var\((--\w+)\)", latencies))


@pytest.mark.slow
def test_lines_of_many_policies_differ():
    """Colours first, then dashes: no two lines of a panel look the same."""
    page = simulated_page(compared([f"policy-{i}" for i in range(20)], ["one"]))
    latencies = page.split("<svg")[3]
    lines = re.findall(r"<title>policy-\d+</title>\s*<path[^>]*style=\"([^\"]*)\"", latencies)
    assert len(lines) == 20
    assert len(set(lines)) == 20


@pytest.mark.slow
def test_free_text_is_shown_as_it_is(page):
    """A policy's name is escaped: it opens no element."""
    renamed = [replace(p, name=NASTY, setting=NASTY) for p in compared().policies[:1]]
    nasty = Page(simulated_page(Comparison(policies=tuple(renamed), facts=((NASTY, NASTY),))))
    plain = Page(simulated_page(Comparison(policies=compared().policies[:1], facts=FACTS[:1])))
    assert [tag for tag, _ in nasty.elements] == [tag for tag, _ in plain.elements]


@pytest.mark.slow
def test_the_same_results_are_the_same_page(page):
    assert simulated_page(compared()) == page


@pytest.mark.slow
def test_is_small():
    """All policies under all settings can still be mailed."""
    fill = tuple((float(i), (i % 50) / 50) for i in range(128))
    latencies = tuple((i / 64, (i + 1) / 130) for i in range(130))
    many = tuple(
        simulated(f"policy-{p}", f"setting-{s}", utilisation=fill, latencies=latencies)
        for s in range(9)
        for p in range(11)
    )
    assert len(simulated_page(Comparison(policies=many)).encode()) < 2_000_000


@examples(6)
@given(
    cost=st.floats(0.0, 1e6),
    hits=st.floats(0.0, 1.0),
    latency=st.floats(1e-3, 1e4),
    missed_ms=st.floats(0.0, 1e8),
)
@pytest.mark.slow
def test_any_figures_can_be_drawn(cost, hits, latency, missed_ms):
    """Any cost, hit rate and wait: each figure has its marks, and they say their numbers."""
    policy = simulated(
        hits=(hits,),
        costs_dollars_per_thousand=(cost,),
        latencies=((latency, hits),),
        utilisation=((0.5, hits),),
        missed_ms=(missed_ms, 0.0, 0.0, missed_ms),
        misses=0 if missed_ms == 0 else 3,
    )
    parsed = Page(simulated_page(Comparison(policies=(policy,))))
    assert len(parsed.all_of("figcaption")) == FIGURES
    assert all(map(math.isfinite, chain(*parsed.places)))
    assert {
        f"exact, strict-light: {100 * hits:.1f} % of 2,000 in SLO",
        f"exact, strict-light: ${cost:.4f} paid per 1,000 requests",
        f"exact, strict-light: waiting for room {missed_ms:,.1f} ms",
    } <= set(parsed.all_of("title"))


@pytest.mark.parametrize("library", ["matplotlib", "jinja2"])
def test_a_missing_library_is_named(monkeypatch, library):
    monkeypatch.setitem(sys.modules, library, None)
    with pytest.raises(
        MissingReportLibraryError, match=r"pip install 'esg-scheduler\[workbench\]'"
    ):
        simulated_page(compared())
