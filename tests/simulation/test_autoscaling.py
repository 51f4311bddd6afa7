"""Policies that keep containers: what is kept holds its share, run or no run."""

import pytest

from scheduler.model.catalogue import Catalogue
from tests.simulation.harness import Listed, one_function, quiet, run
from workbench.profiles.builders import GPU, profile, workflow
from workbench.simulation.containers.configurations import anywhere, configurations_of
from workbench.simulation.errors import PolicyError
from workbench.simulation.policy import Policy

ROWS = [(1, 1, 20, 10), (4, 1, 50, 40)]
DOLLARS_HOUR = 0.034 + 0.2 * 4.69  # of the first configuration


class Keeps(Policy):
    """Keeps the class's number of containers of the first configuration, by time."""

    name = "keeps"
    autoscales = True
    rescale_ms = 1_000.0
    plan = ((0.0, 2),)

    def __init__(self, world):
        super().__init__(world)
        self.seen = []
        type(self).last = self

    def first(self, key):
        return configurations_of(self.context.profile(key).spec.gpus[0])[0]

    def candidates(self, question):
        return [anywhere(self.first(question.key), GPU)]

    def desired_containers(self, now_ms, demand):
        self.seen.append((now_ms, *demand.items()))
        count = [count for since_ms, count in self.plan if since_ms <= now_ms][-1]
        return {key: {self.first(load.queues[0]): count} for key, load in demand.items()}


def catalogue():
    return one_function(ROWS, cold_start_ms=100.0)


def test_a_kept_container_starts_once_and_serves_until_it_is_stopped():
    """The first jobs wait for its cold start; it is the policy's, not the requests'."""
    recording = run(quiet(warm_containers=0), catalogue(), Listed([0.0, 0.0, 0.0, 500.0]), Keeps)
    assert [(span.begin_ms, span.start_ms) for span in recording.spans] == [
        (100.0, 0.0),
        (100.0, 0.0),
        (110.0, 0.0),
        (500.0, 0.0),
    ]
    assert recording.result.cold_starts == 2
    assert recording.result.prewarmed == 0
    assert len({span.container for span in recording.spans}) == 2


def test_what_is_kept_from_the_start_is_warm_where_everything_is():
    """They are warm like other containers; a cluster that begins empty begins cold."""
    recording = run(quiet(), catalogue(), Listed([0.0]), Keeps)
    assert [(span.begin_ms, span.start_ms) for span in recording.spans] == [(0.0, 0.0)]


class TwoKinds(Keeps):
    """One container of each kind; the second takes what has waited for 30 ms."""

    name = "two-kinds"

    def both(self, key):
        return configurations_of(self.context.profile(key).spec.gpus[0])

    def candidates(self, question):
        first, second = (anywhere(configuration, GPU) for configuration in self.both(question.key))
        return [first, second] if question.waited_ms >= 30.0 else [first]

    def retry_at_ms(self, question):
        return question.now_ms - question.waited_ms + 30.0

    def desired_containers(self, now_ms, demand):
        return {key: dict.fromkeys(self.both(load.queues[0]), 1) for key, load in demand.items()}


def test_a_time_out_counts_while_all_that_was_named_is_busy():
    """The first kind runs for 100 ms; the second is idle, and takes the job when it is due."""
    slow = one_function([(1, 1, 20, 100), (4, 1, 50, 40)], cold_start_ms=100.0)
    recording = run(quiet(), slow, Listed([200.0, 205.0]), TwoKinds)
    assert [span.begin_ms for span in recording.spans] == [200.0, 235.0]


def test_what_is_kept_idle_is_told_apart_from_the_cost():
    """Two containers for 510 ms, of which four runs of 10 ms each are the cost."""
    recording = run(quiet(), catalogue(), Listed([0.0, 0.0, 0.0, 500.0]), Keeps)
    dollars_ms = DOLLARS_HOUR / 3_600_000
    assert recording.result.ran_dollars == pytest.approx(4 * 10.0 * dollars_ms)
    assert recording.result.idle_dollars == pytest.approx((2 * 510.0 - 40.0) * dollars_ms)
    assert recording.result.gpu_utilisation[0] == pytest.approx(0.4)


class Grows(Keeps):
    """None at first, then three, then one."""

    name = "grows"
    plan = ((0.0, 0), (1_000.0, 3), (2_000.0, 1))


def test_rescaling_starts_and_stops_containers():
    """A job waits for the first rescaling that gives it a container, and its start."""
    recording = run(quiet(), catalogue(), Listed([10.0, 3_500.0]), Grows)
    assert [span.begin_ms for span in recording.spans] == [1_100.0, 3_500.0]
    seen = [[demand for _, demand in queues] for _, *queues in Grows.last.seen]
    assert [demand.queued for (demand,) in seen] == [0, 1, 0, 0]
    assert [demand.rate_rps for (demand,) in seen] == [0.0, 1.0, 0.0, 0.0]
    assert [sum(demand.containers.values()) for (demand,) in seen] == [0, 0, 3, 1]


class Shrinks(Keeps):
    """One for as long as a run is under way, and then none."""

    name = "shrinks"
    plan = ((0.0, 1), (1_000.0, 0), (2_000.0, 1))


def test_a_busy_container_ends_with_its_run():
    """It is stopped at 1,000 ms while it runs, and takes no further job."""
    slow = one_function([(1, 1, 20, 900)], slo_ms=9_000, cold_start_ms=200.0)
    recording = run(quiet(warm_containers=0), slow, Listed([0.0, 0.0]), Shrinks)
    assert [(span.begin_ms, span.end_ms) for span in recording.spans] == [
        (200.0, 1_100.0),
        (2_200.0, 3_100.0),
    ]


class TooMany(Keeps):
    """More than the GPU has room for."""

    name = "too-many"
    plan = ((0.0, 9),)


def test_what_finds_no_room_is_not_started():
    """Five of a fifth each; the policy receives how many it has."""
    recording = run(quiet(), catalogue(), Listed([0.0, 1_500.0]), TooMany)
    (_, demand) = TooMany.last.seen[1][1]
    assert sum(demand.containers.values()) == 5
    assert recording.result.hits == 2


class WaitsForBatches(Keeps):
    """Two jobs at least, or 30 ms after the oldest came."""

    name = "waits"
    plan = ((0.0, 1),)

    def first(self, key):
        return configurations_of(self.context.profile(key).spec.gpus[0])[1]

    def candidates(self, question):
        if question.queued < 2 and question.waited_ms < 30.0:
            return ()
        return super().candidates(question)

    def retry_at_ms(self, question):
        return question.now_ms - question.waited_ms + 30.0


def test_a_queue_is_looked_at_when_it_asked_for_it():
    """A batch fills, or its time-out comes; a filled one does not wait for it."""
    recording = run(quiet(), catalogue(), Listed([200.0, 205.0, 300.0]), WaitsForBatches)
    assert [(span.begin_ms, span.jobs) for span in recording.spans] == [(205.0, 2), (330.0, 1)]


class AsksLater(WaitsForBatches):
    """It waits, and each time that it is asked wants to be asked 30 ms later."""

    name = "asks-later"

    def candidates(self, question):
        return () if question.waited_ms < 30.0 else super().candidates(question)

    def retry_at_ms(self, question):
        return question.now_ms + 30.0


def test_the_earliest_time_that_it_asked_for_counts():
    """Asked at 200 and at 210, it is looked at at 230, and not at 240 again."""
    recording = run(quiet(), catalogue(), Listed([200.0, 210.0]), AsksLater)
    assert [(span.begin_ms, span.jobs) for span in recording.spans] == [(230.0, 2)]
    assert recording.result.planning_calls == 3


class NeverNow(Keeps):
    """Has nothing to say before two jobs wait, and does not ask to be asked."""

    name = "never-now"

    def candidates(self, question):
        return () if question.queued < 2 else super().candidates(question)


def test_without_a_time_it_is_asked_at_the_next_job():
    recording = run(quiet(), catalogue(), Listed([200.0, 900.0]), NeverNow)
    assert [span.begin_ms for span in recording.spans[:1]] == [900.0]
    assert recording.result.dropped == 1


class SaysNothing(Keeps):
    """Says that it keeps containers, and not which."""

    name = "says-nothing"
    desired_containers = Policy.desired_containers


def test_who_keeps_containers_must_say_which():
    with pytest.raises(PolicyError, match="says-nothing does not autoscale"):
        run(quiet(), catalogue(), Listed([0.0]), SaysNothing)


def test_room_that_does_not_suffice_for_all_is_given_in_turn():
    """Two queues want five containers each of a fifth of the GPU: neither is left without."""
    both = Catalogue.of(
        [
            workflow([[]], name="a", functions=["f0"]),
            workflow([[]], name="b", functions=["f1"]),
            profile("f0", ROWS),
            profile("f1", ROWS),
        ]
    )
    keys = (("default", "a"), ("default", "b"))
    run(quiet(), both, Listed([0.0, 1_500.0], [0, 1], keys), TooMany)
    seen = [sum(demand.containers.values()) for _, demand in TooMany.last.seen[1][1:]]
    assert seen == [3, 2]


class Shared(Keeps):
    """One container in batches of four, once four jobs wait in all queues or one for 30 ms."""

    name = "shared"
    plan = ((0.0, 1),)

    def first(self, key):
        return configurations_of(self.context.profile(key).spec.gpus[0])[1]

    def candidates(self, question):
        ready = question.queued >= 4 or question.waited_ms >= 30.0
        return super().candidates(question) if ready else ()

    def retry_at_ms(self, question):
        return question.now_ms - question.waited_ms + 30.0


def two_workflows_of_one_function():
    return Catalogue.of(
        [
            workflow([[]], name="a", functions=["f0"]),
            workflow([[]], name="b", functions=["f0"], slo_ms=500.0),
            profile("f0", ROWS),
        ]
    )


def test_room_is_made_on_gpus_that_the_function_is_profiled_on():
    """An idle container on another GPU model would end for nothing, and start again."""
    rows = {"long": {"a": [(1, 1, 60, 60_000.0)]}, "late": {"a": [(1, 1, 60, 100.0)]}}
    rows["other"] = {"b": [(1, 1, 20, 50.0)]}
    documents = [profile(name, listed, cold_start_ms=500.0) for name, listed in rows.items()]
    documents += [workflow([[]], name=name, functions=[name]) for name in rows]
    catalogue = Catalogue.of(documents)
    keys = tuple(("default", name) for name in rows)
    arrivals = sorted([(0.0, 0), (5_000.0, 1), *((1_000.0 + 5_000.0 * i, 2) for i in range(10))])
    times_ms, numbers = zip(*arrivals, strict=True)
    scenario = quiet(nodes=2, gpu_models=("a", "b"), resizable=False)
    recording = run(scenario, catalogue, Listed(times_ms, numbers, keys), "infless")
    others = [span for span in recording.spans if span.function == "other"]
    assert len(others) == 10
    assert len({span.container for span in others}) == 1


def test_queues_of_one_function_share_its_containers_and_batches():
    """Two jobs of each workflow fill a batch of four in the only container."""
    keys = (("default", "a"), ("default", "b"))
    arrivals = Listed([100.0, 101.0, 102.0, 103.0, 300.0, 305.0], [0, 1, 0, 1, 0, 1], keys)
    recording = run(quiet(), two_workflows_of_one_function(), arrivals, Shared)
    assert [(span.begin_ms, span.jobs) for span in recording.spans] == [(103.0, 4), (330.0, 2)]
    assert len({span.container for span in recording.spans}) == 1
    assert [record.outcome for record in recording.requests] == ["hit"] * 6
    (_, demand) = Shared.last.seen[0][1]
    assert [key[1] for key in demand.queues] == ["a", "b"]


class OwnPools(Shared):
    """A pool for each queue."""

    name = "own-pools"

    def pool(self, key):
        return key


def test_a_policy_may_choose_its_pools():
    """Each queue fills its own batches in its own container."""
    keys = (("default", "a"), ("default", "b"))
    arrivals = Listed([100.0, 101.0, 102.0, 103.0], [0, 1, 0, 1], keys)
    recording = run(quiet(), two_workflows_of_one_function(), arrivals, OwnPools)
    assert [(span.begin_ms, span.jobs) for span in recording.spans] == [(130.0, 2), (131.0, 2)]
    assert len({span.container for span in recording.spans}) == 2
