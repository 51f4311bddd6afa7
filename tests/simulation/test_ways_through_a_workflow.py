"""Requests on their way: stages, joins, transfers, batches; every time by hand."""

from math import inf

import pytest

from scheduler.model.catalogue import Catalogue
from scheduler.placement.options import Limits
from tests.simulation.harness import Fixed, Listed, quiet, run
from workbench.profiles.builders import profile, workflow

WHOLE = [(1, 1, 100, 10)]
HALF = [(1, 1, 50, 10)]


def chain(*profiles, slo_ms=1_000.0):
    after = [[i - 1] if i else [] for i in range(len(profiles))]
    return Catalogue.of([workflow(after, slo_ms=slo_ms), *profiles])


def test_a_chain_takes_the_sum_of_its_stages():
    catalogue = chain(profile("f0", [(1, 1, 50, 10)]), profile("f1", [(1, 1, 50, 30)]))
    recording = run(quiet(), catalogue, Listed([5.0]))
    (record,) = recording.requests
    assert (record.arrival_ms, record.end_ms, record.outcome) == (5.0, 45.0, "hit")
    assert record.execute_ms == 40.0
    assert [(span.stage, span.begin_ms, span.end_ms) for span in recording.spans] == [
        ("s0", 5.0, 15.0),
        ("s1", 15.0, 45.0),
    ]


def test_a_join_waits_for_the_last_of_its_predecessors():
    """s0, then s1 and s2 side by side, then s3; the phases are those of the longer way."""
    after = [[], [0], [0], [1, 2]]
    profiles = [profile(f"f{i}", [(1, 1, 25, ms)]) for i, ms in enumerate((10, 20, 50, 5))]
    catalogue = Catalogue.of([workflow(after), *profiles])
    recording = run(quiet(), catalogue, Listed([0.0]))
    assert [(span.stage, span.begin_ms) for span in recording.spans] == [
        ("s0", 0.0),
        ("s1", 10.0),
        ("s2", 10.0),
        ("s3", 60.0),
    ]
    (record,) = recording.requests
    assert record.end_ms == 65.0
    assert record.execute_ms == 65.0


def test_a_request_ends_with_the_last_of_several_exits():
    profiles = [profile(f"f{i}", [(1, 1, 25, ms)]) for i, ms in enumerate((10, 80, 20))]
    catalogue = Catalogue.of([workflow([[], [0], [0]]), *profiles])
    (record,) = run(quiet(), catalogue, Listed([0.0])).requests
    assert record.end_ms == 90.0


def test_several_entries_begin_at_once():
    profiles = [profile(f"f{i}", [(1, 1, 25, 10)]) for i in range(3)]
    catalogue = Catalogue.of([workflow([[], [], [0, 1]]), *profiles])
    recording = run(quiet(), catalogue, Listed([0.0]))
    assert [span.begin_ms for span in recording.spans] == [0.0, 0.0, 10.0]


def test_a_full_gpu_lets_the_next_request_wait():
    recording = run(quiet(), chain(profile("f0", WHOLE)), Listed([0.0, 4.0]))
    first, second = recording.requests
    assert first.end_ms == 10.0
    assert (second.queue_ms, second.end_ms) == (6.0, 20.0)
    assert recording.result.placement_failures == 1


def test_a_gpu_is_shared_up_to_its_whole():
    recording = run(quiet(warm_containers=3), chain(profile("f0", HALF)), Listed([0.0, 0.0, 0.0]))
    assert [span.begin_ms for span in recording.spans] == [0.0, 0.0, 10.0]


def test_a_late_request_is_a_miss_and_its_time_is_told():
    recording = run(quiet(), chain(profile("f0", WHOLE), slo_ms=12.0), Listed([0.0, 0.0]))
    assert [record.outcome for record in recording.requests] == ["hit", "miss"]
    assert recording.result.missed.queue_ms == 10.0
    assert recording.result.missed.execute_ms == 10.0


def test_room_goes_to_the_most_urgent_queue():
    """Both wait for the GPU; the one whose deadline is nearer is not the one that came first."""
    catalogue = Catalogue.of(
        [
            workflow([[]], name="slow", slo_ms=900, functions=["f0"]),
            workflow([[]], name="fast", slo_ms=90, functions=["f0"]),
            profile("f0", WHOLE),
        ]
    )
    keys = (("default", "slow"), ("default", "fast"))
    recording = run(quiet(), catalogue, Listed([0.0, 1.0, 2.0], [0, 0, 1], keys))
    assert [(span.workflow, span.begin_ms) for span in recording.spans] == [
        (0, 0.0),
        (1, 10.0),
        (0, 20.0),
    ]


class BatchesOfFour(Fixed):
    """The second configuration of the profile: four at once."""

    choice = {"s0": 1}  # noqa: RUF012


def test_a_batch_takes_what_waits_and_no_more_than_it_holds():
    """One runs; five wait; four of them run together; a part takes the time of its own size."""
    profiled = profile("f0", [(1, 1, 100, 10), (4, 1, 100, 16)])
    recording = run(quiet(), chain(profiled), Listed([0.0] * 6), BatchesOfFour)
    assert [(span.batch, span.jobs, span.begin_ms) for span in recording.spans] == [
        (4, 1, 0.0),
        (4, 4, 10.0),
        (4, 1, 26.0),
    ]
    costs = [record.cost_dollars for record in recording.requests]
    assert costs[1] == pytest.approx(costs[0] * 1.6 / 4)


def two_models(output_mib):
    """The second stage runs on the other node's GPU alone."""
    return chain(profile("f0", {"a": WHOLE}, output_mib=output_mib), profile("f1", {"b": WHOLE}))


@pytest.mark.parametrize(("bandwidth_mib_s", "transfer_ms"), [(100.0, 50.0), (inf, 0.0)])
def test_input_on_another_node_takes_its_time(bandwidth_mib_s, transfer_ms):
    scenario = quiet(nodes=2, gpu_models=("a", "b"), bandwidth_mib_s=bandwidth_mib_s)
    (record,) = run(scenario, two_models(5.0), Listed([0.0])).requests
    assert record.transfer_ms == transfer_ms
    assert record.end_ms == 20.0 + transfer_ms


def test_input_on_the_same_node_takes_none():
    """The predecessor's node is taken, although another one is empty too."""
    catalogue = chain(profile("f0", HALF, output_mib=5.0), profile("f1", HALF))
    recording = run(quiet(nodes=2), catalogue, Listed([0.0]))
    assert recording.spans[0].node == recording.spans[1].node
    assert recording.requests[0].transfer_ms == 0.0


def test_each_of_a_batch_brings_its_own_input():
    """Three outputs come over one network; the first stage runs them one by one."""
    catalogue = chain(
        profile("f0", {"a": [(1, 1, 30, 10)]}, output_mib=5.0),
        profile("f1", {"b": [(4, 1, 100, 10)]}),
    )
    scenario = quiet(nodes=2, gpu_models=("a", "b"), bandwidth_mib_s=100.0, warm_containers=3)
    recording = run(scenario, catalogue, Listed([0.0, 5.0, 6.0, 7.0]))
    second = [(span.jobs, span.transfer_ms) for span in recording.spans if span.stage == "s1"]
    assert second == [(1, 50.0), (3, 150.0)]


def test_neighbours_slow_a_run_down_by_what_they_hold():
    """Half of the GPU is held by another run when the second begins; none when the first does."""
    scenario = quiet(interference_ratio=0.2, warm_containers=2)
    recording = run(scenario, chain(profile("f0", HALF)), Listed([0.0, 1.0]))
    assert [span.end_ms - span.begin_ms for span in recording.spans] == pytest.approx([10.0, 11.0])


def test_what_waits_too_long_is_dropped():
    """Twice the SLO after its arrival; seen when the queue is looked at."""
    catalogue = chain(profile("f0", [(1, 1, 100, 100)]), slo_ms=40.0)
    recording = run(quiet(give_up_factor=2.0), catalogue, Listed([0.0, 1.0, 30.0]))
    assert [(record.number, record.outcome) for record in recording.requests] == [
        (0, "miss"),
        (1, "dropped"),
        (2, "miss"),
    ]
    assert recording.result.dropped == 1
    assert recording.result.hit_ratio == 0.0


def test_a_request_that_is_dropped_on_one_branch_ends_there():
    """While s1 runs, s2 wants the whole GPU and is given up; the end of s1 is nothing more."""
    catalogue = Catalogue.of(
        [
            workflow([[], [0], [0]], slo_ms=100.0),
            workflow([[]], name="other", functions=["f3"]),
            profile("f0", HALF),
            profile("f1", [(1, 1, 50, 500)]),
            profile("f2", WHOLE),
            profile("f3", [(1, 1, 10, 5)]),
        ]
    )
    keys = (("default", "w"), ("default", "other"))
    recording = run(quiet(give_up_factor=1.0), catalogue, Listed([0.0, 200.0], [0, 1], keys))
    assert [(r.number, r.outcome, r.end_ms) for r in recording.requests] == [
        (1, "hit", 205.0),
        (0, "dropped", 205.0),
    ]


def test_nothing_that_can_happen_any_more_helps():
    """A function that the free clients never suffice for: its requests are dropped at the end."""
    scenario = quiet(limits=Limits(clients_max=0), warm_containers=0)
    recording = run(scenario, chain(profile("f0", WHOLE)), Listed([0.0, 3.0]))
    assert [record.outcome for record in recording.requests] == ["dropped", "dropped"]
    assert recording.result.runs == 0
