"""Results and summary of the demo: counts, costs, and what a slow machine is whole."""

from dataclasses import replace
from math import inf

import pytest
from rich.console import Console

from scheduler.model.grant import Grant, grant_annotations
from scheduler.model.names import LABEL_FUNCTION
from scheduler.model.plan import Prices
from workbench.demo.board import pod_lines, print_summary, state_line, summary_lines
from workbench.demo.load_generator import RequestOutcome
from workbench.demo.results import RunResults
from workbench.demo.summary import PodKind, PodUsage, summarise

RUNS = {"runs": 12, "pods": 2, "busy_s": 4.0, "late_p99_ms": 1.0}


def outcome(
    workflow=0, status=200, latency_ms=50.0, late_ms=1.0, *, arrival_ms=1000.0, is_right=True
):
    return RequestOutcome(1, workflow, arrival_ms, status, is_right, late_ms, latency_ms, 3)


def results(*outcomes):
    collected = RunResults([("fast", 100.0, 2), ("slow", 1000.0, 3)], warm_up_s=1.0)
    collected.add(outcomes)
    return collected


def summary(*outcomes, runs=RUNS, seconds=10.0):
    usage = PodUsage(Prices())
    return summarise(results(*outcomes), usage, runs, gpus=2, seconds=seconds)


def pod(function, gpu_percent, cpu=2, *, uid="1", pool="", **metadata):
    plan = {"cpu": cpu, "gpu_model": "A100", "pool": pool}
    annotations = grant_annotations(Grant("GPU-1", gpu_percent, 1000, 1, plan))
    labels = {LABEL_FUNCTION: function} if function else {}
    return {"metadata": {"uid": uid, "labels": labels, "annotations": annotations, **metadata}}


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
    fast, slow = collected.counted.workflows
    assert (fast.ended, fast.answered, fast.hits, fast.wrong) == (5, 2, 1, 1)
    assert fast.refusals == {503: 1, 0: 1}
    assert (slow.hits, slow.hit_ratio) == (1, 1.0)
    assert (collected.counted.total.ended, collected.counted.total.hits) == (6, 2)


def test_the_price_stands_beside_the_limit_of_the_answered_requests():
    """Late answers count, and those of the warm-up; without a limit there is no ratio."""
    outcomes = [outcome(), outcome(latency_ms=900.0), outcome(workflow=1, arrival_ms=0.0)]
    limits_dollars = (0.001, 0.004)
    limit = results(*outcomes, outcome(status=503)).limit_dollars(limits_dollars)
    assert limit == pytest.approx(0.006)
    priced = replace(summary(*outcomes), dollars=0.015, limit_dollars=limit)
    assert priced.as_json()["paid_over_bound"] == pytest.approx(2.5)
    assert "per 1,000 requests, idle pods included: 2.50 times the limit B0" in "".join(
        summary_lines(priced)
    )
    unknown = replace(priced, limit_dollars=inf)
    assert unknown.as_json()["paid_over_bound"] is None
    assert "limit" not in "".join(summary_lines(unknown))


def test_the_rows_of_a_batch_are_those_of_all_stages():
    """A request of a workflow with three stages is in three batches; pods' first ones are none."""
    whole = summary(outcome(), outcome(workflow=1, arrival_ms=0.0), outcome(workflow=1))
    assert whole.rows_per_batch == (1 * 2 + 2 * 3) / 10


def test_requests_of_the_warm_up_do_not_count():
    """They are shown while there are no others, and reported separately."""
    early = outcome(arrival_ms=999.9, latency_ms=200.0)
    begun, whole = summary(early), summary(early, outcome())
    assert "0.0 % of 1 requests in SLO while pods start" in state_line(begun, 0)
    assert "100.0 % of 1 requests in SLO, 0 in progress" in state_line(whole, 0)
    assert "while the first pods started: 0.0 % of 1 requests" in "\n".join(summary_lines(whole))
    assert (whole.as_json()["warm_up"]["hits"], whole.as_json()["total"]["hits"]) == (0, 1)


def test_pods_cost_what_they_hold_over_time():
    """Shares and vCPUs, idle or not, from one update to the next."""
    prices = Prices()
    usage = PodUsage(prices)
    pods = [pod("f", 28), pod("f", 28), pod("g", 50, cpu=4)]
    usage.update(pods, 100.0)
    usage.update(pods[:1], 110.0)
    usage.update([], 130.0)
    assert usage.reserved_s == pytest.approx(1.06 * 10 + 0.28 * 20)
    per_second = [
        prices.request_cost_dollars(1000.0, cpu, percent, 1, "A100")
        for cpu, percent in ((2, 28), (4, 50))
    ]
    assert usage.dollars == pytest.approx(40 * per_second[0] + 10 * per_second[1])


def test_slices_are_set_aside_and_their_members_are_not():
    """A member takes of the slice that its namespace's holder has, and only while it runs."""
    holder = pod("", 70, cpu=8, uid="1", pool="holder")
    members = [pod("f", 50, uid="2", pool="member"), pod("f", 50, uid="3", pool="member")]
    alone, together = PodUsage(Prices()), PodUsage(Prices())
    for usage, pods in ((alone, [holder]), (together, [holder, *members])):
        usage.update(pods, 0.0)
        usage.update([], 10.0)
    assert together.reserved_s == alone.reserved_s == pytest.approx(7.0)
    assert together.dollars == alone.dollars > 0.0
    assert (together.started, together.ended) == (3, 3)
    together.update([holder, *members], 11.0)
    assert pod_lines(together.pods) == [
        f"  {'f':20} 50 % GPU, 2 vCPU: 2 starting",
        f"  {'slices':20} 70 % GPU, 8 vCPU: 1 starting",
    ]


def test_pods_are_counted_by_share_and_state():
    """From their creation on; those that have had a node are started, and ended when they go."""
    usage = PodUsage(Prices())
    ready = {"conditions": [{"type": "Ready", "status": "True"}]}
    pods = [
        {"metadata": {"labels": {LABEL_FUNCTION: "f"}}},
        pod("f", 28, uid="a"),
        pod("f", 28, uid="b") | {"status": ready},
        pod("f", 28, uid="c", deletionTimestamp="2026-01-01T00:00:00Z") | {"status": ready},
    ]
    usage.update(pods, 0.0)
    assert usage.pods == {
        PodKind("f", 0, 0, "waiting"): 1,
        PodKind("f", 2, 28, "starting"): 1,
        PodKind("f", 2, 28, "ready"): 1,
        PodKind("f", 2, 28, "ending"): 1,
    }
    assert pod_lines(usage.pods) == [
        f"  {'f':20} no node: 1 waiting; 28 % GPU, 2 vCPU: 1 ending, 1 ready, 1 starting"
    ]
    usage.update(pods[:3], 1.0)
    assert (usage.started, usage.ended) == (3, 1)


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


@pytest.mark.parametrize(
    ("ratios", "text"),
    [
        ((0.012, 0.345), "extender's main thread waited 1.2 % of the time for a core, the"),
        ((0.012, 0.345), "the gateway's 34.5 %"),
        ((None, None), "extender and gateway: it is not known how long they waited for a core"),
    ],
)
def test_waits_for_a_core_are_in_the_summary(ratios, text):
    """They are not known where the kernel does not count them, and do not suppress the hit rate."""
    whole = replace(summary(outcome()), core_wait_ratios=ratios)
    assert text in "\n".join(summary_lines(whole))
    fields = whole.as_json()
    assert (fields["extender_core_wait_ratio"], fields["gateway_core_wait_ratio"]) == ratios
    assert whole.kept_up


def test_a_run_without_requests_is_shown():
    """Before the first answer there is nothing to divide by."""
    empty = summary(runs=RUNS | {"runs": 0, "pods": 0})
    assert "- of 0 requests" in state_line(empty, 0)
    assert empty.as_json()["total"]["p50_ms"] is None
