"""Waits between stages, as the tracker observes them."""

from itertools import pairwise
from statistics import median

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler.model.pod import function_pod
from scheduler.slo.stage_waits import OBSERVED, StageWaits
from tests.slo.histories import ClusterHistory
from workbench.profiles.builders import graph


def later_ms(history: ClusterHistory, stage: str) -> float:
    """Waits that a plan of this stage holds back."""
    raw = history.raw(stage)
    return history.tracker.later_waits_ms(function_pod(raw))


def run_diamond(history: ClusterHistory, request: str, *, b_s: float, c_s: float) -> None:
    """Run an instance: `b` and `c` wait after `a`, which ends at 1 s; `d` waits 0.5 s."""
    for stage, start_s, end_s in (
        ("a", 0.0, 1.0),
        ("b", 0.8 + b_s, 3.0),
        ("c", 0.8 + c_s, 4.0),
        ("d", 4.3, 5.0),
    ):
        history.run(stage, start_s, end_s, request=request)


def test_waits_add_up_along_the_longest_path(history: ClusterHistory) -> None:
    """From the end of the last predecessor until the stage runs; parallel stages wait at once."""
    assert later_ms(history, "a") == 0.0
    run_diamond(history, "r1", b_s=0.3, c_s=0.7)
    assert later_ms(history, "a") == pytest.approx(700 + 500)
    assert later_ms(history, "b") == later_ms(history, "c") == pytest.approx(500)
    assert later_ms(history, "d") == 0.0


def test_the_median_of_the_last_waits_counts(history: ClusterHistory) -> None:
    """A few long waits, of a cluster that was full, change nothing."""
    for number in range(OBSERVED):
        run_diamond(history, f"r{number}", b_s=0.1, c_s=1.9 if number % 4 == 0 else 0.3)
    assert later_ms(history, "a") == pytest.approx(300 + 500)


def test_a_retried_stage_shows_no_wait(history: ClusterHistory) -> None:
    """The time of the failed attempt is not a wait."""
    history.run("a", 0, 1)
    history.pod("b", 1)
    history.pod("b", 1.5, "Failed", node="n1")
    history.tracker.remove("r1-b", 2)
    history.run("b", 9, 10)
    assert later_ms(history, "a") == 0.0


def test_an_end_without_a_report_shows_no_wait(history: ClusterHistory) -> None:
    """A list reports that the predecessor has ended, but not when."""
    history.pod("a", 5, "Succeeded", node="n1", live=False)
    history.run("b", 6, 7)
    assert later_ms(history, "a") == 0.0


def test_a_stage_that_begins_early_does_not_wait(history: ClusterHistory) -> None:
    """Its creator did not wait for its predecessor."""
    history.run("a", 0, 1)
    history.run("b", 0.2, 2)
    assert later_ms(history, "a") == 0.0


def test_a_deleted_workflow_has_no_waits(history: ClusterHistory) -> None:
    """One of the same name begins without any."""
    run_diamond(history, "r1", b_s=0.3, c_s=0.7)
    history.tracker.waits.remove("default", "diamond")
    assert later_ms(history, "a") == 0.0


@given(data=st.data())
def test_the_longest_path_of_any_order(data: st.DataObject) -> None:
    """Against all paths, listed one by one; the stages stand in any order."""
    count = data.draw(st.integers(1, 6))
    after = [data.draw(st.sets(st.integers(0, i - 1))) if i else set() for i in range(count)]
    numbers = data.draw(st.permutations(range(count)))
    workflow = graph({f"s{i}": ["f", *(f"s{p}" for p in after[i])] for i in numbers}, slo_ms=1)
    waits, medians_ms = StageWaits(), [0.0] * count
    for i in range(count):
        observed_s = data.draw(st.lists(st.integers(0, 9), max_size=3))
        for wait_s in observed_s:
            waits.record("default", "w", f"s{i}", float(wait_s))
        medians_ms[i] = 1000.0 * median(observed_s) if observed_s else 0.0
    first = data.draw(st.integers(0, count - 1))
    paths = [[first]]
    for path in paths:  # grows while it is read
        paths.extend([*path, i] for i in range(count) if path[-1] in after[i])
    expected_ms = max(sum(medians_ms[i] for _, i in pairwise(path)) for path in paths)
    assert waits.later_ms(workflow, f"s{first}") == pytest.approx(expected_ms)
