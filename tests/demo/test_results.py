"""Results and summary of the demo: counts, costs, and what a slow machine is whole."""

import pytest
from rich.console import Console

from scheduler.model.names import LABEL_FUNCTION
from scheduler.model.plan import Prices
from scheduler.model.pod import Grant, grant_annotations
from workbench.demo.board import print_summary, state_line, summary_lines
from workbench.demo.load_generator import RequestOutcome
from workbench.demo.results import Results
from workbench.demo.summary import PodUsage, summarise

RUNS = {"runs": 10, "busy_s": 4.0, "late_p99_ms": 1.0}


def outcome(workflow=0, status=200, latency_ms=50.0, late_ms=1.0, *, is_right=True):
    return RequestOutcome(1, workflow, status, is_right, late_ms, latency_ms, 3)


def results(*outcomes):
    collected = Results([("fast", 100.0, 2), ("slow", 1000.0, 3)])
    collected.add(outcomes)
    return collected


def summary(*outcomes, runs=RUNS, seconds=10.0):
    usage = PodUsage(Prices())
    return summarise(results(*outcomes), usage, runs, gpus=2, seconds=seconds)


def pod(function, gpu_percent, cpu=2):
    plan = {"cpu": cpu, "gpu_model": "A100"}
    annotations = grant_annotations(Grant("GPU-1", gpu_percent, 1000, 1, plan))
    return {"metadata": {"labels": {LABEL_FUNCTION: function}, "annotations": annotations}}


def test_a_hit_is_a_right_answer_in_time():
    """Late, wrong and refused requests, and those without an answer, are misses."""
    collected = results(
        outcome(latency_ms=100.0),
        outcome(latency_ms=100.1),
        outcome(is_right=False),
        outcome(status=503),
        outcome(status=0),
        outcome(workflow=1, latency_ms=999.0),
    )
    fast, slow = collected.workflows
    assert (fast.ended, fast.answered, fast.hits, fast.wrong) == (5, 2, 1, 1)
    assert fast.refusals == {503: 1, 0: 1}
    assert (slow.hits, slow.hit_ratio) == (1, 1.0)
    assert (collected.total.ended, collected.total.hits) == (6, 2)


def test_the_rows_of_a_batch_are_those_of_all_stages():
    """A request of a workflow with three stages is in three batches."""
    whole = summary(outcome(), outcome(workflow=1), outcome(workflow=1))
    assert whole.rows_per_batch == (1 * 2 + 2 * 3) / 10


def test_pods_cost_what_they_hold_over_time():
    """Shares and vCPUs, idle or not, from one update to the next."""
    prices = Prices()
    usage = PodUsage(prices)
    pods = [pod("f", 28), pod("f", 28), pod("g", 50, cpu=4)]
    usage.update(pods, 100.0)
    usage.update(pods[:1], 110.0)
    usage.update([], 130.0)
    assert usage.held_s == pytest.approx(1.06 * 10 + 0.28 * 20)
    per_second = [
        prices.request_cost_dollars(1000.0, cpu, percent, 1, "A100")
        for cpu, percent in ((2, 28), (4, 50))
    ]
    assert usage.dollars == pytest.approx(40 * per_second[0] + 10 * per_second[1])


@pytest.mark.parametrize(
    ("late_ms", "server_late_ms"), [(5.1, 0.0), (0.0, 5.1)], ids=["client", "servers"]
)
def test_a_machine_that_is_too_slow_gets_no_hit_rate(late_ms, server_late_ms):
    """Five per cent of the shortest SLO is the limit for what plays, and is not the product."""
    late = [outcome(late_ms=late_ms), outcome(late_ms=late_ms, latency_ms=101.0)]
    slow = summary(*late, runs=RUNS | {"late_p99_ms": server_late_ms})
    assert not slow.kept_up
    console = Console(record=True, width=120, file=None, quiet=False)
    with console.capture() as text:
        print_summary(console, slow)
    assert "DID NOT KEEP UP" in text.get()
    assert "50.0 %" not in text.get()


def test_hits_in_spite_of_delays_count():
    """Delays of what plays make latencies longer, never shorter."""
    assert summary(outcome(late_ms=50.0)).kept_up


def test_a_machine_that_keeps_up_gets_one():
    """The summary has the rate and no warning."""
    whole = summary(outcome(), outcome(status=429), outcome(is_right=False))
    assert whole.kept_up
    assert whole.as_json()["total"]["hit_rate"] == pytest.approx(1 / 3)
    lines = "\n".join(summary_lines(whole))
    assert "1 requests were answered with status 429" in lines
    assert "1 ANSWERS WERE WRONG" in lines
    assert "KEEP UP" not in lines


def test_a_run_without_requests_is_shown():
    """Before the first answer there is nothing to divide by."""
    empty = summary(runs=RUNS | {"runs": 0})
    assert "SLO hits -" in state_line(empty, 0)
    assert empty.as_json()["total"]["p50_ms"] is None
