"""Whatever is simulated: each request ends once, nothing is overcommitted, time moves on."""

from collections import Counter
from math import inf

import pytest
from hypothesis import event, given
from hypothesis import strategies as st

from scheduler.model.catalogue import Catalogue
from scheduler.placement.options import Limits
from tests.examples import examples
from tests.search.factories import dags
from tests.simulation.harness import Listed, WatchedCluster, run
from workbench.profiles.builders import GPU, profile, workflow
from workbench.simulation.containers.configurations import anywhere, configurations_of
from workbench.simulation.policy import Policy
from workbench.simulation.scenario import Scenario

CONTEXT_MIB = 100


class ScalesAtRandom(Policy):
    """Keeps up to two containers of one configuration for each queue; by chance, and not always."""

    name = "met"
    autoscales = True
    rescale_ms = 200.0

    def candidates(self, question):
        gpu = self.context.profile(question.key).spec.gpus[0]
        return [anywhere(configuration, GPU) for configuration in configurations_of(gpu)]

    def desired_containers(self, now_ms, demand):
        wanted = {}
        for key, seen in demand.items():
            assert all(count > 0 for count in seen.containers.values())
            listed = configurations_of(self.context.profile(seen.queues[0]).spec.gpus[0])
            chosen = listed[int(self.context.random.integers(len(listed)))]
            wanted[key] = {chosen: int(self.context.random.integers(0, 3))}
        return wanted


points = st.lists(
    st.tuples(
        st.sampled_from((1, 2, 4)),
        st.sampled_from((1, 2)),
        st.sampled_from((10, 14, 21, 50, 100)),
    ),
    min_size=1,
    max_size=5,
    unique=True,
)


@st.composite
def catalogues(draw):
    """A workflow or two over up to four functions, some of them shared."""
    functions = [f"f{i}" for i in range(draw(st.integers(1, 4)))]
    profiles = [
        profile(
            name,
            [(*point, draw(st.sampled_from((1.0, 20.0, 50.0, 300.0)))) for point in draw(points)],
            cold_start_ms=draw(st.sampled_from((0.0, 30.0, 500.0))),
            output_mib=draw(st.sampled_from((0.0, 5.0))),
        )
        for name in functions
    ]
    workflows = []
    for number in range(draw(st.integers(1, 2))):
        after = draw(dags())
        used = [draw(st.sampled_from(functions)) for _ in after]
        slo_ms = draw(st.sampled_from((50.0, 400.0, 2_000.0)))
        workflows.append(workflow(after, name=f"w{number}", slo_ms=slo_ms, functions=used))
    return Catalogue.of([*workflows, *profiles])


@st.composite
def workloads(draw, workflows):
    """Some tens of requests, in bursts and with pauses."""
    gaps_ms = st.sampled_from((0.0, 1.0, 15.0, 100.0, 1_000.0))
    listed = draw(
        st.lists(st.tuples(gaps_ms, st.integers(0, workflows - 1)), min_size=1, max_size=25)
    )
    times_ms = [sum(gap for gap, _ in listed[: i + 1]) for i in range(len(listed))]
    keys = tuple(("default", f"w{i}") for i in range(workflows))
    return Listed(times_ms, [number for _, number in listed], keys)


scenarios = st.builds(
    Scenario,
    nodes=st.integers(1, 3),
    gpus_per_node=st.integers(1, 2),
    gpu_models=st.just((GPU,)),
    cpus=st.sampled_from((2, 4)),
    memory_mib=st.sampled_from((CONTEXT_MIB + 400, CONTEXT_MIB + 700, 10_000)),
    limits=st.builds(
        Limits, server_context_mib=st.just(CONTEXT_MIB), clients_max=st.sampled_from((1, 3, 48))
    ),
    slo_factor=st.sampled_from((0.8, 1.2)),
    noise_ratio=st.sampled_from((0.0, 0.2)),
    interference_ratio=st.sampled_from((0.0, 0.5)),
    keep_alive_ms=st.sampled_from((0.0, 50.0, 1_000.0, 600_000.0)),
    bandwidth_mib_s=st.sampled_from((inf, 1_000.0)),
    warm_containers=st.integers(0, 2),
    prewarm=st.booleans(),
    replan=st.booleans(),
    batching=st.booleans(),
    sharing=st.sampled_from(("percent", "sevenths", "whole")),
    resizable=st.booleans(),
    idle_share=st.booleans(),
    warmup_ms=st.just(0.0),
    misses_max=st.sampled_from((0, 3)),
    retry_ms=st.sampled_from((0.0, 10.0)),
    give_up_factor=st.sampled_from((1.5, inf)),
    placement=st.sampled_from(("pack", "spread")),
)
policies = st.sampled_from(
    ("minimum", "random", "exact", "esg", "grandslam", "oracle", ScalesAtRandom)
)


def suited(scenario, policy, **changes):
    """Change a scenario; `warm` refuses to give up requests."""
    if policy == "warm":
        changes["give_up_factor"] = inf
    return scenario.model_copy(update=changes)


@pytest.mark.replaces
@examples(150)
@given(data=st.data(), catalogue=catalogues(), scenario=scenarios, policy=policies)
def test_laws_of_every_run(data, catalogue, scenario, policy):
    """The cluster is watched at each change; the requests' and the runs' records add up."""
    arrivals = data.draw(workloads(len(catalogue.workflows)))
    seed = data.draw(st.integers(0, 3))
    recording = run(scenario, catalogue, arrivals, policy, seed=seed, cluster=WatchedCluster)
    result = recording.result
    each_request_ends_once(recording, arrivals, result)
    phases_add_up(recording)
    runs_add_up(recording, result)
    runs_fit(recording, scenario)
    event(f"dropped some: {result.dropped > 0}")
    event(f"evicted some: {result.evictions > 0}")
    event(f"cold starts: {result.cold_starts > 0}")


def each_request_ends_once(recording, arrivals, result):
    numbers = sorted(record.number for record in recording.requests)
    assert numbers == list(range(len(arrivals.times_ms)))
    outcomes = Counter(record.outcome for record in recording.requests)
    assert outcomes == Counter(
        {
            k: v
            for k, v in {
                "hit": result.hits,
                "miss": result.misses,
                "dropped": result.dropped,
            }.items()
            if v
        }
    )
    assert result.requests == len(numbers) == sum(item.requests for item in result.workflows)
    by_number = sorted(recording.requests)
    assert [record.arrival_ms for record in by_number] == list(arrivals.times_ms)
    ends_ms = [record.end_ms for record in recording.requests]
    assert ends_ms == sorted(ends_ms)
    for record in recording.requests:
        assert record.end_ms >= record.arrival_ms
        if record.outcome != "dropped":
            met = record.end_ms - record.arrival_ms <= record.slo_ms
            assert record.outcome == ("hit" if met else "miss")
    assert sum(result.latency.counts) == result.hits + result.misses


def phases_add_up(recording):
    """On the longest chain of stages nothing happens but the four phases."""
    for record in recording.requests:
        phases_ms = record.queue_ms + record.start_ms + record.transfer_ms + record.execute_ms
        assert phases_ms == pytest.approx(record.end_ms - record.arrival_ms, abs=1e-6)


def runs_add_up(recording, result):
    """The cost is the sum of what ran, and the requests' parts are the whole of it."""
    begins_ms = [span.begin_ms for span in recording.spans]
    assert begins_ms == sorted(begins_ms)
    assert result.ran_dollars == pytest.approx(
        sum(span.cost_dollars for span in recording.spans), abs=1e-12
    )
    assert result.runs == len(recording.spans)
    for span in recording.spans:
        assert 1 <= span.jobs <= span.batch
        assert span.execute_ms == pytest.approx(span.begin_ms + span.start_ms + span.transfer_ms)
        dollars_hour = span.cpu * 0.034 + span.gpu_percent / 100 * 4.69
        hours = (span.end_ms - span.execute_ms) / 3_600_000
        assert span.cost_dollars == pytest.approx(hours * dollars_hour)
    if not result.dropped:
        assert result.ran_dollars == pytest.approx(
            sum(record.cost_dollars for record in recording.requests)
        )
        assert result.mean_batch_size * result.runs == pytest.approx(
            sum(span.jobs for span in recording.spans)
        )


def runs_fit(recording, scenario):
    """From the runs alone: at each begin, what overlaps it on the GPU and the node."""
    for span in recording.spans:
        overlapping = [
            item for item in recording.spans if item.begin_ms <= span.begin_ms < item.end_ms
        ]
        on_gpu = [item for item in overlapping if item.gpu == span.gpu]
        assert sum(item.gpu_percent for item in on_gpu) <= 100
        assert sum(item.memory_mib for item in on_gpu) <= scenario.memory_mib - CONTEXT_MIB
        assert len({item.container for item in on_gpu}) == len(on_gpu)
        on_node = [item for item in overlapping if item.node == span.node]
        assert sum(item.cpu for item in on_node) <= scenario.cpus
