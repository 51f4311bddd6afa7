"""Policy `warm`: the live dispatcher and scaler over simulated pods with fixed shares."""

from collections import defaultdict
from heapq import heappop, heappush
from itertools import count

import numpy as np
import pytest

from scheduler.dispatch.dispatcher import Dispatcher
from scheduler.dispatch.pods import Pod, PodState
from scheduler.dispatch.requests import PlainPart
from scheduler.dispatch.scaling.pod_counts import PERIOD_MS
from scheduler.dispatch.scaling.scaler import PodLimits, Scaler
from scheduler.dispatch.scaling.sizing import PodPrices
from scheduler.dispatch.workflow_queues import ServerSettings
from scheduler.model.catalogue import Catalogue
from scheduler.model.plan import Prices
from tests.simulation.harness import Listed, Poisson, one_function, quiet, run
from workbench.profiles.builders import profile, workflow
from workbench.profiles.generated import samples
from workbench.simulation.arrival_stream import expected_rates_rps
from workbench.simulation.live import simulation as warm_simulation
from workbench.simulation.scenario import Scenario, ScenarioError
from workbench.simulation.scenario_catalogue import shaped

ROWS = [
    (batch, cpu, percent, 100 * batch**0.6 / (percent / 20) ** 0.6 / cpu**0.2)
    for batch in (1, 2, 4)
    for cpu in (1, 2)
    for percent in (20, 40, 100)
]


def forked(output_mib=0.0):
    """A workflow with two branches, and a chain."""
    return Catalogue.of(
        [
            workflow([[], [0], [0], [1, 2]], slo_ms=600.0, functions=["f0", "f1", "f0", "f1"]),
            workflow([[], [0]], slo_ms=350.0, functions=["f1", "f0"], name="chain"),
            profile("f0", ROWS, cold_start_ms=400.0, output_mib=output_mib),
            profile("f1", ROWS, cold_start_ms=300.0, output_mib=output_mib),
        ]
    )


FORKED = forked()
KEYS = tuple(FORKED.workflows)


def test_requests_are_served_in_time_by_pods_that_hold_their_share():
    """All requests end; idle shares are paid in addition to the runs."""
    arrivals = Poisson(mean_ms=40.0, seed=1, workflows=KEYS)
    result = run(quiet(nodes=8), FORKED, arrivals, "warm", requests=400).result
    assert result.hits + result.misses == 400
    assert result.hit_ratio > 0.95
    assert result.idle_dollars > 0.0
    assert result.cold_starts == 0


def test_pods_are_cold_starts_and_no_predictions():
    """A pod that starts for an empty cluster counts once."""
    scenario = quiet(nodes=8, warm_containers=0)
    result = run(scenario, FORKED, Poisson(40.0, 1, KEYS), "warm", requests=100).result
    assert result.cold_starts > 0
    assert result.prewarmed == 0


def test_what_the_dispatcher_does_not_do_is_refused():
    """Otherwise it would keep the requests that the other policies of a comparison drop."""
    with pytest.raises(ScenarioError, match=r"policy warm .*remove `give_up_factor`"):
        run(quiet(give_up_factor=2.0), FORKED, Listed([0.0], [0], KEYS), "warm")


def test_transfers_are_a_phase_of_their_own():
    """Those on the chain of stages that ended last; all phases together are the latency."""
    arrivals = Poisson(mean_ms=40.0, seed=1, workflows=KEYS)
    scenario = quiet(nodes=8, bandwidth_mib_s=100.0)
    recording = run(scenario, forked(output_mib=1.0), arrivals, "warm", requests=400)
    transfers_ms = defaultdict(dict)
    for span in recording.spans:
        for number, stage in span.requests:
            transfers_ms[number][stage] = span.transfer_ms
    chain = KEYS.index(("default", "chain"))
    for record in recording.requests:
        phases_ms = record.queue_ms + record.start_ms + record.transfer_ms + record.execute_ms
        assert phases_ms == pytest.approx(record.end_ms - record.arrival_ms)
        ran_ms = transfers_ms[record.number]
        ways = [(0, 1)] if record.workflow == chain else [(0, 1, 3), (0, 2, 3)]
        chains_ms = [sum(ran_ms[stage] for stage in way) for way in ways]
        assert any(record.transfer_ms == pytest.approx(way_ms) for way_ms in chains_ms)
    assert {record.workflow for record in recording.requests if record.transfer_ms > 0.0} == {0, 1}


@pytest.mark.slow
def test_pods_start_for_the_first_requests_of_an_empty_cluster():
    """The first requests wait for a cold start, the later ones do not."""
    scenario = quiet(nodes=8, warm_containers=0)
    arrivals = Poisson(mean_ms=40.0, seed=1, workflows=KEYS)
    recording = run(scenario, FORKED, arrivals, "warm", requests=400)
    assert recording.result.cold_starts > 0
    waited = [request.start_ms > 0.0 for request in recording.requests]
    assert sum(waited) < 60
    assert not any(waited[200:])


def test_idle_pods_end_after_their_keep_alive():
    """After a long pause nothing holds a share any more, and the next request finds no pod."""
    catalogue = one_function([(1, 1, 50, 100)], slo_ms=300.0, cold_start_ms=50.0)
    times_ms = [*range(0, 20_000, 500), 600_000]
    scenario = quiet(keep_alive_ms=60_000.0)
    recording = run(scenario, catalogue, Listed(times_ms), "warm")
    assert 0.0 in recording.result.gpu_utilisation
    assert recording.requests[-1].start_ms > 0.0


@pytest.mark.slow
@pytest.mark.replaces
@pytest.mark.parametrize("mean_ms", [25.0, 60.0])
def test_the_same_trace_gives_the_same_batches_live(mean_ms, monkeypatch):
    """Batches, pods and their order are those of an owner with a clock and pods of its own.

    Both start pods as the scaler says, and all that they share is `scheduler.dispatch`. The live
    pods are on the nodes where the simulated cluster has placed its own.
    """
    simulated, nodes = [], []

    class Recorded(Dispatcher):
        def add_pod(self, pod, now_ms):
            nodes.append(pod.node)
            super().add_pod(pod, now_ms)

        def _begin(self, run):
            simulated.append(described(run, lambda payload: payload.number))
            super()._begin(run)

    monkeypatch.setattr(warm_simulation, "Dispatcher", Recorded)
    times_ms = np.cumsum(np.random.default_rng(3).exponential(mean_ms, 500)).round().tolist()
    numbers = np.random.default_rng(4).integers(0, 2, 500).tolist()
    scenario = quiet(nodes=40, warm_containers=0, margin_ratio=None)
    arrivals = Listed(times_ms, numbers, KEYS, chunk=500)
    run(scenario, FORKED, arrivals, "warm")
    live = Live(scenario, expected_rates_rps(arrivals), nodes)
    live.serve(zip(times_ms, numbers, strict=True))
    assert len(simulated) > 300
    assert live.batches == simulated


def described(run, number_of):
    """Return a batch with its pod's number, in order of the starts."""
    requests = [number_of(job.request.payload) for job in run.jobs]
    pod = int(run.pod.name.rpartition("-")[2])
    return run.begin_ms, pod, run.pod.share, run.workflow, run.stage, requests, run.batch


class Live:
    """An owner of a dispatcher outside the simulator: a heap of events, and pods by hand."""

    def __init__(self, scenario, rates_rps, nodes):
        self.batches, self.heap, self.numbers, self.ended = [], [], count(), 0
        self.pods, self.nodes = count(1), iter(nodes)
        self.dispatcher = Dispatcher(self)
        catalogue = shaped(FORKED, scenario, KEYS)
        for known in catalogue.profiles.values():
            self.dispatcher.set_profile(known)
        for document in catalogue.workflows.values():
            self.dispatcher.set_workflow(document, now_ms=0.0)
        self.scaler = Scaler(self.dispatcher, PodPrices(Prices(), scenario.cpus))
        for key in self.dispatcher.functions:
            self.dispatcher.set_server(key, ServerSettings())
            self.scaler.set_limits(key, PodLimits(keep_alive_ms=scenario.keep_alive_ms))
        for key, rate_rps in rates_rps.items():
            self.scaler.expect(key, rate_rps)

    def enter(self, request, stage, rows_max):
        return [PlainPart()]

    def begin(self, run):
        self.batches.append(described(run, lambda number: number))
        end_ms = run.execute_ms + run.profiled_ms
        self.push(end_ms, 0, lambda now_ms: self.dispatcher.run_ended(run, now_ms))

    def end(self, request, job, now_ms):
        self.ended += 1

    def push(self, time_ms, kind, call):
        heappush(self.heap, (time_ms, kind, next(self.numbers), call))

    def serve(self, arrivals):
        self.push(0.0, 2, self.scale)
        for number, (time_ms, workflow_number) in enumerate(arrivals):
            self.advance(time_ms)
            self.dispatcher.arrive(KEYS[workflow_number], number, now_ms=time_ms)
        while self.ended <= number:
            self.advance(self.heap[0][0])

    def advance(self, until_ms):
        """Do all that is due."""
        while (due_ms := min(self.heap[0][0], self.dispatcher.wake_at_ms)) <= until_ms:
            if self.heap[0][0] <= due_ms and self.heap[0][1] < 2:
                heappop(self.heap)[3](due_ms)
            elif self.dispatcher.wake_at_ms <= due_ms:
                self.dispatcher.wake(due_ms)
            else:
                heappop(self.heap)[3](due_ms)

    def scale(self, now_ms):
        changes = self.scaler.changes(now_ms)
        for pod in changes.stops:
            self.dispatcher.remove_pod(pod, now_ms)
        for start in changes.starts:
            ready_ms = now_ms + self.dispatcher.functions[start.function].cold_start_ms
            pod = Pod(
                f"live-{next(self.pods)}",
                start.function,
                start.share,
                node=next(self.nodes),
                state=PodState.STARTING,
                ready_ms=ready_ms,
            )
            self.dispatcher.add_pod(pod, now_ms)
            self.push(ready_ms, 1, lambda now_ms, pod=pod: self.dispatcher.pod_ready(pod, now_ms))
        self.push(now_ms + PERIOD_MS, 2, self.scale)


@pytest.mark.slow
@pytest.mark.parametrize("pool", [False, True], ids=["reserved", "pooled"])
def test_the_objective_is_kept_under_a_light_load(pool):
    """Staffing alone keeps 97 and 93 % here; the misses show how much more reserve is needed."""
    catalogue = Catalogue.of(samples())
    arrivals = Poisson(mean_ms=900.0, seed=1, workflows=tuple(catalogue.workflows)[:1])
    scenario = Scenario(nodes=8, slo_factor=0.8, pool=pool)
    later = run(scenario, catalogue, arrivals, "warm", requests=3_000).requests[1_500:]
    assert sum(record.outcome == "hit" for record in later) >= 0.99 * len(later)
