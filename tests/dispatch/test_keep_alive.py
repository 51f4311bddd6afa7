"""Keep-alive of the last pod, learned from the times between requests."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler.dispatch.scaling.keep_alive import (
    DEFAULT_MS,
    GAPS_MIN,
    MINUTE_MS,
    MISS_PRICE_MS,
    RULES,
    KeepAlive,
    KeepRule,
)

START_MS = 2_000.0
gaps = st.floats(0.0, 90 * MINUTE_MS)
rules = st.sampled_from(RULES)


@given(gap_ms=gaps, rule=rules, start_ms=st.sampled_from((0.0, START_MS, 20_000.0)))
def test_the_cost_of_a_gap_is_that_of_its_steps(gap_ms, rule, start_ms):
    """A naive twin: a pod that stays, perhaps starts again, stays, and starts for the request."""
    paid_ms, has_waited = min(gap_ms, rule.keep_ms), False
    if gap_ms > rule.keep_ms:
        is_there = False
        if gap_ms > rule.return_ms - start_ms:
            paid_ms += start_ms
            is_there = gap_ms <= rule.return_ms + rule.stay_ms
            paid_ms += max(min(gap_ms, rule.return_ms + rule.stay_ms) - rule.return_ms, 0.0)
        paid_ms += 0.0 if is_there else start_ms
        has_waited = not is_there or gap_ms < rule.return_ms
    cost = rule.idle_and_starts(gap_ms, start_ms)
    assert cost == (pytest.approx(paid_ms), has_waited)


@given(listed=st.lists(gaps, min_size=GAPS_MIN, max_size=30))
def test_the_rule_is_the_one_that_would_have_cost_least(listed):
    """Up to the weight of older gaps no rule costs less for the gaps that are known."""
    known = KeepAlive()
    for gap_ms in listed:
        known.learn(gap_ms, START_MS)
    counted = [gap_ms for gap_ms in listed if gap_ms > RULES[0].keep_ms]

    def cost_ms(rule):
        costs = [rule.idle_and_starts(gap_ms, START_MS) for gap_ms in counted]
        return sum(paid_ms + MISS_PRICE_MS * waited for paid_ms, waited in costs)

    if len(counted) < GAPS_MIN:
        assert known.rule == KeepRule(DEFAULT_MS)
    else:
        assert cost_ms(known.rule) <= min(map(cost_ms, RULES)) * 1.15


def test_a_pod_returns_for_a_timer():
    """Requests of each quarter of an hour, to the second: it is idle for a minute or so of it."""
    known = KeepAlive()
    for number in range(10):
        known.record(number, START_MS, number * 15 * MINUTE_MS)
    assert known.rule.keep_ms < MINUTE_MS
    last_ms = 9 * 15 * MINUTE_MS
    assert known.is_due(START_MS, last_ms + 15 * MINUTE_MS)
    assert not known.is_due(START_MS, last_ms + 10 * MINUTE_MS)
    assert not known.is_due(START_MS, last_ms + 20 * MINUTE_MS)


def test_busy_functions_learn_nothing_of_their_short_gaps():
    known = KeepAlive()
    for second in range(1_000):
        known.record(second, START_MS, 1_000.0 * second)
    assert known.rule == KeepRule(DEFAULT_MS)


def test_a_count_that_falls_is_no_request():
    """A workflow was removed: there is one gap around that look, so one less than is needed."""
    known = KeepAlive()
    for number, arrived in enumerate([0, 5, 2, 3, 4, 5, 6]):
        known.record(arrived, START_MS, 2 * MINUTE_MS * number)
    assert known.rule == KeepRule(DEFAULT_MS)
    known.record(7, START_MS, 14 * MINUTE_MS)
    assert known.rule != KeepRule(DEFAULT_MS)
