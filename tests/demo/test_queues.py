"""Parts of the demo: arrivals, queues, summaries."""

import pytest

from scheduler.model.documents import Workflow
from workbench.demo.engine import DemoEngine
from workbench.demo.requests import DemoJob, DemoRequest, DemoWorkflow, PodQueue
from workbench.demo.runner import demo_arrivals
from workbench.demo.summary import total_of
from workbench.simulation.workloads.paper import GAPS_MS

WORKFLOW = Workflow.model_validate(
    {
        "metadata": {"name": "w", "namespace": "n"},
        "spec": {
            "slo": {"latencyMs": 500},
            "stages": [
                {"name": "a", "function": "f"},
                {"name": "b", "function": "f", "after": ["a"]},
                {"name": "c", "function": "f", "after": ["a"]},
            ],
        },
    }
)


def job(arrival_ms, workflow=None):
    """A request at its first stage."""
    request = DemoRequest(0, workflow or DemoWorkflow(WORKFLOW), arrival_ms)
    return DemoJob(request, arrival_ms + request.slo_ms)


def queue(*arrivals_ms):
    pods = PodQueue(WORKFLOW, 0)
    for arrival_ms in arrivals_ms:
        pods.add(job(arrival_ms))
    return pods


@pytest.mark.parametrize("load", GAPS_MS)
def test_requests_arrive_at_the_loads_intervals(load):
    """In order, within the shortest and longest interval, the same for the same seed."""

    def times_ms():
        arrivals = demo_arrivals([WORKFLOW], load, seconds=5, seed=1, began_ms=100_000.0)
        return [time_ms for time_ms, _ in arrivals]

    arrivals_ms = times_ms()
    shortest_ms, longest_ms = GAPS_MS[load]
    for before_ms, after_ms in zip([100_000.0, *arrivals_ms], arrivals_ms, strict=False):
        assert shortest_ms <= after_ms - before_ms + 1e-6
        assert after_ms - before_ms <= longest_ms + 1e-6
    assert arrivals_ms[-1] < 105_000 <= arrivals_ms[-1] + longest_ms
    assert arrivals_ms == times_ms()


def test_a_request_walks_through_its_stages():
    """A stage is ready once, when its predecessors have succeeded; the last one ends the walk."""
    workflow = DemoWorkflow(WORKFLOW)
    request = DemoRequest(1, workflow, 1_000.0)
    assert workflow.graph.entries == [0]
    assert request.finish(0) == [1, 2]
    assert request.finish(1) == []
    assert request.unfinished == 1
    assert not request.hit
    assert request.finish(2) == []
    assert request.unfinished == 0
    request.ended_ms, request.reported_ms = 1_499.9, 1_510.0
    assert request.hit
    assert not request.hit_when_reported


def test_the_pod_of_a_queue_is_for_its_oldest_request():
    """Its label and its arrival are the oldest's, with the number of requests that wait."""
    pods = PodQueue(WORKFLOW, 0)
    workflow = DemoWorkflow(WORKFLOW)
    for number, arrival_ms in ((3, 3_000.0), (1, 1_000.0), (2, 2_000.0)):
        request = DemoRequest(number, workflow, arrival_ms)
        pods.add(DemoJob(request, arrival_ms + request.slo_ms))
    pods.create_pod()
    metadata = pods.pod()["metadata"]
    assert metadata["labels"]["esg-scheduler.io/request"] == "request-00001"
    assert metadata["annotations"] == {
        "esg-scheduler.io/arrival": "1970-01-01T00:00:01.000000+00:00",
        "esg-scheduler.io/queued": "3",
    }


def test_a_batch_is_the_leader_and_the_next_oldest():
    """A request that came after the pod and is older waits for the next pod."""
    pods = queue(2_000.0, 3_000.0, 4_000.0)
    pods.create_pod()
    pods.add(job(1_000.0))
    assert [served.request.arrival_ms for served in pods.take_batch(2)] == [2_000.0, 3_000.0]
    assert [waiting.request.arrival_ms for waiting in pods.jobs] == [1_000.0, 4_000.0]
    assert pods.leader is None


def test_a_request_that_is_too_late_already_is_no_hit():
    """The ratio counts requests that ended, and those whose SLO has passed; no others."""
    engine = DemoEngine(None, [], [WORKFLOW], None, 0)
    (workflow,) = engine.workflows
    ended, late, young = (job(arrival_ms, workflow) for arrival_ms in (0.0, 100.0, 900.0))
    ended.request.ended_ms = 400.0
    workflow.tally.end(ended, 400.0)
    engine.requests = [ended.request, late.request, young.request]
    total = total_of(engine, 1_000.0)
    assert (total.arrived, total.ended.requests, total.ended.hits) == (3, 1, 1)
    assert total.hit_ratio == 0.5
    assert total.as_json()["p50_over_slo"] == pytest.approx(0.8, abs=0.005)
