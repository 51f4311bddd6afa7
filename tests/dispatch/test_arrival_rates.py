"""Rates of arrivals from their counts at each look."""

from scheduler.dispatch.scaling.arrival_rates import ArrivalRate


def test_a_look_after_a_long_pause_has_a_rate():
    """No window has two looks then: the rate is that of the looks that follow."""
    rate = ArrivalRate(0.0)
    rate.rows_per_ms(0, 0.0)
    assert rate.rows_per_ms(10, 50_000.0) == 0.0


def test_two_looks_soon_after_a_pause_are_no_rush():
    """Six rows between looks that are a millisecond apart are not six thousand a second."""
    rate = ArrivalRate(0.0)
    rate.rows_per_ms(0, 0.0)
    rate.rows_per_ms(10, 50_000.0)
    assert rate.rows_per_ms(16, 50_001.0) <= 6 / 2_000.0


def test_a_steady_flow_has_its_rate():
    """One row every 100 ms, looked at every second, is 0.01 rows a millisecond."""
    rate = ArrivalRate(0.0)
    rates = [rate.rows_per_ms(10 * second, 1000.0 * second) for second in range(120)]
    assert rates[-1] == 0.01


def test_a_count_that_begins_again_begins_the_rate_again():
    """A workflow that is removed and added again has had no row."""
    rate = ArrivalRate(0.0)
    for second in range(10):
        rate.rows_per_ms(10 * second, 1000.0 * second)
    assert rate.rows_per_ms(0, 10_000.0) == 0.0
    assert rate.rows_per_ms(20, 12_000.0) > 0.0
