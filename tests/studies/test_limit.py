"""The study of docs/limit.md: its runs, its tables, and the parts of the document."""

import pytest

from studies.page import blocks_of
from studies.plans.limit import (
    DOCUMENT,
    FIGURES,
    HELD,
    KINDS,
    MEASURED_PREFIX,
    LimitCase,
    cases_of,
    figure,
    limits_table,
    mean_limits,
    mean_paid,
    outcome_of,
    ready_table,
    split_table,
)
from workbench.simulation.workloads.paper import SETTINGS

GROUND = "moderate-heavy"
REQUESTS = 120
BLOCKS = {"how", "limits", "split", "ready"}


@pytest.fixture(scope="module")
def outcomes():
    """Short runs of one setting."""
    cases = cases_of([GROUND], REQUESTS, 1)
    return {case: outcome_of(case, None) for case in cases}


@pytest.mark.slow
def test_each_limit_is_above_b0(outcomes):
    """A narrower class of schedules costs no less, and a reserve costs more."""
    known = mean_limits(outcomes, GROUND)
    assert known.b0 <= known.trace * (1 + 1e-9)
    assert known.b0 <= known.processes <= known.nodes
    assert known.b0 <= known.pooled_nodes <= known.nodes
    assert known.processes < known.staffed


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_parts_begin_at_the_limit(outcomes, kind):
    """They are ratios to B0, and starts and idle times are no cheaper than the least."""
    result = mean_paid(outcomes, GROUND, kind)
    assert result.split.limit == pytest.approx(1.0)
    assert result.split.paid > 1.0
    if kind in HELD:
        paid_ratio, minimum, rented = result.ready_ratios
        assert minimum <= paid_ratio
        assert minimum <= rented
    else:
        assert result.ready_ratios is None


@pytest.mark.slow
def test_the_tables_have_each_kind_of_pods(outcomes):
    """A row for each setting, or for each kind of pods in it."""
    assert len(limits_table(outcomes, [GROUND]).splitlines()) == 2 + 1
    assert len(split_table(outcomes, [GROUND]).splitlines()) == 2 + len(KINDS)
    assert len(ready_table(outcomes, [GROUND]).splitlines()) == 2 + len(HELD)
    assert figure(outcomes, [GROUND]).startswith(b"\x89PNG")


def test_the_limits_are_computed_first():
    """They take longest; each setting has them, and a run of each kind."""
    cases = list(cases_of(list(SETTINGS), REQUESTS, 2))
    assert cases[0] == LimitCase("strict-light", "limits", 0, REQUESTS)
    assert len(set(cases)) == len(SETTINGS) * 2 * (1 + len(KINDS))


def test_the_document_has_a_place_for_each_table():
    text = DOCUMENT.read_text(encoding="utf-8")
    assert set(blocks_of(text)) == set(blocks_of(text, MEASURED_PREFIX)) == BLOCKS
    for name in FIGURES.values():
        assert f"({name})" in text
        assert (DOCUMENT.parent / name).is_file()
