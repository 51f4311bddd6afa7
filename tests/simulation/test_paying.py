"""Paid cost: all that containers hold until the last answer, idle or not."""

import pytest

from scheduler.model.catalogue import Catalogue
from tests.simulation.harness import (
    Fixed,
    Listed,
    Poisson,
    WatchedCluster,
    one_function,
    quiet,
    run,
)
from tests.simulation.test_autoscaling import DOLLARS_HOUR, ROWS, Keeps
from workbench.profiles.builders import GPU, profile, workflow
from workbench.simulation.containers.configurations import anywhere, configurations_of

DOLLARS_MS = DOLLARS_HOUR / 3_600_000
KEYS = (("default", "a"), ("default", "b"))


def fixed(**changes):
    """Containers hold their share while idle."""
    return quiet(resizable=False, **changes)


@pytest.mark.replaces
def test_an_idle_container_with_a_fixed_share_is_paid():
    """One container runs for 10 ms, and again after 1,000 ms."""
    result = run(fixed(), one_function(ROWS), Listed([0.0, 1_000.0]), cluster=WatchedCluster).result
    assert result.ran_dollars == pytest.approx(20.0 * DOLLARS_MS)
    assert result.paid_dollars == pytest.approx(1_010.0 * DOLLARS_MS * containers(result))


def containers(result):
    """Number of containers of a fifth of the GPU that are held throughout."""
    return round(result.gpu_utilisation[0] / 0.2)


def test_an_idle_container_that_may_change_its_share_costs_nothing():
    result = run(quiet(), one_function(ROWS), Listed([0.0, 1_000.0])).result
    assert result.paid_dollars == pytest.approx(20.0 * DOLLARS_MS)
    assert result.idle_dollars == pytest.approx(0.0, abs=1e-12)


@pytest.mark.replaces
def test_an_idle_container_without_its_share_costs_nothing():
    """Its share is fixed, and it holds it only while it runs."""
    scenario = fixed(idle_share=False)
    result = run(
        scenario, one_function(ROWS), Listed([0.0, 1_000.0]), cluster=WatchedCluster
    ).result
    assert result.paid_dollars == pytest.approx(20.0 * DOLLARS_MS)
    assert result.idle_dollars == pytest.approx(0.0, abs=1e-12)


@pytest.mark.replaces
def test_containers_of_all_shares_are_warm_where_idle_ones_hold_none():
    """Shares of more than a GPU are warm on it; a run waits until those that run leave room."""
    catalogue = one_function([(1, 1, 70, 10), (1, 1, 60, 12)], cold_start_ms=500.0)
    scenario = fixed(idle_share=False)
    recording = run(scenario, catalogue, Listed([0.0, 0.0, 0.0]), cluster=WatchedCluster)
    assert recording.result.cold_starts == 0
    assert {span.gpu_percent for span in recording.spans} <= {60, 70}
    begins = sorted(span.begin_ms for span in recording.spans)
    assert begins[0] < begins[1] < begins[2]


class Deaf(Keeps):
    """Keeps two containers, and never runs a job of workflow b."""

    name = "deaf"

    def pool(self, key):
        return key

    def desired_containers(self, now_ms, demand):
        return {key: {self.first(key): 2} for key in demand if key[1] == "a"}

    def candidates(self, question):
        return super().candidates(question) if question.key[1] == "a" else ()


def two_workflows():
    """Two workflows of a function each."""
    return Catalogue.of(
        [
            workflow([[]], name="a", functions=["f0"]),
            workflow([[]], name="b", functions=["f1"]),
            profile("f0", ROWS),
            profile("f1", ROWS),
        ]
    )


def test_nothing_is_paid_after_the_last_answer():
    """A request of b waits in vain for ten minutes, in which a's containers are idle."""
    arrivals = Listed([0.0, 10.0], [0, 1], KEYS)
    result = run(fixed(), two_workflows(), arrivals, Deaf).result
    assert result.dropped == 1
    assert result.simulated_ms > 600_000.0
    assert result.paid_dollars == pytest.approx(2 * 10.0 * DOLLARS_MS)


class Hogs(Keeps):
    """Wants three containers of 30 % for a, and one for b."""

    name = "hogs"

    def first(self, key):
        return configurations_of(self.context.profile(key).spec.gpus[0])[0]

    def desired_containers(self, now_ms, demand):
        return {
            pool: {self.first(load.queues[0]): 9 if pool[1] == "f0" else 1}
            for pool, load in demand.items()
        }


def test_a_pool_without_room_at_the_start_gets_a_container():
    """The GPU holds one container of 60 %; b gets it once a has no job."""
    rows = [(1, 1, 60, 10)]
    catalogue = Catalogue.of(
        [
            workflow([[]], name="a", functions=["f0"]),
            workflow([[]], name="b", functions=["f1"]),
            profile("f0", rows),
            profile("f1", rows),
        ]
    )
    arrivals = Listed([0.0, 100.0, 1_100.0, 2_100.0], [0, 1, 1, 1], KEYS)
    result = run(fixed(), catalogue, arrivals, Hogs).result
    assert result.dropped == 0


class BatchOfFour(Fixed):
    """A configuration whose batch the queue does not fill."""

    def candidates(self, question):
        gpu = self.context.profile(question.key).spec.gpus[0]
        return (anywhere(configurations_of(gpu)[-1], GPU),)


def test_a_part_of_a_batch_takes_the_time_of_its_own_size():
    """Two of at most four run in the profiled time of two, and cost as much."""
    catalogue = one_function([(1, 1, 100, 10), (2, 1, 100, 16), (4, 1, 100, 28)])
    recording = run(quiet(), catalogue, Listed([0.0, 0.0, 0.0]), BatchOfFour)
    first, second = recording.spans
    assert (first.batch, first.jobs, first.end_ms - first.execute_ms) == (4, 1, 10.0)
    assert (second.batch, second.jobs, second.end_ms - second.execute_ms) == (4, 2, 16.0)


class Doubles(Fixed):
    """Has a container ready 50 ms before each request's second stage."""

    def prewarm_delay_ms(self, key):
        return 0.0 if key[2] == "s1" else None


@pytest.mark.replaces
def test_a_prewarmed_start_holds_its_share_and_is_paid():
    """The second stage's container starts for 200 ms while the first stage runs for 300."""
    catalogue = Catalogue.of(
        [
            workflow([[], [0]]),
            profile("f0", [(1, 1, 50, 300)]),
            profile("f1", [(1, 1, 40, 100)], cold_start_ms=200.0),
        ]
    )
    scenario = quiet(warm_containers=0, prewarm=True)
    recording = run(scenario, catalogue, Listed([0.0]), Doubles, cluster=WatchedCluster)
    result = recording.result
    assert [span.start_ms for span in recording.spans] == [0.0, 0.0]
    dollars_ms = (0.034 + 0.4 * 4.69) / 3_600_000
    assert result.prewarmed == 1
    assert result.idle_dollars == pytest.approx(200.0 * dollars_ms)
    assert result.gpu_utilisation[0] > 0.5


@pytest.mark.replaces
@pytest.mark.parametrize("policy", ["exact", "minimum", "grandslam", "random"])
@pytest.mark.parametrize("nodes", [1, 2])
def test_fixed_shares_stay_within_every_gpu_and_node(policy, nodes):
    """Idle containers are evicted for others, and never counted twice."""
    rows = [
        (b, c, p, 400 * b**0.6 / p**0.6 / c**0.2) for b in (1, 2) for c in (1, 2) for p in (20, 50)
    ]
    catalogue = Catalogue.of(
        [
            workflow([[], [0]], name="a", functions=["f0", "f1"], slo_ms=200.0),
            workflow([[]], name="b", functions=["f2"], slo_ms=100.0),
            *(profile(f"f{i}", rows, cold_start_ms=50.0) for i in range(3)),
        ]
    )
    scenario = quiet(resizable=False, nodes=nodes, cpus=5, noise_ratio=0.1, prewarm=True)
    arrivals = Poisson(30.0, seed=2, workflows=KEYS)
    result = run(scenario, catalogue, arrivals, policy, requests=120, cluster=WatchedCluster).result
    assert result.hits + result.misses == 120
    assert result.paid_dollars > result.ran_dollars


@pytest.mark.replaces
def test_what_is_paid_compares_with_the_least_cost_of_the_requests():
    """A single container that is never idle pays the bound; an idle one pays more."""
    busy = run(fixed(), one_function(ROWS), Listed([0.0, 10.0]), cluster=WatchedCluster).result
    assert busy.bound_dollars == pytest.approx(20.0 * DOLLARS_MS)
    assert busy.paid_bound_ratio == pytest.approx(containers(busy))
    idle = run(fixed(), one_function(ROWS), Listed([0.0, 1_000.0]), cluster=WatchedCluster).result
    assert idle.paid_bound_ratio == pytest.approx(1_010.0 / 20.0 * containers(idle))


def test_the_bound_counts_the_requests_of_each_workflow():
    """Three requests of one workflow and one of another, which costs three times as much."""
    catalogue = Catalogue.of(
        [
            workflow([[]], name="a", functions=["f0"]),
            workflow([[]], name="b", functions=["f1"]),
            profile("f0", ROWS),
            profile("f1", [(1, 1, 20, 30)]),
        ]
    )
    arrivals = Listed([0.0, 100.0, 200.0, 300.0], [0, 0, 1, 0], KEYS)
    result = run(quiet(), catalogue, arrivals).result
    assert result.bound_dollars == pytest.approx((3 * 10.0 + 30.0) * DOLLARS_MS)


def test_requests_that_cannot_be_in_time_have_no_bound():
    result = run(quiet(), one_function(ROWS, slo_ms=5.0), Listed([0.0])).result
    assert result.hits == 0
    assert result.bound_dollars is None
    assert result.paid_bound_ratio is None
