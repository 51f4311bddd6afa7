"""History of the live page: figures of a window from counters whose numbers are known."""

import pytest

from scheduler.gateway import page_report
from scheduler.gateway.metrics import Gauges, PoolGauge
from scheduler.gateway.page_history import PageHistory
from scheduler.model.documents import Workflow
from tests.gateway.factories import workflow
from tests.gateway.test_workflow_series import KEY, batch_ended, document, gateway_metrics

FUNCTION = ("n", "f")


class Clock:
    def __init__(self):
        self.now_s = 0.0

    def __call__(self):
        return self.now_s


NO_GAUGES = Gauges({}, {}, {}, {}, 0, {})


async def play(gauges):
    """Play ten minutes of two requests each: one is late, and in the last six both are."""
    metrics, clock = gateway_metrics(), Clock()
    history = PageHistory(metrics, lambda: gauges, clock)
    for minute in range(10):
        for _ in range(4):
            clock.now_s += 15.0
            await history.sample()
        clock.now_s += 0.001
        for late in (minute >= 4, True):
            metrics.call_ended(KEY, "miss" if late else "hit", 2.0 if late else 0.3)
        batch_ended(metrics)
    return history


async def test_windows_count_their_own_requests():
    """The last five minutes have late requests alone, and the hour has all."""
    history = await play(NO_GAUGES)
    now = history.now(NO_GAUGES)
    recent = page_report._requests(history.before(now, 300.0), now, KEY)
    hour = page_report._requests(history.before(now, 3600.0), now, KEY)
    assert (recent["hit"], recent["miss"]) == (0.0, 12.0)
    assert (hour["hit"], hour["miss"]) == (4.0, 16.0)
    assert page_report._in_slo(hour) == 0.2
    assert page_report._in_slo(dict.fromkeys(hour, 0.0)) is None
    assert len(history.minutes(now)) == 10


async def test_quantiles_are_within_their_bucket():
    """Answers of 0.3 s and 2 s are in buckets that end at 0.5 s and 2.5 s."""
    history = await play(NO_GAUGES)
    now = history.now(NO_GAUGES)
    first = history.before(now, 3600.0)
    assert 250 < page_report._quantile_ms(first, now, KEY, 0.1) <= 500
    assert 1000 < page_report._quantile_ms(first, now, KEY, 0.9) <= 2500
    assert page_report._quantile_ms(now, now, KEY, 0.9) is None


async def test_what_is_set_aside_is_divided_by_rows():
    """A workflow pays for the pods of its functions, and the pool of its namespace."""
    pool = PoolGauge(slice_percent=100, running_percent=0, process_percent=0, dollars_per_hour=30.0)
    gauges = Gauges({}, {}, {}, {FUNCTION: 60.0}, 0, {"n": pool})
    history = await play(gauges)
    now = history.now(gauges)
    first = history.before(now, 3600.0)
    # It shares the functions, and has had no request.
    unused = Workflow.model_validate(workflow(name="other", stages=("f", "g")))
    documents = {KEY: document(), unused.key: unused}
    dollars = page_report._set_aside_dollars(documents, first, now)
    assert dollars[KEY] == pytest.approx(90.0 * (now.at_s - first.at_s) / 3600.0)
    assert dollars[unused.key] == 0.0


async def test_a_look_between_two_samples_adds_nothing():
    """The price of what is set aside follows from the time, however often the page is read."""
    gauges = Gauges({}, {}, {}, {FUNCTION: 60.0}, 0, {})
    history = await play(gauges)
    first, second = history.now(gauges), history.now(gauges)
    assert second.held_dollars == first.held_dollars != {}
