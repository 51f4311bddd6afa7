"""Policies of stations: order of stages, deadlines, plans; against twins and published shapes."""

import gc
from itertools import pairwise, permutations
from statistics import fmean

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler.model.catalogue import Catalogue
from scheduler.model.plan import Prices
from studies.oracles import sgprs as oracle
from tests.examples import examples
from tests.simulation.harness import Listed, Poisson, quiet, run
from workbench.profiles.builders import profile, workflow
from workbench.simulation.engine import simulate
from workbench.simulation.errors import PolicyError
from workbench.simulation.loop import Observers
from workbench.simulation.policies.fcfs import Fcfs
from workbench.simulation.policies.layer_queue import RequestLayers
from workbench.simulation.registry import container_policy_names, policy_names
from workbench.simulation.scenario import ScenarioError, UnlikeNodes
from workbench.simulation.setup import assemble, policy_for
from workbench.simulation.stations.policy import StationPolicy
from workbench.simulation.stations.queued_task import QueuedTask
from workbench.simulation.stations.simulation import stations_of
from workbench.simulation.stations.station import StageTask

STATION_POLICIES = [name for name in policy_names() if name not in container_policy_names()]
LAYER_POLICIES = ["fcfs", "sjf", "prema", "dysta"]
MODELS = {"small": [4, 6, 5], "middle": [20, 30, 10, 25], "large": [60, 80, 70]}
SLO_FACTOR = 10  # of the isolated time


def models():
    """Chains of layers on whole GPUs; the SLO of each is ten times its isolated time."""
    documents = []
    for name, times_ms in MODELS.items():
        functions = [f"{name}-{i}" for i in range(len(times_ms))]
        documents += [
            profile(f, [(1, 1, 100, ms)]) for f, ms in zip(functions, times_ms, strict=True)
        ]
        chain = [[]] + [[i] for i in range(len(times_ms) - 1)]
        slo_ms = SLO_FACTOR * sum(times_ms)
        documents.append(workflow(chain, name=name, slo_ms=slo_ms, functions=functions))
    return Catalogue.of(documents), tuple(("default", name) for name in MODELS)


CATALOGUE, KEYS = models()


@pytest.mark.parametrize("name", STATION_POLICIES)
def test_every_request_ends_once(name):
    """All stages of all requests run, forks and joins included, and times add up."""
    fork = [[], [0], [0], [1, 2]]
    catalogue = Catalogue.of(
        [
            workflow(fork, slo_ms=400.0),
            *(profile(f"f{i}", [(1, 1, 50, 20.0), (1, 1, 100, 12.0)]) for i in range(4)),
        ]
    )
    scenario = quiet(nodes=2, noise_ratio=0.1, request_noise_ratio=0.3)
    recording = run(scenario, catalogue, Poisson(15.0, 1), name, requests=300)
    assert recording.result.requests == 300
    assert recording.result.dropped == 0
    assert len(recording.spans) == recording.result.runs == 1_200
    for record in recording.requests:
        phases_ms = record.queue_ms + record.start_ms + record.transfer_ms + record.execute_ms
        assert phases_ms == pytest.approx(record.end_ms - record.arrival_ms)


@pytest.mark.slow
@pytest.mark.parametrize("name", STATION_POLICIES)
def test_equal_seeds_give_equal_results(name):
    """A run depends on its setup alone."""
    scenario = quiet(request_noise_ratio=0.5)
    results = [
        run(scenario, CATALOGUE, Poisson(60.0, 3, KEYS), name, requests=200, seed=4).result
        for _ in range(2)
    ]
    assert results[0] == results[1]


@given(gaps_ms=st.lists(st.integers(0, 400), min_size=1, max_size=30), numbers=st.randoms())
@examples(30)
def test_fcfs_is_a_queue(gaps_ms, numbers):
    """On one GPU each request begins when the one before it has ended: Lindley's recursion."""
    times_ms = np.cumsum(gaps_ms).tolist()
    kinds = [numbers.randrange(len(KEYS)) for _ in times_ms]
    recording = run(quiet(), CATALOGUE, Listed(times_ms, kinds, KEYS), "fcfs")
    free_ms, expected = 0.0, []
    for time_ms, kind in zip(times_ms, kinds, strict=True):
        free_ms = max(free_ms, time_ms) + sum(MODELS[KEYS[kind][1]])
        expected.append(free_ms)
    ends_ms = {record.number: record.end_ms for record in recording.requests}
    assert [ends_ms[i] for i in range(len(times_ms))] == pytest.approx(expected)


@given(kinds=st.lists(st.integers(0, 2), min_size=1, max_size=5))
@examples(30)
def test_sjf_has_the_smallest_mean_of_all_orders(kinds):
    """No order of the requests that wait has a smaller mean completion time."""
    arrivals = Listed([0.0] + [1.0] * len(kinds), [2, *kinds], KEYS)
    recording = run(quiet(), CATALOGUE, arrivals, "sjf")
    first_ms, *rest_ms = MODELS["large"]
    lengths_ms = [sum(rest_ms), *(sum(MODELS[KEYS[kind][1]]) for kind in kinds)]
    best_ms = min(fmean(first_ms + np.cumsum(order)) for order in permutations(lengths_ms))
    assert fmean(record.end_ms for record in recording.requests) == pytest.approx(best_ms)


def test_dysta_predicts_with_what_it_measured():
    """Choose, of two equal requests, the one whose first layers were fast."""
    policy = policy_for(assemble(quiet(), CATALOGUE, KEYS, 0), "dysta", {})
    fast, slow = (RequestLayers(100.0, 50.0, ms, ms) for ms in (25.0, 100.0))
    assert (fast.sparsity_factor, slow.sparsity_factor) == (0.5, 2.0)
    waiting = StageTask(
        key=("default", "small", "s1"),
        stage=1,
        request=0,
        workflow=0,
        arrival_ms=0.0,
        deadline_ms=1_000.0,
        ready_ms=100.0,
    )
    policy.requests = {0: fast, 1: slow}
    assert policy.score(waiting, fast, 100.0) < policy.score(waiting, slow, 100.0)


def test_layers_count_alike_on_every_gpu_model():
    """A layer on a GPU three times as slow is no more of its request, and no sparsity."""
    rows = {"fast": [(1, 1, 100, 10.0)], "slow": [(1, 1, 100, 30.0)]}
    chain = workflow([[], [0]], slo_ms=1_000.0, functions=["f", "f"])
    catalogue = Catalogue.of([chain, profile("f", rows)])
    key = ("default", "w")
    state = assemble(quiet(nodes=2, gpu_models=("fast", "slow")), catalogue, (key,), 0)
    policy = policy_for(state, "dysta", {key: 1.0})
    policy.stations = _, slow = stations_of(state, policy)
    layer = StageTask(
        key=(*key, "s0"),
        stage=0,
        request=0,
        workflow=0,
        arrival_ms=0.0,
        deadline_ms=1_000.0,
        ready_ms=0.0,
    )
    policy.ready(layer, 0.0)
    policy.ended(layer, slow, 36.0)
    layers = policy.requests[0]
    assert (layers.ran_ms, layers.remaining_ms) == (36.0, 10.0)
    assert layers.sparsity_factor == pytest.approx(1.2)


@pytest.mark.slow
def test_dysta_beats_the_others_under_load():
    """At a load of 0.9, violations and normalised turnaround are those of SJF, FCFS or less."""
    mean_ms = fmean(sum(times_ms) for times_ms in MODELS.values())
    violations, turnarounds = {}, {}
    for name in LAYER_POLICIES:
        results = [
            run(
                quiet(request_noise_ratio=0.5),
                CATALOGUE,
                Poisson(mean_ms / 0.9, seed, KEYS),
                name,
                requests=1_500,
                seed=seed,
            ).result
            for seed in range(3)
        ]
        violations[name] = fmean(1 - result.hit_ratio for result in results)
        turnarounds[name] = fmean(SLO_FACTOR * result.latency.mean for result in results)
    for figures in (violations, turnarounds):
        assert figures["dysta"] <= figures["sjf"] <= figures["prema"] <= figures["fcfs"]


def test_sgprs_divides_the_deadline_by_times():
    """Parts of a chain add up to 0.99 of the SLO, in proportion to worst-case times."""
    state = assemble(quiet(), CATALOGUE, KEYS, 0)
    policy = policy_for(state, "sgprs", {})
    policy.stations = stations_of(state, policy)
    parts = [policy.deadline(("default", "middle", f"s{i}")) for i in range(4)]
    slo_ms = SLO_FACTOR * sum(MODELS["middle"])
    assert parts[-1].end_ms == pytest.approx(0.99 * slo_ms)
    assert sum(part.relative_ms for part in parts) == pytest.approx(0.99 * slo_ms)
    assert [part.is_last for part in parts] == [False, False, False, True]
    ratios = [part.relative_ms / part.worst_ms for part in parts]
    assert all(a == pytest.approx(b) for a, b in pairwise(ratios))


@pytest.mark.slow
def test_sgprs_keeps_its_rate_beyond_the_pivot():
    """More tasks than the GPU can serve lower no rate; fewer have no misses."""
    fitting, full, overloaded = (oracle.run("sgprs", n, 2, 100.0) for n in (20, 26, 30))
    assert oracle.missed_ratio(fitting) == 0.0
    assert oracle.missed_ratio(overloaded) > oracle.missed_ratio(full) > 0.0
    assert oracle.delivered_rps(overloaded) >= 0.95 * oracle.delivered_rps(full)


def test_a_periodic_task_skips_a_frame():
    """A release while the frame before is not done is dropped, and only then."""
    catalogue = Catalogue.of([workflow([[]], slo_ms=10.0), profile("f0", [(1, 1, 100, 25.0)])])
    arrivals = Listed([0.0, 10.0, 20.0, 30.0])
    recording = run(quiet(skip_overruns=True), catalogue, arrivals, "fcfs")
    assert [(r.number, r.outcome) for r in sorted(recording.requests)] == [
        (0, "miss"), (1, "dropped"), (2, "dropped"), (3, "miss"),
    ]  # fmt: skip


def test_late_requests_are_given_up():
    """A request that waits so long after its arrival is dropped when its turn comes."""
    catalogue = Catalogue.of([workflow([[]], slo_ms=10.0), profile("f0", [(1, 1, 100, 25.0)])])
    recording = run(quiet(give_up_factor=2.0), catalogue, Listed([0.0, 1.0, 2.0]), "fcfs")
    assert [r.outcome for r in sorted(recording.requests)] == ["miss", "dropped", "dropped"]


FAMILIES = [("a", 500.0), ("b", 300.0), ("c", 400.0)]


def many_models():
    """Three workflows of one function each; a GPU holds the models of two."""
    documents = [workflow([[]], name=n, slo_ms=800.0, functions=[n]) for n, _ in FAMILIES]
    documents += [
        profile(name, [(1, 1, 100, 30.0)], cold_start_ms=cold_ms, memory_mib=1_000)
        for name, cold_ms in FAMILIES
    ]
    return Catalogue.of(documents), tuple(("default", name) for name, _ in FAMILIES)


def test_a_model_is_loaded_once_per_worker():
    """Requests of one function wait for its model once, where it stays in memory."""
    catalogue, keys = many_models()
    scenario = quiet(warm_containers=0, memory_mib=3_100)
    recording = run(scenario, catalogue, Listed([0.0, 1_000.0], [0, 0], keys), "compass")
    assert [record.start_ms for record in sorted(recording.requests)] == [500.0, 0.0]
    assert recording.result.cold_starts == 1


def test_compass_sends_requests_where_their_model_is():
    """With two workers and two models each has its own, and nothing is evicted."""
    catalogue, keys = many_models()
    scenario = quiet(nodes=2, warm_containers=0, memory_mib=2_100)
    times_ms = [1_000.0 * i for i in range(20)]
    recording = run(scenario, catalogue, Listed(times_ms, [0, 1] * 10, keys), "compass")
    assert recording.result.cold_starts == 2
    assert recording.result.evictions == 0


def test_compass_beats_home_nodes():
    """Under load a worker's long queue is avoided, which hashing cannot."""
    catalogue, keys = many_models()
    scenario = quiet(nodes=3, warm_containers=1, memory_mib=3_100)
    hit_ratios = [
        run(scenario, catalogue, Poisson(14.0, 2, keys), name, requests=1_500).result.hit_ratio
        for name in ("compass", "home-node")
    ]
    assert hit_ratios[0] > hit_ratios[1]


def test_compass_does_not_evict_what_queues_need():
    """With room for each model once, every worker keeps its own, whatever queues there."""
    catalogue, keys = many_models()
    scenario = quiet(nodes=3, warm_containers=1, memory_mib=2_100)
    recording = run(scenario, catalogue, Poisson(14.0, 2, keys), "compass", requests=600)
    assert recording.result.evictions == 0
    assert recording.result.hit_ratio == 1.0


def test_compass_knows_how_fast_each_worker_is():
    """The second worker ends a stage first as long as fewer than three wait there."""
    rows = {"slow": [(1, 1, 100, 35.0)], "fast": [(1, 1, 100, 10.0)]}
    catalogue = Catalogue.of([workflow([[]], slo_ms=1_000.0), profile("f0", rows)])
    scenario = quiet(nodes=2, gpu_models=("slow", "fast"))
    recording = run(scenario, catalogue, Listed([30.0 * i for i in range(6)]), "compass")
    assert {span.node for span in recording.spans} == {"node-0001"}


def test_compass_plans_again_where_the_input_is():
    """Behind 50 ms of work, because to an idle worker the input takes 100 ms."""
    functions = [profile(f"f{i}", [(1, 1, 100, 10.0)], output_mib=100.0) for i in range(2)]
    catalogue = Catalogue.of([workflow([[], [0]], slo_ms=1_000.0), *functions])
    key = ("default", "w")
    state = assemble(quiet(nodes=2, bandwidth_mib_s=1_000.0), catalogue, (key,), 0)
    policy = policy_for(state, "compass", {key: 1.0})
    policy.stations = idle, busy = stations_of(state, policy)
    waiting = {"workflow": 0, "arrival_ms": 0.0, "deadline_ms": 1_000.0}

    def begin(request, stage, now_ms, station):
        task = StageTask(
            key=(*key, f"s{stage}"), stage=stage, request=request, ready_ms=now_ms, **waiting
        )
        policy.ready(task, now_ms)
        assert policy.station_number(task) == station.number
        assert policy.next_task(station, now_ms) is task
        return task

    first = begin(0, 0, 0.0, idle)  # the next request goes to the other worker
    second = begin(1, 0, 20.0, busy)
    policy.ended(first, idle, 10.0)
    policy.closed(0)
    policy.ended(second, busy, 10.0)
    for request in (2, 3):  # ahead of its second stage
        begin(request, 0, 20.0, busy)
    begin(1, 1, 50.0, busy)


class Twice(Fcfs):
    """Returns the same stage again and again."""

    name = "twice"
    last = None

    def next_task(self, station, now_ms):
        self.last = super().next_task(station, now_ms) or self.last
        return self.last


def test_a_stage_that_does_not_wait_is_refused():
    """The error names the policy, the queue and the time."""
    with pytest.raises(PolicyError, match=r"policy twice, called for queue default/small/s0 at 0"):
        run(quiet(nodes=2), CATALOGUE, Listed([0.0], [0], KEYS), Twice)


class Broken(StationPolicy):
    """Fails at the first stage."""

    name = "broken"

    def ready(self, task, now_ms):
        raise RuntimeError("out of order")

    def next_task(self, station, now_ms):
        return None


def test_an_error_of_a_policy_is_named():
    """A policy that raises ends its run with an error that says where."""
    with pytest.raises(PolicyError, match=r"policy broken.*out of order"):
        run(quiet(), CATALOGUE, Listed([0.0], [0], KEYS), Broken)


class Idle(StationPolicy):
    """Never runs anything."""

    name = "idle"

    def ready(self, task, now_ms):
        pass

    def next_task(self, station, now_ms):
        return None


def test_stages_of_dropped_requests_are_forgotten():
    """At any moment there are at most three stages of each request that has not ended."""
    functions = [profile(f"f{i}", [(1, 1, 100, 20.0)]) for i in range(3)]
    catalogue = Catalogue.of([workflow([[], [], [0, 1]], slo_ms=30.0), *functions])
    known = []

    def tasks():
        return sum(isinstance(item, QueuedTask) for item in gc.get_objects())

    gc.collect()  # of other tests
    before = tasks()
    observers = Observers(on_request=lambda _: known.append(tasks() - before))
    scenario = quiet(give_up_factor=1.0)
    arrivals = Listed([10.0 * i for i in range(60)])
    result = simulate(scenario, catalogue, arrivals, "sjf", observers=observers)
    assert result.dropped > 30
    assert max(known) <= 3 * 10


def test_what_never_runs_is_dropped():
    """Stages that a policy does not return are dropped at the end of the run."""
    result = run(quiet(), CATALOGUE, Listed([0.0, 5.0], [0, 1], KEYS), Idle).result
    assert (result.requests, result.dropped) == (2, 2)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("failures", [{"at_ms": 1.0, "node": 0}]),
        ("interference", {"small-0": 0.5}),
        ("profiled_noise", True),
    ],
)
def test_what_stations_do_not_model_is_refused(key, value):
    """The message says what to remove; otherwise the run would go on as if it were not there."""
    with pytest.raises(ScenarioError, match=rf"policy fcfs runs on stations.*remove `{key}`"):
        run(quiet(**{key: value}), CATALOGUE, Listed([0.0], [0], KEYS), "fcfs")


def test_nodes_that_differ_are_paid_and_have_their_own_size():
    """Two nodes of 16 vCPUs cost the same, however they are written; a larger one costs more."""
    arrivals = Listed([0.0, 1_000.0], [0, 1], KEYS)

    def paid_dollars(**changes):
        return run(quiet(**changes), CATALOGUE, arrivals, "fcfs").result.paid_dollars

    alike = paid_dollars(nodes=2)
    assert paid_dollars(nodes=1, unlike_nodes=(UnlikeNodes(),)) == pytest.approx(alike)
    vcpu_dollars = Prices().request_cost_dollars(1_000.0 + sum(MODELS["middle"]), 1, 0, 1)
    larger = paid_dollars(nodes=1, unlike_nodes=(UnlikeNodes(cpus=24),))
    assert larger == pytest.approx(alike + 8 * vcpu_dollars)

    unlike = (UnlikeNodes(gpus=2, cpus=24, memory_mib=40_000),)
    state = assemble(quiet(unlike_nodes=unlike), CATALOGUE, KEYS, 0)
    stations = stations_of(state, policy_for(state, "fcfs", dict.fromkeys(KEYS, 1.0)))
    context_mib = state.scenario.limits.server_context_mib
    assert [station.cpus for station in stations] == [16, 12, 12]
    assert [station.cache.capacity_mib + context_mib for station in stations] == [
        81_920,
        40_000,
        40_000,
    ]
