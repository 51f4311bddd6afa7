"""The dispatcher over any sequence of events: nothing is lost, doubled, swapped or overfilled."""

from collections import Counter
from itertools import count
from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler.dispatch.choice import OtherStageCosts
from scheduler.dispatch.pods import PodState, Share
from scheduler.dispatch.requests import PlainPart
from scheduler.dispatch.share_classes import profiled_rows
from scheduler.dispatch.workflow_queues import ServerSettings
from scheduler.model.catalogue import UnknownDocumentError
from tests.dispatch.harness import SPACE, Owner
from workbench.profiles.builders import GPU, profile, workflow

ROWS = [(1, 1, 50, 100), (2, 1, 50, 150), (4, 1, 50, 220), (1, 2, 100, 60), (2, 2, 100, 90)]
DIAMOND = workflow([[], [0], [0], [1, 2]], functions=["f0", "f1", "f0", "f1"], slo_ms=900.0)
CHAIN = workflow([[], [0]], name="chain", functions=["f1", "f0"], slo_ms=400.0)
DOCUMENTS = [profile("f0", ROWS), profile("f1", ROWS), DIAMOND, CHAIN]

EVENTS = ["arrive"] * 3 + ["end"] * 3
EVENTS += ["fail", "refuse", "cancel", "add", "ready", "drain", "remove", "wake"]
events = st.lists(
    st.tuples(
        st.sampled_from(EVENTS), st.integers(0, 7), st.sampled_from([0.0, 0.0, 1.0, 30.0, 120.0])
    ),
    max_size=60,
)


class Checked(Owner):
    """An owner that checks each batch as it is handed over."""

    def __init__(self, **settings):
        self.served, self.now_ms = Counter(), 0.0
        self.numbers = count()
        self.requests, self.cancelled, self.pods = [], [], []
        super().__init__(DOCUMENTS, parts=self.enter_parts, **settings)

    @staticmethod
    def enter_parts(request, stage, rows_max):
        number = request.payload
        if number % 4 == 3:  # more rows than fit into one batch
            return [PlainPart(rows_max, "a", (number, 0)), PlainPart(1, "a", (number, 1))]
        return [PlainPart(1 + number % 3 if rows_max > 2 else 1, "ab"[number % 2], (number, 0))]

    def begin(self, run):
        super().begin(run)
        pod = run.pod
        assert pod.state is PodState.READY
        assert len(pod.runs) <= pod.slots
        assert len({job.joinable for job in run.jobs}) == 1
        assert {job.stage for job in run.jobs} == {run.stage}
        assert {job.request.workflow for job in run.jobs} == {run.workflow}
        assert not any(job.request.ended for job in run.jobs)
        largest = profiled_rows(DOCUMENTS[0], pod.share)[1][-1].batch
        assert run.rows <= largest or len(run.jobs) == 1
        usable = [
            known
            for known in self.dispatcher.pods
            if known.function == pod.function and known.state is not PodState.DRAINING
        ]
        for job in run.jobs:
            assert job.attempts < 2 or len(run.jobs) == 1
            assert pod.name not in job.avoided or all(p.name in job.avoided for p in usable)
            assert job.part.payload[0] == job.request.payload

    def react(self, event, number, wait_ms):
        """Let time pass and one thing happen."""
        self.now_ms += wait_ms
        getattr(self, f"on_{event}")(number)
        for function in self.dispatcher.functions.values():
            waiting = [job for q in function.queues for job in (*q.jobs, *q.late.jobs)]
            assert sum(job.rows for job in waiting) == function.rows
            assert sum(job.rows for job in waiting if job.late) == function.late_rows

    def on_arrive(self, number):
        name = ("w", "chain")[number % 2]
        self.requests.append(self.arrive(len(self.requests), name=name, now_ms=self.now_ms))

    def on_end(self, number):
        if self.open_runs:
            self.end_run(self.open_runs[number % len(self.open_runs)])

    def on_fail(self, number, *, retryable=True):
        if self.open_runs:
            run = self.open_runs[number % len(self.open_runs)]
            self.dispatcher.run_failed(run, self.now_ms, retryable=retryable)

    def on_refuse(self, number):
        self.on_fail(number, retryable=False)

    def on_cancel(self, number):
        if self.requests:
            request = self.requests[number % len(self.requests)]
            if not request.ended:
                self.cancelled.append(request)
            self.dispatcher.cancel(request, self.now_ms)

    def on_add(self, number):
        function, halves = f"f{number // 2 % 2}", 1 + number % 2
        self.pods.append(
            self.pod(
                f"pod-{next(self.numbers)}",
                function,
                cpu=halves,
                percent=50 * halves,
                ready=number < 4,
                slots=1 + number // 6,
            )
        )

    def on_ready(self, number):
        for pod in self.pods[number : number + 1]:
            if pod.state is PodState.STARTING:
                self.dispatcher.pod_ready(pod, self.now_ms)

    def on_drain(self, number):
        for pod in self.pods[number : number + 1]:
            self.dispatcher.drain_pod(pod)

    def on_remove(self, number):
        for pod in self.pods[number : number + 1]:
            self.pods.remove(pod)
            self.dispatcher.remove_pod(pod, self.now_ms)

    def on_wake(self, number):
        self.dispatcher.wake(self.now_ms)

    def end_run(self, run):
        for job in run.jobs:
            if not job.request.ended:
                self.served[job.request, job.stage, job.part.payload] += 1
        self.dispatcher.run_ended(run, self.now_ms)

    def finish(self):
        """Add pods of both functions and end all runs, also those that begin later."""
        for function in ("f0", "f1"):
            self.pod(f"last-{function}", function)
        while self.open_runs or self.dispatcher.wake_at_ms < inf:
            if self.open_runs:
                self.now_ms += 50.0
                self.end_run(self.open_runs[0])
            else:
                self.now_ms = max(self.now_ms, self.dispatcher.wake_at_ms)
                self.dispatcher.wake(self.now_ms)


@given(events=events, on_late=st.sampled_from(["cheapest", "fastest", "drop"]))
def test_every_request_ends_once_and_every_row_of_an_answer_has_run_once(events, on_late):
    """Ended, dropped and cancelled requests are all that arrived; none is in two of them."""
    owner = Checked(on_late=on_late)
    for event in events:
        owner.react(*event)
        wakes_ms = [function.wake_ms for function in owner.dispatcher.functions.values()]
        assert owner.dispatcher.wake_at_ms == min(wakes_ms)
    owner.finish()
    ends = Counter([*owner.ended, *owner.cancelled, *(request for request, _ in owner.dropped)])
    assert ends == Counter(owner.requests)
    assert set(owner.served.values()) <= {1}
    for request in owner.ended:
        stages = len(request.parts_left)
        assert not any(request.parts_left.values())
        assert stages == {"w": 4, "chain": 2}[request.workflow[1]]
    assert not any(pod.runs for pod in owner.dispatcher.pods)


@given(deadlines=st.lists(st.integers(500, 900), min_size=1, max_size=20, unique=True))
def test_rows_of_a_queue_run_in_the_order_of_their_deadlines(deadlines):
    """While all can be in time, the earliest deadline is served first."""
    owner = Owner([profile("f0", [(1, 1, 50, 1), (2, 1, 50, 1.5)]), workflow([[]])])
    requests = [owner.arrive(deadline_ms=float(deadline)) for deadline in deadlines]
    owner.pod("a")
    now_ms = 0.0
    while owner.open_runs:
        now_ms += 1.0
        owner.dispatcher.run_ended(owner.open_runs[0], now_ms)
    assert owner.ended == sorted(requests, key=lambda request: request.deadline_ms)


@pytest.mark.replaces
def test_a_cancelled_request_concerns_only_the_functions_where_it_waited(monkeypatch):
    """The others are not looked at, however many there are."""
    owner = Owner([profile("f0", ROWS), profile("f1", ROWS), workflow([[], []])])
    owner.pod("a", "f0")
    request = owner.arrive()
    looked = []
    monkeypatch.setattr(
        owner.dispatcher._passes, "look", lambda functions, _: looked.extend(functions)
    )
    owner.dispatcher.cancel(request, 1.0)
    assert [function.key[1] for function in looked] == ["f1"]


def test_a_failed_batch_runs_again_elsewhere_and_then_its_rows_alone():
    """One bad input ends neither the batch beside it nor the pool."""
    owner = Owner([profile("f0", ROWS), workflow([[]])])
    first, second = owner.arrive(), owner.arrive()
    pods = [owner.pod(name) for name in "abc"]
    (run,) = owner.runs
    for _ in range(2):
        assert [job.request for job in run.jobs] == [first, second]
        owner.dispatcher.run_failed(run, 1.0, retryable=True)
        assert owner.runs[-1].pod is not run.pod
        run = owner.open_runs[0]
    alone = run
    assert [job.request for job in alone.jobs] == [first]
    assert {run.pod for run in owner.runs} == set(pods)
    owner.dispatcher.run_failed(alone, 2.0, retryable=True)
    assert owner.dropped == [(first, "failed")]
    (run,) = owner.open_runs
    owner.dispatcher.run_ended(run, 3.0)
    assert owner.ended == [second]


def test_an_answer_of_the_model_that_is_an_error_is_not_asked_for_twice():
    """A failure that is not retryable ends the request."""
    owner = Owner([profile("f0", ROWS), workflow([[]])])
    owner.pod("a")
    request = owner.arrive()
    owner.dispatcher.run_failed(owner.runs[0], 1.0, retryable=False)
    assert owner.dropped == [(request, "failed")]
    assert len(owner.runs) == 1


def test_a_row_waits_for_a_cheaper_pod_that_will_be_free_in_time():
    """A busy pod is a place with a start time, for the planner and here."""
    rows = [(1, 1, 50, 100), (1, 2, 100, 60)]
    owner = Owner([profile("f0", rows), workflow([[]], slo_ms=250.0)])
    cheap, fast = owner.pod("cheap"), owner.pod("fast", cpu=2, percent=100)
    owner.arrive()
    owner.arrive()
    assert [run.pod for run in owner.runs] == [cheap]  # the second would end at 200 there
    owner.arrive(deadline_ms=150.0)
    assert [run.pod for run in owner.runs] == [cheap, fast]
    owner.dispatcher.run_ended(owner.runs[0], 100.0)
    assert [run.pod for run in owner.runs] == [cheap, fast, cheap]


def test_a_run_that_is_overdue_is_looked_at_later():
    """A look at the very moment at which a run should end does not ask for another one then."""
    rows = [(1, 1, 50, 100), (1, 1, 100, 90)]
    owner = Owner([profile("f0", rows), workflow([()])])
    owner.pod("slow", percent=50)
    owner.pod("fast", percent=100)
    dispatcher = owner.dispatcher
    for _ in range(3):
        owner.arrive()
    for _ in range(10):
        now_ms = dispatcher.wake_at_ms
        if now_ms == inf:
            break
        dispatcher.wake(now_ms)
        assert dispatcher.wake_at_ms > now_ms


def test_parts_that_cannot_be_joined_run_in_their_own_batches():
    """A batch has one kind of rows."""
    kinds = iter("aab")
    parts = lambda request, stage, rows_max: [PlainPart(1, next(kinds))]  # noqa: E731
    owner = Owner([profile("f0", ROWS), workflow([[]])], parts=parts)
    requests = [owner.arrive() for _ in range(3)]
    owner.pod("a")
    assert [job.request for job in owner.runs[0].jobs] == requests[:2]


def test_servers_without_batching_get_one_request_at_a_time():
    """``batching: none`` is for servers that take no batches."""
    owner = Owner([profile("f0", ROWS), workflow([[]])])
    owner.dispatcher.set_server((SPACE, "f0"), ServerSettings(batching="none"))
    for _ in range(3):
        owner.arrive()
    owner.pod("a")
    assert [len(run.jobs) for run in owner.runs] == [1]


def test_one_stage_alone_ends_with_that_stage():
    """A stage of a workflow can be called like a model of its own."""
    owner = Owner(DOCUMENTS)
    owner.pod("a", "f1")
    request = owner.arrive(1, stage="s1")
    owner.dispatcher.run_ended(owner.runs[0], 100.0)
    assert owner.ended == [request]
    with pytest.raises(UnknownDocumentError, match="has no stage 's9'; it has s0, s1, s2, s3"):
        owner.arrive(stage="s9")


def test_the_wait_of_a_new_request_is_predicted():
    """Rows in front, over what the pods run; without a pod there is no end of the wait."""
    owner = Owner([profile("f0", [(1, 1, 50, 100)]), workflow([[]])])
    owner.arrive()
    assert owner.dispatcher.wait_ms((SPACE, "w"), None, 0.0) == inf
    owner.pod("a")
    owner.arrive()
    assert owner.dispatcher.workflows[SPACE, "w"].rows_ahead(None) == 1
    assert owner.dispatcher.wait_ms((SPACE, "w"), None, 0.0) == 200.0


def test_a_removed_workflow_drops_its_requests():
    """No job stays in a queue that nobody owns."""
    owner = Owner(DOCUMENTS)
    request = owner.arrive(1)
    owner.dispatcher.remove_workflow((SPACE, "w"), 1.0)
    assert owner.dropped == [(request, "removed")]
    assert not any(function.rows for function in owner.dispatcher.functions.values())
    with pytest.raises(UnknownDocumentError, match="workflow default/w is not known"):
        owner.arrive(2)


@pytest.mark.parametrize(
    ("share", "expected"),
    [
        (Share(GPU, 1, 50, 1_000), [1, 2, 4]),
        (Share(GPU, 1, 50, 250), [1, 2]),
        (Share(GPU, 8, 90, 1_000), [1, 2, 4]),
        (Share(GPU, 8, 100, 1_000), [1, 2]),
        (Share(GPU, 1, 20, 1_000), [1, 2, 4]),
        (Share("other", 2, 100, 10), [1]),
    ],
)
def test_pods_of_an_unmeasured_share_run_the_rows_of_the_nearest_below(share, expected):
    """Predictions err on the slow side; memory limits the batch."""
    model, rows = profiled_rows(DOCUMENTS[0], share)
    assert model == GPU
    assert [row.batch for row in rows] == expected


def test_other_stages_cost_less_with_more_time():
    """The cheapest completion that fits; infinite where none does."""
    others = OtherStageCosts([10.0, 20.0], [5.0, 2.0])
    assert [others.cost_dollars(time_ms) for time_ms in (9.0, 10.0, 19.0, 99.0)] == [
        float("inf"),
        5.0,
        5.0,
        2.0,
    ]


def test_pods_that_go_together_get_no_batch_from_one_another():
    """Pods are drained before the first is removed; a row that waits does not move to the next."""
    slow_or_fast = [(1, 1, 20, 60.0), (1, 1, 50, 40.0)]
    owner = Owner([profile("f0", slow_or_fast), workflow([[]], slo_ms=250.0)])
    owner.pod("slow", percent=20)
    going = [owner.pod(name, percent=50) for name in ("a", "b")]
    owner.arrive(now_ms=0.0)
    owner.arrive(now_ms=10.0)
    assert [run.pod.name for run in owner.runs] == ["slow"]
    for pod in going:
        owner.dispatcher.drain_pod(pod)
    assert [owner.dispatcher.remove_pod(pod, 150.0) for pod in going] == [[], []]
    owner.dispatcher.run_ended(owner.runs[0], 160.0)
    assert [run.pod.name for run in owner.runs] == ["slow", "slow"]
