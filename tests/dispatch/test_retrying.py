"""What is tried again, and when the minimum configuration is forced."""

from dataclasses import dataclass

from scheduler.dispatch.retries import RetryState, most_urgent_first


@dataclass(frozen=True)
class Queue:
    deadline_ms: float
    number: int


def test_the_third_miss_forces():
    """Misses that lie apart count, and a run ends the row."""
    patience = RetryState(3, retry_ms=100.0)
    for now_ms in (0.0, 100.0):
        patience.miss(now_ms)
        assert not patience.forced
    patience.miss(200.0)
    assert patience.forced
    patience.hit()
    assert not patience.forced
    assert patience.missed == 0


def test_looks_in_quick_succession_are_one_miss():
    """Three ends of containers within a few ms are not three tries."""
    patience = RetryState(3, retry_ms=100.0)
    for now_ms in (0.0, 1.0, 99.9, 100.0, 150.0, 199.0):
        patience.miss(now_ms)
    assert patience.missed == 2
    assert not patience.forced


def test_after_a_run_the_next_miss_counts_at_once():
    patience = RetryState(1, retry_ms=100.0)
    patience.miss(0.0)
    patience.hit()
    patience.miss(1.0)
    assert patience.forced


def test_without_a_limit_nothing_is_forced():
    patience = RetryState(0, retry_ms=0.0)
    for now_ms in range(100):
        patience.miss(float(now_ms))
    assert not patience.forced


def test_room_goes_to_the_most_urgent():
    """By the deadline of the oldest job; among equals by number."""
    queues = [Queue(3.0, 0), Queue(1.0, 2), Queue(1.0, 1)]
    assert [queue.number for queue in most_urgent_first(queues)] == [1, 2, 0]
