"""The demo's own parts: arrivals, queues, figures."""

import random

import pytest

from scheduler.model.documents import Workflow
from workbench.demo.arrivals import Load, arrivals
from workbench.demo.figures import figures, percentile
from workbench.demo.requests import DemoRequest, Queue

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


def request(arrived: float) -> DemoRequest:
    return DemoRequest(f"r{arrived:g}", WORKFLOW, arrived)


def queue(*arrived: float) -> Queue:
    made = Queue(WORKFLOW, "a")
    for each in arrived:
        made.add(request(each), each)
    return made


@pytest.mark.parametrize("load", Load)
def test_requests_arrive_at_the_loads_intervals(load):
    """In order, within the shortest and longest interval, the same for the same seed."""

    def times() -> list[float]:
        rng = random.Random(1)
        made = arrivals([WORKFLOW], load, start=100, seconds=5, rng=rng)
        return [each.arrived for each in made]

    arrived = times()
    shortest_ms, longest_ms = load.interval_ms
    for before, after in zip([100, *arrived], arrived, strict=False):
        assert shortest_ms <= (after - before) * 1000 + 1e-6 <= longest_ms + 1e-6
    assert arrived[-1] < 105 <= arrived[-1] + longest_ms / 1000
    assert arrived == times()


def test_a_request_walks_through_its_stages():
    """A stage is ready once, when what comes before it has succeeded; the last ends it."""
    walking = request(1.0)
    assert [stage.name for stage in walking.ready_stages()] == ["a"]
    assert walking.ready_stages() == []
    walking.succeed("a", 1.1, 1.1)
    assert [stage.name for stage in walking.ready_stages()] == ["b", "c"]
    walking.succeed("b", 1.2, 1.2)
    assert walking.ended is None
    walking.succeed("c", 1.4999, 1.51)
    assert walking.hit
    assert not walking.hit_when_told


def test_the_pod_of_a_queue_is_for_its_oldest_request():
    """Its label and its arrival are the oldest's, and it tells how many wait."""
    waiting = queue(3.0, 1.0, 2.0)
    waiting.create_pod()
    metadata = waiting.pod()["metadata"]
    assert metadata["labels"]["esg-scheduler.io/request"] == "r1"
    assert metadata["annotations"] == {
        "esg-scheduler.io/arrival": "1970-01-01T00:00:01.000000+00:00",
        "esg-scheduler.io/queued": "3",
    }


def test_a_batch_is_the_leader_and_the_next_oldest():
    """Who came after the pod and is older waits for the next one."""
    waiting = queue(2.0, 3.0, 4.0)
    waiting.create_pod()
    waiting.add(request(1.0), 5.0)
    assert [each.request.arrived for each in waiting.take(2)] == [2.0, 3.0]
    assert [each.request.arrived for each in waiting.waiting] == [1.0, 4.0]
    assert waiting.leader is None


def test_a_request_that_is_too_late_already_is_no_hit():
    """The rate counts those that are done, and those whose SLO has passed; no other."""
    done, late, young = request(0.0), request(0.1), request(0.9)
    for stage in ("a", "b", "c"):
        done.succeed(stage, 0.4, 0.4)
    told = figures("w", 500, [done, late, young], now=1.0)
    assert (told.arrived, told.done, told.hits, told.hit_rate) == (3, 1, 1, 0.5)
    assert told.p50_over_slo == pytest.approx(0.8)


@pytest.mark.parametrize(("part", "expected"), [(0.0, 1), (0.5, 2), (0.75, 3), (0.99, 4), (1, 4)])
def test_percentile(part, expected):
    """The least value that so many do not exceed."""
    assert percentile([1, 2, 3, 4], part) == expected
    assert percentile([], part) is None
