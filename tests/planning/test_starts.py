"""Start latency: cold nodes and inputs from other nodes, where the settings enable it."""

from contextlib import ExitStack
from datetime import UTC, datetime

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler.model.documents import to_manifest
from scheduler.model.node import Node
from scheduler.model.pod import function_pod
from scheduler.planning.metrics import Metrics
from scheduler.planning.start_latency import DISTINCT_MAX, start_latencies
from scheduler.planning.state import State
from scheduler.settings import Settings
from tests.examples import examples
from tests.extender.factories import node, pod, profile, workflow
from tests.extender.harness import embedded
from workbench.profiles.builders import graph

# A cheap and slow configuration, and a dear and fast one: the grant shows how much time was left.
CHEAP, FAST = 20, 90
DOCUMENTS = (
    profile("sender", (10, 100), output_mib=100),
    profile("starter", (CHEAP, 400), (FAST, 100), cold_start_ms=300),
    workflow("lone", 500, "starter"),
    workflow("pair", 10_000, "sender", "starter"),
)


@pytest.fixture
def started(clock):
    """Starts a service over two nodes, by these settings."""
    with ExitStack() as services:

        def start(gpus=2, **chosen):
            nodes = [node("n1", gpus), node("n2", gpus)]
            chosen = {"margin_ratio": 0, **chosen}
            service = embedded(nodes=nodes, documents=DOCUMENTS, clock=clock, **chosen)
            return services.enter_context(service)

        yield start


def lone(**options):
    return pod(workflow="lone", stage="starter", **options)


def second(clock, left_s):
    """The second stage of an instance, with the given time left."""
    deadline = datetime.fromtimestamp(clock.now_s + left_s, UTC).isoformat()
    annotations = {"deadline": deadline}
    return pod(workflow="pair", stage="starter", request="r", annotations=annotations)


def send_from(extender, name):
    """Run the first stage of that instance on the node."""
    first = pod(workflow="pair", stage="sender", request="r")
    extender.place(first, name)
    extender.finish(first)


def test_starts_are_not_counted_unless_asked_for(started, clock):
    """By default every node starts every stage at once."""
    extender = started()
    send_from(extender, "n1")
    assert extender.filter(second(clock, 0.4), "n1", "n2")["NodeNames"] == ["n1", "n2"]
    granted = extender.place(lone(), "n2")
    assert (granted["gpu_percent"], granted["plan"]["start_ms"]) == (CHEAP, 0)


def test_a_cold_node_gets_what_makes_up_for_its_start(started):
    """Cold, the function has 200 of 500 ms left; where it ran before it has all of them."""
    extender = started(cold_start=True)
    first = extender.place(lone(), "n1")
    assert (first["gpu_percent"], first["plan"]["start_ms"]) == (FAST, 300)
    again = extender.place(lone(), "n1")
    assert (again["gpu_percent"], again["plan"]["start_ms"]) == (CHEAP, 0)


def test_a_cold_node_counts_with_the_slow_starts(clock):
    """The plan leaves the time that 95 % of the starts need."""
    starter = profile("starter", (CHEAP, 400), (FAST, 100), cold_start_ms=50, cold_start_p95_ms=300)
    documents = [starter, workflow("lone", 500, "starter")]
    with embedded(
        nodes=[node("n1")], documents=documents, clock=clock, margin_ratio=0, cold_start=True
    ) as extender:
        granted = extender.place(lone(), "n1")
    assert (granted["gpu_percent"], granted["plan"]["start_ms"]) == (FAST, 300)


def test_the_warm_node_decides_while_it_has_room(started):
    """The reason of the cold node is its start; when the warm one is full, the cold one passes."""
    extender = started(cold_start=True)
    extender.place(lone(), "n1")
    answer = extender.filter(lone(), "n1", "n2")
    assert answer["NodeNames"] == ["n1"]
    assert answer["FailedNodes"] == {"n2": "starts this function in 300 ms, 100 ms are left for it"}
    for _ in range(5):
        extender.place(lone(), "n1")
    answer = extender.filter(lone(), "n1", "n2")
    assert answer["NodeNames"] == ["n2"]
    assert "free, 90 percent asked" in answer["FailedNodes"]["n1"]


def test_a_pod_that_serves_at_a_rate_starts_once(started):
    """A long-lived pod's start is not part of its requests' time, so nothing counts."""
    extender = started(cold_start=True)
    granted = extender.place(lone(annotations={"rate": "2"}), "n1")
    assert (granted["gpu_percent"], granted["plan"]["start_ms"]) == (CHEAP, 0)


def test_a_node_grows_cold(started, clock):
    """ESG_KEEP_ALIVE_S after the function last ran, a node starts it from the beginning."""
    extender = started(cold_start=True, keep_alive_s=60)
    first = lone()
    extender.place(first, "n1")
    extender.finish(first)
    clock.now_s += 61
    extender.on_loop(extender.service.state.tracker.expire, clock.now_s)
    assert extender.place(lone(), "n1")["gpu_percent"] == FAST


def test_no_pod_waits_for_a_warm_node_while_a_cold_one_is_free(started, clock):
    """Its SLO is lost on the cold node, as its plan says; kube-scheduler might not retry soon."""
    extender = started(gpus=1, cold_start=True)
    extender.place(lone(), "n1")
    while (grown := extender.filter(lone(), "n1"))["NodeNames"]:
        extender.place(lone(), "n1")
    deadline = datetime.fromtimestamp(clock.now_s + 0.25, UTC).isoformat()
    late = lone(annotations={"deadline": deadline})
    assert "n1" in grown["FailedNodes"]
    assert extender.filter(late, "n1", "n2")["NodeNames"] == ["n2"]
    granted = extender.place(late, "n2")
    assert not granted["plan"]["feasible"]
    assert granted["plan"]["message"].startswith("the SLO is lost")


def test_evicting_does_not_help_where_the_start_alone_is_too_long(started, clock):
    """No candidate has time for a cold start: eviction on the cold node does not help."""
    extender = started(cold_start=True)
    extender.place(lone(), "n1")
    deadline = datetime.fromtimestamp(clock.now_s + 0.15, UTC).isoformat()
    answer = extender.filter(lone(annotations={"deadline": deadline}), "n1", "n2")
    assert answer["NodeNames"] == ["n1"]
    assert answer["FailedAndUnresolvableNodes"] == {
        "n2": "starts this function in 300 ms, 50 ms are left for it"
    }


def test_a_lost_slo_is_bound_on_any_node(started, clock):
    """When no node starts in time, cold ones are feasible too, and the plan says why it is late."""
    extender = started(cold_start=True)
    deadline = datetime.fromtimestamp(clock.now_s + 0.25, UTC).isoformat()
    plan = extender.place(lone(annotations={"deadline": deadline}), "n2")["plan"]
    assert (plan["feasible"], plan["start_ms"], plan["path_ms"]) == (False, 300, 700)
    assert plan["message"] == (
        "the SLO is lost: 250.0 ms left, and the fastest completion takes 400.0 ms; "
        "the cheapest come first"
    )


def test_the_input_is_at_the_predecessors_node(started, clock):
    """100 MiB take 100 ms to any other node, and none to the one that wrote them."""
    extender = started(network_mib_per_s=1_000)
    send_from(extender, "n2")
    answer = extender.filter(second(clock, 0.45), "n1", "n2")
    assert answer["NodeNames"] == ["n2"]
    assert answer["FailedNodes"] == {"n1": "starts this function in 100 ms, 50 ms are left for it"}


def test_bind_counts_the_nodes_own_start(started, clock):
    """The grant fits the node of the bind call, whichever node decided at filter."""
    extender = started(network_mib_per_s=1_000)
    send_from(extender, "n2")
    extender.filter(pending := second(clock, 0.45), "n1", "n2")
    assert extender.bind(pending, "n1") == ""
    granted = extender.explain(pending)["granted"]
    assert (granted["gpu_percent"], granted["plan"]["start_ms"]) == (FAST, 100)


def test_an_input_from_nobody_knows_where_is_not_counted(started):
    """Without the label of the instance, the node of its first stage is unknown."""
    extender = started(network_mib_per_s=1_000)
    send_from(extender, "n2")
    pending = pod(workflow="pair", stage="starter")
    assert extender.filter(pending, "n1", "n2")["NodeNames"] == ["n1", "n2"]


def test_victims_make_room_for_what_the_node_starts_in_time(started):
    """On a cold node the cheap configuration would fit next to the others, and finish too late."""
    extender = started(gpus=1, cold_start=True)
    extender.place(lone(), "n1")
    for _ in range(2):
        extender.place(pod("sender"), "n2")
    question = {"NodeNameToMetaVictims": {"n1": {"Pods": []}, "n2": {"Pods": []}}}
    answer = extender.post("preempt", {"Pod": lone(priority=10)} | question)
    evicted = {n: len(victims["Pods"]) for n, victims in answer["NodeNameToMetaVictims"].items()}
    assert evicted == {"n1": 1, "n2": 1}


def test_a_plan_for_no_node_in_particular_takes_the_soonest(started):
    """At admission the ceilings are those of the node that starts the stage soonest."""
    extender = started(cold_start=True)
    planned = function_pod(lone())
    planner = extender.service.planning.planner

    def percents():
        plan = extender.on_loop(planner.plan, planned)
        return [c.configuration.gpu_percent for c in plan.candidates]

    assert percents() == [FAST]
    extender.place(lone(), "n2")
    assert percents() == [CHEAP, FAST]


NAMES = [f"n{i}" for i in range(6)]


@examples(100)
@given(
    outputs=st.lists(st.sampled_from([0, 0.5, 1, 3, 7, 100]), max_size=5),
    places=st.lists(st.sampled_from([*NAMES, "gone"]), min_size=5, max_size=5),
    warm=st.sets(st.sampled_from(NAMES)),
    names=st.lists(st.sampled_from([*NAMES, "ghost"]), unique=True),
    cold_ms=st.sampled_from([0, 0.3, 2_300]),
)
def test_the_start_of_each_node(outputs, places, warm, names, cold_ms):
    """At least what it takes, in whole ms; the few lengths planned for are least and most of all.

    Each length is a search, so with many only some are kept, and none is shortened.
    """
    stages = [f"s{i}" for i in range(len(outputs))]
    documents = [profile("join", (10, 100), cold_start_ms=cold_ms)]
    documents += [profile(f"f{i}", (10, 100), output_mib=mib) for i, mib in enumerate(outputs)]
    whole = graph({s: [f"f{i}"] for i, s in enumerate(stages)} | {"join": ["join", *stages]})
    state = State(Settings(cold_start=True, network_mib_per_s=10), Metrics())
    state.documents.workflows.replace([to_manifest(whole)])
    state.documents.profiles.replace(to_manifest(document) for document in documents)
    for name in NAMES:
        state.ledger.set_node(Node(name, (), 0))

    def ran(name, **labels):
        raw = pod(**labels)
        raw["spec"]["nodeName"] = name
        state.tracker.observe(
            raw, read := function_pod(raw), state.documents.function_of(read), 0, live=True
        )

    for stage, place in zip(stages, places, strict=False):
        ran(place, workflow="w", stage=stage, request="r")
    for name in warm:
        ran(name, function="join")

    exact = [
        (0 if name in warm else cold_ms)
        + sum(100 * mib for mib, place in zip(outputs, places, strict=False) if place != name)
        for name in names
    ]
    pending = function_pod(pod(workflow="w", stage="join", request="r"))
    latencies = start_latencies(state, pending, state.ledger.fleet.rows(names))
    node_ms = [latencies.at_ms(i) for i in range(len(names))]

    assert sorted(set(node_ms) | {latencies.distinct_ms[0]}) == list(latencies.distinct_ms)
    assert 1 <= len(latencies.distinct_ms) <= DISTINCT_MAX
    for exact_ms, rounded_ms in zip(exact, node_ms, strict=True):
        assert exact_ms - 1e-6 <= rounded_ms
    if names:
        assert latencies.distinct_ms[0] == pytest.approx(np.ceil(np.round(min(exact), 6)))
        assert latencies.distinct_ms[-1] == pytest.approx(np.ceil(np.round(max(exact), 6)))
        if len({*np.ceil(np.round(exact, 6))}) <= DISTINCT_MAX:
            assert node_ms == pytest.approx(np.ceil(np.round(exact, 6)))
