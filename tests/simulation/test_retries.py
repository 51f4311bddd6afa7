"""Retries: count of failures, and when the minimum configuration is forced."""

from dataclasses import dataclass

from workbench.simulation.retries import RetryState, most_urgent_first


@dataclass(frozen=True)
class Queue:
    deadline_ms: float
    number: int


def test_third_miss_forces():
    """Misses that lie apart count; a placement resets the count."""
    retry_state = RetryState(3, retry_ms=100.0)
    for now_ms in (0.0, 100.0):
        retry_state.miss(now_ms)
        assert not retry_state.forced
    retry_state.miss(200.0)
    assert retry_state.forced
    retry_state.hit()
    assert not retry_state.forced
    assert retry_state.missed == 0


def test_misses_in_quick_succession_count_once():
    """Three container ends within a few ms are not three retries."""
    retry_state = RetryState(3, retry_ms=100.0)
    for now_ms in (0.0, 1.0, 99.9, 100.0, 150.0, 199.0):
        retry_state.miss(now_ms)
    assert retry_state.missed == 2
    assert not retry_state.forced


def test_next_miss_after_a_placement_counts_at_once():
    retry_state = RetryState(1, retry_ms=100.0)
    retry_state.miss(0.0)
    retry_state.hit()
    retry_state.miss(1.0)
    assert retry_state.forced


def test_without_a_limit_no_run_is_forced():
    retry_state = RetryState(0, retry_ms=0.0)
    for now_ms in range(100):
        retry_state.miss(float(now_ms))
    assert not retry_state.forced


def test_queues_are_ordered_by_urgency():
    """By the deadline of the oldest job; among equals by number."""
    queues = [Queue(3.0, 0), Queue(1.0, 2), Queue(1.0, 1)]
    assert [queue.number for queue in most_urgent_first(queues)] == [1, 2, 0]
