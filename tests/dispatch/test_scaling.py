"""Pods from demand: which share, how many, when they start and when they stop."""

from dataclasses import replace
from itertools import pairwise
from math import ceil, inf

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler.dispatch.pods import Pod, PodStart, PodState, Share
from scheduler.dispatch.scaling.pod_targets import SURPLUS_MS
from scheduler.dispatch.scaling.scaler import PodLimits, Scaler
from scheduler.dispatch.scaling.sizing import PodPrices, Sizing, WorkflowLoad, _share, _sizes
from scheduler.dispatch.scaling.staffing import staffed_pods
from scheduler.model.plan import Prices
from tests.dispatch.harness import SPACE, Owner
from tests.examples import examples
from workbench.profiles.builders import GPU, profile, workflow

ROWS = [
    (batch, cpu, percent, 100 * batch**0.6 / (percent / 20) ** 0.6 / cpu**0.2)
    for batch in (1, 4)
    for cpu in (1, 4)
    for percent in (20, 40, 100)
]
PROFILES = {name: profile(name, ROWS, cold_start_ms=500.0) for name in ("f0", "f1")}
PRICES = PodPrices(Prices(), 8.0)
KEY = (SPACE, "f0")
SMALL = PodStart(KEY, Share(GPU, 1, 20, 400))


def path_ms(document, choice):
    """Longest path, slowly."""

    def end_ms(name):
        stage = document.stage(name)
        before = max((end_ms(p) for p in stage.after), default=0.0)
        return before + choice[stage.function].stage_ms

    return max(end_ms(stage.name) for stage in document.spec.stages)


@given(
    limits_ms=st.lists(st.floats(100.0, 900.0), min_size=2, max_size=2),
    rate=st.floats(0.001, 0.2),
)
@examples(50)
def test_sizes_keep_every_workflow_in_time_if_any_do(limits_ms, rate):
    """Only a workflow that is too slow at the fastest sizes is late; no size can be cheaper."""
    shapes = [[[], [0], [0], [1, 2]], [[], [0]]]
    documents = [
        workflow(after, name=f"w{i}", functions=["f0", "f1"] * (len(after) // 2))
        for i, after in enumerate(shapes)
    ]
    loads = [
        WorkflowLoad(document, rate, limit_ms)
        for document, limit_ms in zip(documents, limits_ms, strict=True)
    ]
    sizing = Sizing(loads, PROFILES, PodPrices(Prices()))
    choice = sizing.choice()
    fastest = {f: min(sizes, key=lambda s: s.stage_ms) for f, sizes in sizing._sizes.items()}
    in_time = [path_ms(load.document, choice) <= load.limit_ms for load in loads]
    for load, is_in_time in zip(loads, in_time, strict=True):
        assert is_in_time or path_ms(load.document, fastest) > load.limit_ms
    if all(in_time):
        for function, sizes in sizing._sizes.items():
            for size in sizes:
                changed = {**choice, function: size}
                assert size.dollars_per_hour >= choice[function].dollars_per_hour or any(
                    path_ms(load.document, changed) > load.limit_ms for load in loads
                )


@pytest.mark.parametrize(("cpu_beside", "cpu"), [(1, 2), (4, 1)])
def test_vcpus_that_are_spare_next_to_the_gpus_make_pods_faster(cpu_beside, cpu):
    """They are spare if the pods of the other function leave them; memory is that of the share."""
    tall = [(1, 1, 20, 100.0), (1, 2, 20, 95.0), (4, 1, 20, 550.0), (4, 2, 20, 500.0)]
    wide = [(1, cpu_beside, 40, 100.0)]
    profiles = {"f0": profile("f0", wide), "f1": profile("f1", tall)}
    prices = replace(PRICES, gpu_memory_mib={GPU: 1_700})
    load = WorkflowLoad(workflow([[], [0]], functions=["f0", "f1"]), 0.1, 1_000.0)
    size = Sizing([load], profiles, prices).choice()["f1"]
    assert (size.configuration.cpu, size.configuration.gpu_percent) == (cpu, 20)
    assert prices.pod_memory_mib(profiles["f1"], size) == 100


def test_vcpus_that_strand_a_share_cost_as_much_as_the_share():
    """Half of a node's vCPUs cost half of its GPU, however small the pod's share is."""
    wide, narrow = PROFILES["f0"].spec.gpus[0].configurations[3:6:2]
    assert (wide.cpu, wide.gpu_percent, narrow.cpu, narrow.gpu_percent) == (4, 20, 4, 100)
    ratio = PRICES.dollars_per_hour(GPU, narrow) / PRICES.dollars_per_hour(GPU, wide)
    assert ratio == pytest.approx(2.0, rel=0.02)
    own = PodPrices(Prices())
    assert own.dollars_per_hour(GPU, narrow) > 4 * own.dollars_per_hour(GPU, wide)


def test_memory_counts_like_the_share():
    """A pod that takes half of a GPU's memory costs half of the GPU."""
    [point, *_] = PROFILES["f0"].spec.gpus[0].configurations
    assert (point.cpu, point.gpu_percent) == (1, 20)
    prices = replace(PRICES, gpu_memory_mib={GPU: 2 * point.memory_mib})
    ratio = prices.dollars_per_hour(GPU, point) / PRICES.dollars_per_hour(GPU, point)
    assert ratio == pytest.approx(2.5, rel=0.02)


@given(total_mib=st.integers(200, 4_000), batch=st.sampled_from([1, 4]))
def test_memory_is_that_of_the_largest_batch_that_costs_no_other_pod(total_mib, batch):
    """It is at least that of the size's batch, and beyond that no larger part than the share's."""
    known = PROFILES["f0"]  # 100 MiB for each of a batch
    size = next(
        size
        for size in _sizes(known, 0.1, PRICES)
        if (size.configuration.batch, *_share(size)[1:]) == (batch, 1, 40)
    )
    memory_mib = replace(PRICES, gpu_memory_mib={GPU: total_mib}).pod_memory_mib(known, size)
    assert memory_mib == (400 if batch == 4 or 0.4 * total_mib >= 400 else 100)
    assert PRICES.pod_memory_mib(known, size) == 400


def test_large_pools_need_relatively_less_reserve():
    """Reserve grows with the square root of the load, at most."""
    assert staffed_pods(0.0, 0.99) == 0.0
    assert staffed_pods(100.0, 0.99) - 100.0 < 5.0 * (staffed_pods(4.0, 0.99) - 4.0)


@pytest.mark.parametrize("run_wait_ratio", [0.0, 1.0])
def test_the_reserve_grows_with_the_objective(run_wait_ratio):
    """Without a wait, 0.99 needs 2.4 times the square root of the load."""
    reserves = [
        staffed_pods(4.0, objective, run_wait_ratio) - 4.0 for objective in (0.9, 0.95, 0.99)
    ]
    assert reserves == sorted(set(reserves))
    assert staffed_pods(4.0, 0.99, 0.0) == pytest.approx(4.0 + 2.4 * 2.0, rel=0.01)


def test_a_longer_wait_needs_less_reserve():
    """Rows that may wait for a run need fewer pods than rows that may not."""
    assert staffed_pods(9.0, 0.99, 1.0) < staffed_pods(9.0, 0.99, 0.5) < staffed_pods(9.0, 0.99, 0)


def test_rows_that_come_together_need_more_reserve():
    """Without a wait the reserve is that of the square root of the variance."""
    regular, poisson, bursty = (
        staffed_pods(9.0, 0.99, run_wait_ratio=1.0, dispersion_ratio=ratio)
        for ratio in (0.25, 1.0, 4.0)
    )
    assert 9.0 < regular < poisson < bursty
    no_waits = [staffed_pods(9.0, 0.99, 0.0, ratio) - 9.0 for ratio in (0.25, 1.0, 4.0)]
    assert no_waits == pytest.approx([no_waits[1] / 2, no_waits[1], 2 * no_waits[1]])


def with_objective(document, objective):
    """Return a workflow with an SLO of 400 ms."""
    slo = document.spec.slo.model_copy(update={"latency_ms": 400.0, "objective": objective})
    return document.model_copy(update={"spec": document.spec.model_copy(update={"slo": slo})})


class Scaled:
    """A dispatcher with its scaler; pods are ready at once.

    Attributes:
        room: number of pods that can run.
        start_fails_after_ms: time until the start of another one fails; 0: it fails at once.
        found_room: true if those fail for another reason.
    """

    def __init__(
        self, *, rate_rps=0.0, workflows=("w",), objective=0.99, profiles=PROFILES, **limits
    ):
        documents = [with_objective(workflow([[]], name=name), objective) for name in workflows]
        self.owner = Owner([*profiles.values(), *documents])
        self.scaler = Scaler(self.owner.dispatcher, PRICES)
        self.scaler.set_limits(KEY, PodLimits(**limits))
        self.scaler.expect((SPACE, "w"), rate_rps)
        self.room, self.number = 1_000, 0
        self.start_fails_after_ms, self.found_room = 0.0, False
        self.failing = []
        self.stopped = []

    @property
    def pods(self):
        return list(self.owner.dispatcher.pods)

    def scale(self, now_ms):
        while self.failing and self.failing[0][0] <= now_ms:
            failed_ms, start, pod = self.failing.pop(0)
            self.owner.dispatcher.remove_pod(pod, failed_ms)
            self.scaler.start_failed(start, failed_ms, found_room=self.found_room)
        changes = self.scaler.changes(now_ms)
        for pod in changes.stops:
            self.owner.dispatcher.remove_pod(pod, now_ms)
            self.stopped.append(pod)
        for start in changes.starts:
            has_room = len(self.pods) < self.room
            if not has_room and not self.start_fails_after_ms:
                self.scaler.start_failed(start, now_ms)
                continue
            self.number += 1
            pod = Pod(str(self.number), start.function, start.share, state=PodState.READY)
            pod.ready_ms = pod.idle_since_ms = now_ms
            if not has_room:
                pod.state, pod.ready_ms = PodState.STARTING, now_ms + 60_000.0
                self.failing.append((now_ms + self.start_fails_after_ms, start, pod))
            self.owner.dispatcher.add_pod(pod, now_ms)
        return changes

    def end_runs(self, now_ms):
        """End the runs that end by now, each at its time, and look at what is due."""
        if self.owner.dispatcher.wake_at_ms <= now_ms:
            self.owner.dispatcher.wake(now_ms)
        while due := [run for run in self.owner.open_runs if run.end_ms <= now_ms]:
            first = min(due, key=lambda run: run.end_ms)
            self.owner.dispatcher.run_ended(first, first.end_ms)

    def serve(self, begin_s, end_s):
        """Serve one request in 50 ms, in time; return the number of pods by the second."""
        counts = {}
        for now_ms in range(1_000 * begin_s, 1_000 * end_s, 50):
            self.owner.arrive(now_ms=float(now_ms))
            self.end_runs(now_ms + 49.0)
            if now_ms % 1_000 == 0:
                self.scale(float(now_ms))
                counts[now_ms // 1_000] = len(self.pods)
        return counts


def test_an_expected_rate_has_its_pods_before_the_first_request():
    """They are enough for the rate, with a reserve, and no more come without a reason."""
    scaled = Scaled(rate_rps=40.0)
    scaled.scale(0.0)
    count = len(scaled.pods)
    assert count > 1
    scaled.scale(1_000.0)
    assert len(scaled.pods) == count


def test_a_rise_is_seen_within_seconds():
    """Five seconds of a rate that nobody expected bring the pods that it needs."""
    scaled = Scaled()
    expected = Scaled(rate_rps=50.0)
    expected.scale(0.0)
    now_ms = 0.0
    scaled.scale(now_ms)
    for _ in range(5):
        for i in range(50):
            scaled.owner.arrive(now_ms=now_ms + 20.0 * i)
            scaled.end_runs(now_ms + 20.0 * i)
        now_ms += 1_000.0
        scaled.scale(now_ms)
    assert len(scaled.pods) >= 0.7 * len(expected.pods)


def test_pods_come_for_rows_that_are_late_already():
    """Rows that cannot be in time any more bring pods too: the next ones shall be."""
    scaled = Scaled(rate_rps=2.0)
    scaled.scale(0.0)
    count = len(scaled.pods)
    for i in range(200):
        scaled.owner.arrive(now_ms=float(i), deadline_ms=i + 1.0)
    scaled.scale(1_000.0)
    assert len(scaled.pods) == 2 * count


def with_late_rows(objective, number):
    """Return a scaler after a minute in time and a second with late rows; and the pods before."""
    scaled = Scaled(rate_rps=20.0, objective=objective)
    count = scaled.serve(0, 60)[59]
    for i in range(number):
        now_ms = 60_000.0 + i
        scaled.owner.arrive(now_ms=now_ms, deadline_ms=now_ms + 1.0)
    scaled.scale(60_500.0)
    assert scaled.owner.dispatcher.functions[KEY].late_rows
    return scaled, count


@pytest.mark.parametrize(("objective", "grows"), [(0.9, False), (0.99, True)])
def test_late_rows_bring_pods_only_below_the_objective(objective, grows):
    """Thirty late rows after many in time are fewer than one of the objectives allows."""
    scaled, count = with_late_rows(objective, 30)
    assert (len(scaled.pods) > count) is grows


@pytest.mark.slow
def test_pods_for_late_rows_go_when_the_objective_is_kept():
    """The number comes back to that of the rate, which is known to a fifth."""
    scaled, count = with_late_rows(0.99, 100)
    counts = scaled.serve(61, 300)
    assert max(counts.values()) >= count + 3
    assert counts[299] <= count + 1


def test_surplus_pods_go_by_half_in_half_a_minute():
    """The last pod of a function stays for the keep-alive."""
    scaled = Scaled(keep_alive_ms=120_000.0, min_pods=11)
    scaled.scale(0.0)
    scaled.scaler.set_limits(KEY, PodLimits(keep_alive_ms=120_000.0))
    counts = {}
    for now_s in range(1, 140):
        scaled.scale(1_000.0 * now_s)
        counts[now_s] = len(scaled.pods)
    assert [counts[now_s] for now_s in (30, 32, 63, 94, 119, 130)] == [11, 5, 2, 1, 1, 0]


def test_rows_that_join_after_their_deadline_bring_no_pods():
    """No pod could have helped them: they were late already, as those from an earlier stage."""
    scaled = Scaled(rate_rps=200.0)
    scaled.scale(0.0)
    count = len(scaled.pods)
    for i in range(200):
        scaled.owner.arrive(now_ms=5.0 * i, deadline_ms=5.0 * i - 1.0)
    scaled.scale(1_000.0)
    assert scaled.owner.dispatcher.functions[KEY].late_rows
    assert len(scaled.pods) == count


@pytest.mark.parametrize("is_full", [False, True], ids=["max_pods", "a full cluster"])
def test_requests_that_miss_for_want_of_pods_bring_no_further_reserve(is_full):
    """More could not come, and would be too many when the load is over."""
    scaled = Scaled(**({} if is_full else {"max_pods": 1}))
    scaled.room = 1 if is_full else 1_000
    scaled.serve(0, 120)
    [workflow_queues] = scaled.owner.dispatcher.workflows.values()
    assert len(scaled.pods) == 1
    assert workflow_queues.shortfall_ratio > 1.0
    assert workflow_queues.reserve.ratio == 0.0


def test_rare_requests_that_wait_for_a_start_bring_no_further_reserve():
    """Each finds no pod, and is late when one is ready; another one would not be sooner."""
    scaled = Scaled(keep_alive_ms=1_000.0)
    dispatcher = scaled.owner.dispatcher
    scaled.room, scaled.start_fails_after_ms = 0, 1e9  # no pod is ready at once
    for i in range(40):
        begin_ms = 600_000.0 * i
        scaled.owner.arrive(now_ms=begin_ms)
        scaled.scale(begin_ms)
        dispatcher.wake(begin_ms + 1_000.0)
        scaled.scale(begin_ms + 1_000.0)
        for pod in scaled.pods:
            dispatcher.pod_ready(pod, begin_ms + 2_000.0)
        scaled.scale(begin_ms + 2_000.0)
        scaled.end_runs(begin_ms + 3_000.0)
        scaled.scale(begin_ms + 30_000.0)
    [workflow_queues] = dispatcher.workflows.values()
    assert workflow_queues.shortfall_ratio > 1.0
    assert workflow_queues.reserve.ratio == 0.0


def test_limits_hold():
    """``minPods`` are there without a request, and ``maxPods`` with any number."""
    assert len(Scaled(min_pods=3).scale(0.0).starts) == 3
    assert len(Scaled(max_pods=2, rate_rps=500.0).scale(0.0).starts) == 2


@pytest.mark.parametrize("is_restarted", [True, False])
def test_pods_of_a_function_without_a_workflow_end_after_the_keep_alive(is_restarted):
    """``minPods`` too, and also those that a scaler finds at its start."""
    limits = {"min_pods": 3, "keep_alive_ms": 120_000.0}
    scaled = Scaled(**limits)
    scaled.scale(0.0)
    scaled.owner.dispatcher.remove_workflow((SPACE, "w"), 1_000.0)
    if is_restarted:
        scaled.scaler = Scaler(scaled.owner.dispatcher, PRICES)
        scaled.scaler.set_limits(KEY, PodLimits(**limits))
    counts = {}
    for now_s in range(1, 140):
        scaled.scale(1_000.0 * now_s)
        counts[now_s] = len(scaled.pods)
    assert (counts[119], counts[139]) == (3 if is_restarted else 1, 0)
    assert scaled.scaler.pods_wanted(KEY) == 0


def test_the_pods_that_a_function_needs_are_shown():
    """They may be more than its maximum; before the first decision there are none."""
    scaled = Scaled(min_pods=2, max_pods=3)
    assert scaled.scaler.pods_wanted(KEY) == 0
    scaled.scale(0.0)
    assert scaled.scaler.pods_wanted(KEY) == 2
    busy = Scaled(max_pods=2, rate_rps=500.0)
    busy.scale(0.0)
    assert busy.scaler.pods_wanted(KEY) > len(busy.pods) == 2


def test_a_request_without_a_pod_starts_one():
    """A function that nobody called has no pod; the first request brings it."""
    scaled = Scaled()
    assert not scaled.scale(0.0).starts
    scaled.owner.arrive(now_ms=100.0)
    assert len(scaled.scale(1_000.0).starts) == 1


@pytest.mark.parametrize("number", [1, 2, 3, 40])
def test_functions_of_many_workflows_have_no_pods_without_requests(number):
    """None starts before the first request, and none stays; shares are chosen once."""
    names = [f"w{i}" for i in range(number)]
    scaled = Scaled(workflows=names, keep_alive_ms=1_000.0)
    assert not scaled.scale(0.0).starts
    for i, name in enumerate(names):
        scaled.owner.arrive(now_ms=100.0 + i, name=name)
    for now_ms in range(1_000, 300_000, 1_000):
        scaled.end_runs(float(now_ms))
        scaled.scale(float(now_ms))
    assert scaled.stopped
    assert not scaled.pods
    assert not scaled.scaler.share_choices(300_000.0)


def starts_of_rare_requests(scaled):
    """Serve a request each 100 s, and return when pods started, once the gaps are known."""
    scaled.scale(0.0)
    starts_ms = []
    for now_ms in range(1_000, 1_400_000, 1_000):
        if now_ms % 100_000 == 0:
            scaled.owner.arrive(now_ms=float(now_ms))
        scaled.end_runs(now_ms + 50.0)
        if scaled.scale(now_ms + 100.0).starts and now_ms > 800_000:
            starts_ms.append(now_ms)
    return starts_ms


def test_rare_requests_find_the_last_pod():
    """It has learned to stay for longer than the gaps of 100 s."""
    scaled = Scaled()
    assert not starts_of_rare_requests(scaled)
    assert len(scaled.pods) == 1


def test_with_a_keep_alive_of_its_own_each_rare_request_starts_a_pod():
    """Nothing returns before it, and nothing is kept for longer."""
    starts_ms = starts_of_rare_requests(Scaled(keep_alive_ms=1_000.0))
    assert [start_ms % 100_000 for start_ms in starts_ms] == [0] * len(starts_ms) != []


@pytest.mark.parametrize(
    ("p95_ms", "before_s"), [(None, 2), pytest.param(30_000.0, 32, marks=pytest.mark.slow)]
)
def test_a_pod_returns_the_95th_percentile_of_a_start_before_the_request(p95_ms, before_s):
    """A request each quarter of an hour: the pod ends, and returns a minute before the next one."""
    slow = profile("f0", ROWS, cold_start_ms=500.0, cold_start_p95_ms=p95_ms)
    scaled = Scaled(profiles={"f0": slow})
    scaled.scale(0.0)
    period_ms, starts_ms, pods = 900_000, [], {}
    for now_ms in range(1_000, 8 * period_ms, 1_000):
        if now_ms % period_ms == 0:
            scaled.owner.arrive(now_ms=float(now_ms))
        scaled.end_runs(now_ms + 50.0)
        if scaled.scale(now_ms + 100.0).starts:
            starts_ms.append(now_ms % period_ms)
        pods[now_ms] = len(scaled.pods)
    assert starts_ms[-1] == 840_000 - 1_000 * (before_s - 1)
    assert pods[7 * period_ms + 300_000] == 0
    assert pods[8 * period_ms - 1_000] == 1


def test_a_rise_doubles_at_most_and_nothing_goes_right_after_it():
    """Each second at most doubles the pods; surplus goes half a minute after the last rise.

    Pods of a share that is no longer chosen may go before.
    """
    scaled = Scaled(keep_alive_ms=5_000.0)
    counts, now_ms, raised_ms = [], 0.0, 0.0
    for _ in range(60):
        for i in range(50):
            scaled.owner.arrive(now_ms=now_ms + 20.0 * i)
        now_ms += 1_000.0
        scaled.end_runs(now_ms)
        if starts := scaled.scale(now_ms).starts:
            raised_ms, share = now_ms, starts[-1].share
        counts.append(len(scaled.pods))
    assert all(b <= max(2 * a, 1) for a, b in pairwise(counts))
    assert counts[-1] > 4
    while scaled.owner.open_runs:
        scaled.end_runs(now_ms)
    while share not in {pod.share for pod in scaled.stopped}:
        now_ms += 1_000.0
        scaled.scale(now_ms)
    assert now_ms - raised_ms >= SURPLUS_MS
    for _ in range(200):
        now_ms += 1_000.0
        scaled.end_runs(now_ms)
        scaled.scale(now_ms)
    assert not scaled.pods


def test_late_rows_that_wait_for_spare_pods_bring_no_more():
    """They bring some while they are new, and the rate of arrivals does; then no more come."""
    scaled = Scaled(rate_rps=2.0)
    scaled.scale(0.0)
    for i in range(200):
        scaled.owner.arrive(now_ms=float(i), deadline_ms=i + 1.0)
    counts = []
    for now_ms in range(1_000, 12_000, 1_000):
        scaled.scale(float(now_ms))
        counts.append(len(scaled.pods))
    assert scaled.owner.dispatcher.functions[KEY].late_rows > 100
    assert len({*counts[4:]}) == 1


def test_another_share_is_chosen_where_not_one_pod_of_the_first_can_be_started():
    """A share without a pod is refused for a while; one that has pods is only tried less often."""
    scaled = Scaled(rate_rps=20.0)
    scaled.room = 0
    first = scaled.scale(0.0).starts[0]
    second = scaled.scale(1_000.0).starts[0]
    assert second.share != first.share
    scaled.room = 1
    (third, *_) = scaled.scale(2_000.0).starts
    assert third.share not in {first.share, second.share}
    scaled.room = 1_000
    shares = {start.share for now_ms in (3_000.0, 4_000.0) for start in scaled.scale(now_ms).starts}
    assert shares <= {third.share}


def test_a_failure_of_a_pod_that_nobody_asked_for_is_no_error():
    """A pod adopted from before a restart may fail before the first look."""
    scaled = Scaled()
    scaled.scaler.start_failed(SMALL, 0.0)
    assert scaled.scaler.failures == 1


def failed_pauses_ms(scaler, start, number):
    """Report failures of a start, each at the end of the pause before; return the pauses."""
    pauses_ms = []
    for _ in range(number):
        now_ms = max(scaler.backoffs.paused_until_ms(start.function, start.share), 0.0)
        scaler.start_failed(start, now_ms)
        pauses_ms.append(scaler.backoffs.paused_until_ms(start.function, start.share) - now_ms)
    return pauses_ms


def test_pauses_double_up_to_the_longest():
    """The owner says how long the first and the longest are."""
    scaler = Scaler(Owner([]).dispatcher, PRICES, pause_ms=(5_000.0, 30_000.0))
    pauses_ms = failed_pauses_ms(scaler, SMALL, 5)
    assert pauses_ms == [5_000.0, 10_000.0, 20_000.0, 30_000.0, 30_000.0]


def test_pods_that_fail_together_make_one_pause():
    """Those that fail within it were started before."""
    scaler = Scaled().scaler
    for now_ms in (0.0, 400.0, 900.0):
        scaler.start_failed(SMALL, now_ms)
        assert scaler.backoffs.paused_until_ms(KEY) == 1_000.0


def test_a_start_that_has_proved_its_share_begins_with_the_first_pause_again():
    """Failures with another share of the function still count."""
    scaler, large = Scaled().scaler, PodStart(KEY, Share(GPU, 1, 100, 400))
    for start in (SMALL, large):
        assert failed_pauses_ms(scaler, start, 3) == [1_000.0, 2_000.0, 4_000.0]
    assert scaler.backoffs.paused_until_ms(KEY, SMALL.share) == 7_000.0
    scaler.backoffs.proved(SMALL)
    assert scaler.backoffs.paused_until_ms(KEY, SMALL.share) == -inf
    assert scaler.backoffs.paused_until_ms(KEY) == 7_000.0
    assert failed_pauses_ms(scaler, SMALL, 1) == [1_000.0]
    assert failed_pauses_ms(scaler, large, 1) == [8_000.0]


def test_a_function_with_another_server_has_no_failures():
    """Those of other functions still count."""
    scaler, of_another = Scaled().scaler, PodStart((SPACE, "f1"), SMALL.share)
    for start in (SMALL, of_another):
        failed_pauses_ms(scaler, start, 2)
    scaler.backoffs.forget(KEY)
    assert failed_pauses_ms(scaler, SMALL, 1) == [1_000.0]
    assert failed_pauses_ms(scaler, of_another, 1) == [4_000.0]


@pytest.mark.parametrize("fails_after_ms", [0.0, 1_500.0], ids=["at once", "while it starts"])
def test_a_start_that_fails_is_tried_again_later_and_later(fails_after_ms):
    """The attempts back off, so that a full cluster is not asked every second.

    A pod that starts counts as one, and is no proof that it will work.
    """
    scaled = Scaled(rate_rps=100.0)
    scaled.room, scaled.start_fails_after_ms = 2, fails_after_ms
    attempts_s = [second for second in range(120) if scaled.scale(1_000.0 * second).starts]
    gaps_s = [b - a for a, b in pairwise(attempts_s)]
    assert gaps_s == sorted(gaps_s)
    assert gaps_s[0] <= 2 + fails_after_ms / 1_000
    assert gaps_s[-1] >= 16
    assert scaled.scaler.failures > 0


def test_pods_of_a_share_that_is_not_chosen_go_once_the_others_suffice():
    """A pod that somebody sized otherwise serves until then."""
    scaled = Scaled(rate_rps=20.0)
    old = scaled.owner.pod("old", percent=100, memory_mib=999)
    assert old.share != Share(GPU, 1, 20, 400)
    scaled.scale(0.0)
    assert scaled.stopped == []
    scaled.scale(1_000.0)
    assert scaled.stopped == [old]


def test_pods_of_a_share_that_is_not_chosen_go_one_in_a_second():
    """And none more, once rows wait that cannot be served in time."""
    scaled = Scaled(rate_rps=20.0)
    for i in range(5):
        scaled.owner.pod(f"old{i}", percent=100, memory_mib=999)
    counts = []
    for now_ms in range(0, 3_500, 500):
        scaled.scale(float(now_ms))
        counts.append(len(scaled.stopped))
    assert counts == [0, 1, 1, 2, 2, 3, 3]
    for i in range(400):
        scaled.owner.arrive(now_ms=3_500.0 + i / 10, deadline_ms=6_000.0)
    scaled.scale(4_000.0)
    assert len(scaled.stopped) == 3


def test_a_start_without_room_ends_only_pods_whose_shares_it_needs():
    """Pods of other shares serve until then, and the least recently used go first."""
    scaled = Scaled(rate_rps=20.0)
    old = [scaled.owner.pod(f"old{i}", percent=10, memory_mib=100) for i in range(20)]
    for i, pod in enumerate(old):
        pod.idle_since_ms = float(i)
    scaled.room = len(old) + 1
    without_room = scaled.scale(0.0).starts[1:]
    assert without_room
    needed = [sum(start.share[i] for start in without_room) for i in (1, 2, 3)]
    scaled.scale(100.0)
    assert scaled.stopped == old[: max(map(ceil, (needed[0], needed[1] / 10, needed[2] / 100)))]


def test_a_start_that_fails_with_room_ends_no_other_pod():
    """A pod whose model cannot be loaded does not lack room."""
    scaled = Scaled(rate_rps=20.0)
    for i in range(20):
        scaled.owner.pod(f"old{i}", percent=10, memory_mib=100)
    scaled.room, scaled.start_fails_after_ms, scaled.found_room = 21, 50.0, True
    for now_ms in (0.0, 100.0):
        scaled.scale(now_ms)
    assert scaled.scaler.failures
    assert scaled.stopped == []
