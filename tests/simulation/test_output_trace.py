"""trace.json: what tools that read Chrome traces are shown."""

import json
from collections import defaultdict
from contextlib import closing
from itertools import pairwise

import pytest

from scheduler.model.catalogue import Catalogue
from tests.simulation.harness import Listed, Poisson, quiet, run
from workbench.profiles.builders import profile, workflow
from workbench.simulation.engine import simulate
from workbench.simulation.loop import Observers
from workbench.simulation.output.chrome_trace import ChromeTrace

CHAIN = Catalogue.of(
    [
        workflow([[], [0]], slo_ms=100.0),
        *(
            profile(name, [(b, 1, 40, 20 * b**0.6) for b in (1, 2)], cold_start_ms=30, output_mib=5)
            for name in ("f0", "f1")
        ),
    ]
)


@pytest.fixture(scope="module")
def recording():
    """A run from an empty cluster, so that there are starts and transfers too."""
    scenario = quiet(nodes=3, warm_containers=0, noise_ratio=0.1)
    return run(scenario, CHAIN, Poisson(6.0, seed=1), "exact", requests=300)


def traced(recording, path, requests):
    """The trace as a run writes it: spans when they begin, requests when they end."""
    moments = [(span.begin_ms, 1, span) for span in recording.spans]
    moments += [(record.end_ms, 0, record) for record in recording.requests]
    with closing(ChromeTrace(path, ["default/w"], requests)) as trace:
        for _, kind, item in sorted(moments, key=lambda moment: moment[:2]):
            (trace.add_run if kind else trace.end_request)(item)
    return json.loads(path.read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def trace(recording, tmp_path_factory):
    return traced(recording, tmp_path_factory.mktemp("trace") / "trace.json", 10_000)


def of_phase(trace, phase):
    return [event for event in trace["traceEvents"] if event["ph"] == phase]


def test_every_run_is_a_slice(recording, trace):
    """With the numbers of its configuration, on the GPU and in the container where it ran."""
    slices = [event for event in of_phase(trace, "X") if event["cat"] == "execute"]
    names = {e["pid"]: e["args"]["name"] for e in of_phase(trace, "M") if "tid" not in e}
    assert len(slices) == recording.result.runs
    for event, span in zip(slices, recording.spans, strict=True):
        assert event["ts"] == pytest.approx(1000 * span.execute_ms, abs=1e-3)
        assert event["dur"] == pytest.approx(1000 * (span.end_ms - span.execute_ms), abs=2e-3)
        assert event["name"] == span.stage
        assert event["tid"] == span.container
        assert names[event["pid"]] == f"{span.node} {span.gpu}"
        assert event["args"]["gpu_percent"] == span.gpu_percent
        assert event["args"]["jobs"] == span.jobs
    assert {event["cat"] for event in of_phase(trace, "X")} == {"start", "transfer", "execute"}


def test_a_container_does_one_thing_at_a_time(trace):
    """Its slices follow one another, or a viewer would nest them."""
    by_container = defaultdict(list)
    for event in of_phase(trace, "X"):
        by_container[event["pid"], event["tid"]].append((event["ts"], event["ts"] + event["dur"]))
    for slices in by_container.values():
        slices.sort()
        for (_, end), (begin, _) in pairwise(slices):
            assert begin >= end - 1e-2


def test_the_shares_shown_fit_on_their_gpu(trace):
    """At every moment at most 100 percent, and none at the end."""
    shares = defaultdict(list)
    for event in of_phase(trace, "C"):
        shares[event["pid"]].append((event["ts"], event["args"]["percent"]))
    for held in shares.values():
        assert held == sorted(held, key=lambda item: item[0])
        assert max(percent for _, percent in held) <= 100
        assert held[-1][1] == 0


def test_shares_are_those_of_each_moment_where_runs_are_known_at_their_end(tmp_path):
    """On stations a run that another one outlasts comes first."""
    catalogue = Catalogue.of(
        document
        for name, time_ms in (("long", 10.0), ("short", 3.0))
        for document in (
            workflow([[]], name=name, slo_ms=100.0, functions=[name]),
            profile(name, [(1, 1, 50, time_ms)]),
        )
    )
    file = tmp_path / "trace.json"
    arrivals = Listed([0.0, 5.0], [0, 1], tuple(catalogue.workflows))
    with closing(ChromeTrace(file, ["long", "short"], 1)) as trace:
        observers = Observers(on_request=trace.end_request, on_span=trace.add_run)
        simulate(quiet(), catalogue, arrivals, "sgprs", observers=observers)
    shares = of_phase(json.loads(file.read_text(encoding="utf-8")), "C")
    assert [(event["ts"] / 1000, event["args"]["percent"]) for event in shares] == [
        (0.0, 50),
        (5.0, 100),
        (8.0, 50),
        (10.0, 0),
    ]


def test_requests_are_spans_from_arrival_to_end(recording, trace):
    begins, ends = of_phase(trace, "b"), of_phase(trace, "e")
    assert [event["id"] for event in begins] == [record.number for record in recording.requests]
    for begin, end, record in zip(begins, ends, recording.requests, strict=True):
        assert end["id"] == begin["id"]
        assert begin["ts"] == pytest.approx(1000 * record.arrival_ms, abs=1e-3)
        assert end["ts"] == pytest.approx(1000 * record.end_ms, abs=1e-3)
        assert begin["args"]["outcome"] == record.outcome


def test_it_ends_with_so_many_requests_and_says_so(recording, tmp_path):
    """Runs that began by then are complete; the rest is missing."""
    trace = traced(recording, tmp_path / "trace.json", 20)
    assert len(of_phase(trace, "b")) == 20
    last_ms = recording.requests[19].end_ms
    begun = sum(span.begin_ms < last_ms for span in recording.spans)
    shown = [event for event in of_phase(trace, "X") if event["cat"] == "execute"]
    assert len(shown) == begun < len(recording.spans)
    assert trace["otherData"]["shows"] == "what began before 20 requests had ended"
