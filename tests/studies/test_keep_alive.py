"""The study of keep-alive rules in docs/limit.md."""

import numpy as np
import pytest

from scheduler.dispatch.scaling.keep_alive import DEFAULT_MS, MINUTE_MS
from studies.page import blocks_of
from studies.plans.keep_alive import (
    DOCUMENT,
    KEEPS_MS,
    PREFIX,
    RULES,
    cost_of,
    fixed,
    gaps_of,
    histogram,
    learned,
    least_ms,
    rare_catalogue,
    rare_functions,
    rules_table,
    simulated_table,
    ski_rental,
)

START_MS = 20_000.0
TIMER = np.full(40, 15 * MINUTE_MS)
AT_RANDOM = np.random.default_rng(2).exponential(MINUTE_MS, 400)


@pytest.fixture
def invocations(tmp_path):
    """Counts of three functions in two hours: a timer, a rare and a busy one."""
    counts = np.zeros((3, 120), int)
    counts[0, ::15] = 1
    counts[1, [3, 40, 47, 90]] = 1
    counts[2] = 100
    rows = [",".join(["HashFunction", *map(str, range(120))])]
    rows += [",".join([f"f{i}", *map(str, row)]) for i, row in enumerate(counts)]
    file = tmp_path / "invocations.csv"
    file.write_text("\n".join(rows) + "\n", encoding="utf-8")
    return file


def test_gaps_are_those_of_each_function(invocations):
    gaps = gaps_of(invocations, 0)
    assert [len(one) for one in gaps] == [7, 3, 11_999]
    assert gaps[0] == pytest.approx(15 * MINUTE_MS, abs=MINUTE_MS)


@pytest.mark.parametrize("gaps_ms", [TIMER, AT_RANDOM])
@pytest.mark.parametrize("rules", RULES.values(), ids=RULES)
def test_no_rule_pays_less_than_the_least(gaps_ms, rules):
    """Nor for more misses: a miss pays its start."""
    assert cost_of([gaps_ms], START_MS, rules).paid_ms >= least_ms([gaps_ms], START_MS)


def test_ski_rental_pays_at_most_twice_the_least():
    gaps = [TIMER, AT_RANDOM]
    assert cost_of(gaps, START_MS, ski_rental).paid_ms <= 2 * least_ms(gaps, START_MS)


@pytest.mark.parametrize("rules", [learned, histogram])
def test_a_timer_is_learned(rules):
    """After its first gaps no request waits, and a fraction of the idle time is paid."""
    first, rest = TIMER[:6], TIMER
    waited = cost_of([rest], START_MS, rules).misses - cost_of([first], START_MS, rules).misses
    assert waited == 0
    an_hour = cost_of([rest], START_MS, fixed(60 * MINUTE_MS))
    assert cost_of([rest], START_MS, rules).paid_ms < 0.6 * an_hour.paid_ms


@pytest.mark.slow
def test_the_tables_have_each_rule(invocations):
    assert len(rules_table(gaps_of(invocations, 0)).splitlines()) == 2 + len(RULES)
    assert rare_functions(invocations, 120) == ["f0", "f1"]
    table = simulated_table(invocations, 30, 0)
    assert len(table.splitlines()) == 2 + len(KEEPS_MS)
    assert len(rare_catalogue(7).workflows) == 7


def test_the_document_has_a_place_for_each_table():
    text = DOCUMENT.read_text(encoding="utf-8")
    assert set(blocks_of(text, PREFIX)) == {"how", "rules", "simulated"}


def test_ten_minutes_are_the_default():
    assert KEEPS_MS["10 minutes"] == DEFAULT_MS
