"""Pooled pods: a batch begins only while the slice of its GPU has its tokens."""

from itertools import count

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler.dispatch.slices import Slice
from tests.dispatch.harness import SPACE, Owner
from tests.examples import examples
from workbench.profiles.builders import profile, workflow

ROWS = [(1, 1, 50, 100), (2, 1, 50, 150)]


def owner_of(*after, functions=2, **options):
    documents = [profile(f"f{i}", ROWS) for i in range(functions)]
    return Owner([*documents, workflow(after or [[]])], **options)


def two_functions():
    """Two workflows of one stage, of two functions."""
    documents = [
        *(profile(f"f{i}", ROWS) for i in range(2)),
        *(workflow([[]], functions=[f"f{i}"], name=f"w{i}") for i in range(2)),
    ]
    return Owner(documents)


def slice_of(percent=100, cpus=4, **of):
    return Slice(SPACE, "g", "n", percent, cpus, **of)


def members(owner, number, **of):
    return [owner.pod(f"m{i}", pooled=True, gpu="g", node="n", **of) for i in range(number)]


def test_a_pooled_pod_gets_no_batch_without_its_slice():
    owner = owner_of()
    members(owner, 1)
    owner.arrive()
    assert owner.runs == []
    owner.dispatcher.set_slice(slice_of(), 5.0)
    assert [run.begin_ms for run in owner.runs] == [5.0]


@pytest.mark.parametrize(("percent", "cpus"), [(100, 4), (300, 2), (149, 9), (149, 2)])
def test_batches_wait_for_percent_and_vcpus_of_the_slice(percent, cpus):
    """Each pod needs 50 % and one vCPU; the third one waits for whichever is short."""
    owner = owner_of(parts=None)
    owner.dispatcher.set_slice(slice_of(percent, cpus), 0.0)
    members(owner, 3)
    for _ in range(3):
        owner.arrive()
    assert len(owner.runs) == 2
    owner.dispatcher.run_ended(owner.runs[0], 100.0)
    assert [run.begin_ms for run in owner.runs] == [0.0, 0.0, 100.0]


def running(pods=2):
    """Return an owner with pods that run, their slice, and the first run."""
    owner, known = owner_of(), slice_of()
    owner.dispatcher.set_slice(known, 0.0)
    members(owner, pods)
    for _ in range(pods):
        owner.arrive()
    assert (known.used_percent, known.used_cpus) == (50 * pods, pods)
    return owner, known, owner.runs[0]


@pytest.mark.parametrize("is_refused", [True, False])
def test_tokens_come_back_exactly_once(is_refused):
    """At the end of a run, or when its server refuses it, however often that is reported."""
    owner, known, run = running()
    if is_refused:
        owner.dispatcher.cancel(run.jobs[0].request, 10.0)
        owner.dispatcher.run_failed(run, 12.0, retryable=True, alone=True)
    owner.dispatcher.run_ended(run, 100.0)
    owner.dispatcher.run_ended(run, 101.0)
    owner.dispatcher.wake(500.0)
    assert (known.used_percent, known.used_cpus) == (50, 1)


@pytest.mark.parametrize("is_removed", [True, False])
def test_tokens_of_a_run_without_an_answer_come_back_at_its_latest_end(is_removed):
    """Its process may go on, even if its pod was deleted; others wait a quarter longer."""
    owner, known, run = running()
    owner.dispatcher.cancel(run.jobs[0].request, 5.0)
    if is_removed:
        owner.dispatcher.remove_pod(run.pod, 10.0)
    owner.dispatcher.run_failed(run, 12.0, retryable=True)
    owner.pod("other", "f1", pooled=True, gpu="g")
    assert (known.used_percent, owner.dispatcher.wake_at_ms) == (100, 125.0)
    owner.dispatcher.wake(125.0)
    assert (known.used_percent, known.used_cpus) == (50, 1)
    owner.dispatcher.wake(250.0)
    assert known.used_percent == 50


def test_a_run_that_fails_long_after_its_end_keeps_its_tokens_as_long_again():
    """Nobody knows that it has ended: its server may hang."""
    owner, known, run = running(pods=1)
    owner.dispatcher.run_failed(run, 60_000.0, retryable=False)
    owner.dispatcher.wake(119_874.0)
    assert known.used_percent == 50
    owner.dispatcher.wake(119_875.0)
    assert known.used_percent == 0


def test_tokens_of_a_pod_that_runs_again_stay_until_both_runs_are_over():
    owner, known, run = running(pods=1)
    owner.dispatcher.run_failed(run, 10.0, retryable=True)
    (again,) = owner.open_runs
    owner.dispatcher.run_ended(again, 60.0)
    assert known.used_percent == 50, "the run that failed may go on until 125 ms"
    owner.dispatcher.wake(125.0)
    assert known.used_percent == 0


def added_again(percent=50):
    """Return an owner whose pod was removed in its run, and is there again with another share."""
    owner, known = owner_of(), slice_of(80)
    owner.dispatcher.set_slice(known, 0.0)
    old = owner.pod("m", pooled=True, gpu="g", node="n")
    owner.arrive()
    owner.dispatcher.remove_pod(old, 50.0)
    owner.pod("m", percent=percent, pooled=True, gpu="g", node="n", now_ms=50.0)
    return owner, known


def test_a_pod_that_is_added_again_has_the_tokens_of_both_runs():
    """The run of the removed pod may go on until 125 ms, and the new one goes on after that."""
    owner, known = added_again()
    (again,) = owner.open_runs
    owner.dispatcher.wake(125.0)
    assert known.used_percent == 50
    owner.dispatcher.run_ended(again, 150.0)
    assert known.used_percent == 0


def test_a_new_run_s_end_leaves_a_removed_pod_s_run_its_tokens():
    owner, known = added_again()
    owner.dispatcher.run_ended(owner.open_runs[0], 70.0)
    assert known.used_percent == 50
    owner.dispatcher.wake(125.0)
    assert known.used_percent == 0


@pytest.mark.parametrize(("percent", "begins"), [(30, True), (80, True), (81, False)])
def test_a_pod_that_is_added_again_with_another_share_needs_the_difference(percent, begins):
    """Its slice has 80 %, of which its former run holds 50."""
    owner, known = added_again(percent)
    assert bool(owner.open_runs) is begins
    assert known.used_percent == (max(percent, 50) if begins else 50)


def test_freed_tokens_go_to_the_row_that_is_due_first_of_all_functions():
    """Pods of both functions share a slice in which one of them runs at a time."""
    owner = two_functions()
    owner.dispatcher.set_slice(slice_of(50), 0.0)
    for i in range(2):
        owner.pod(f"m{i}", f"f{i}", pooled=True, gpu="g")
    owner.arrive(name="w0")
    owner.arrive(name="w0", now_ms=1.0, deadline_ms=900.0)
    owner.arrive(name="w1", now_ms=2.0, deadline_ms=800.0)
    owner.dispatcher.run_ended(owner.runs[0], 100.0)
    assert [run.workflow[1] for run in owner.runs] == ["w0", "w1"]


def test_a_closed_slice_ends_its_runs_and_begins_none():
    """Its tokens come back, and a slice that is set there later counts what still runs."""
    owner = owner_of()
    owner.dispatcher.set_slice(slice_of(), 0.0)
    members(owner, 3)
    for _ in range(3):
        owner.arrive()
    owner.dispatcher.close_slice(SPACE, "g", 10.0)
    owner.dispatcher.run_ended(owner.runs[0], 100.0)
    assert len(owner.runs) == 2
    owner.dispatcher.remove_slice(SPACE, "g", 110.0)
    assert list(owner.dispatcher.slices) == []
    owner.dispatcher.set_slice(slice_of(50), 120.0)
    assert len(owner.runs) == 2, "one run of 50 % goes on"
    owner.dispatcher.run_ended(owner.runs[1], 130.0)
    assert len(owner.runs) == 3


def test_a_slice_opens_at_its_time():
    """The dispatcher tells when, and begins what waits then."""
    owner = owner_of()
    owner.dispatcher.set_slice(slice_of(open_from_ms=70.0), 0.0)
    members(owner, 1)
    owner.arrive()
    assert (owner.runs, owner.dispatcher.wake_at_ms) == ([], 70.0)
    owner.dispatcher.wake(70.0)
    assert [run.begin_ms for run in owner.runs] == [70.0]


def test_a_pod_with_several_slots_holds_its_share_once():
    """Until the last of its batches has ended."""
    owner = owner_of()
    known = slice_of(50, 1)
    owner.dispatcher.set_slice(known, 0.0)
    members(owner, 1, slots=2)
    owner.arrive()
    owner.arrive()
    assert (len(owner.runs), known.used_percent) == (2, 50)
    owner.dispatcher.run_ended(owner.runs[0], 100.0)
    assert known.used_percent == 50
    owner.dispatcher.run_ended(owner.runs[1], 200.0)
    assert known.used_percent == 0


def test_the_wait_for_tokens_is_predicted_from_the_runs_of_the_gpu():
    """So that rows which can be in time after it are not late."""
    owner = two_functions()
    owner.dispatcher.set_slice(slice_of(50), 0.0)
    for i in range(2):
        owner.pod(f"m{i}", f"f{i}", pooled=True, gpu="g")
    owner.arrive(name="w0")
    assert owner.dispatcher.wait_ms((SPACE, "w1"), None, 30.0) == 70.0
    assert owner.dispatcher.wait_ms((SPACE, "w1"), None, 130.0) == 30.0, "an overrun"


def test_batches_begin_where_the_predecessor_ran_then_where_most_percent_is_free():
    owner = owner_of([], [0])
    for gpu, percent in (("a", 60), ("b", 100), ("c", 80)):
        owner.dispatcher.set_slice(Slice(SPACE, gpu, gpu, percent, 4), 0.0)
        for function in ("f0", "f1"):
            owner.pod(f"{function}-{gpu}", function, pooled=True, gpu=gpu, node=gpu)
    owner.arrive()
    owner.dispatcher.run_ended(owner.runs[0], 100.0)
    assert [run.pod.name for run in owner.runs] == ["f0-b", "f1-b"]


GPUS = ("a", "b")
STEPS = st.lists(
    st.tuples(
        st.sampled_from(
            "arrive arrive arrive end end fail pod gone gone again again set close".split()  # noqa: SIM905
        ),
        st.integers(0, 7),
        st.floats(0.0, 60.0),
    ),
    min_size=10,
    max_size=40,
)


class Account:
    """Naive twin of the tokens: a sum over all pods that run, at each look."""

    def __init__(self):
        documents = [
            profile("f0", ROWS),
            profile("f1", [(1, 2, 30, 70), (2, 2, 30, 90)]),
            *(workflow([[], [0]], functions=f, name=f"w{i}") for i, f in enumerate(FUNCTIONS)),
        ]
        self.owner = Owner(documents)
        self.slices, self.pods, self.gone, self.numbers = {}, [], [], count()
        self.unanswered_ms = {}  # run that failed: its latest end
        for gpu in GPUS:
            self.set(gpu, 1, 0.0)

    def set(self, gpu, number, now_ms):
        percent, cpus = (80, 100, 60)[number % 3], 2 + number % 2
        used_percent, used_cpus = self.used(gpu)
        if used_percent <= percent and used_cpus <= cpus:
            self.slices[gpu] = Slice(SPACE, gpu, gpu, percent, cpus)
            self.owner.dispatcher.set_slice(self.slices[gpu], now_ms)

    def used(self, gpu):
        runs = [*self.owner.open_runs, *self.unanswered_ms]
        running = {run.pod.name: run.pod for run in runs if run.pod.gpu == gpu}
        shares = [pod.share for pod in running.values()]
        return sum(share.gpu_percent for share in shares), sum(share.cpu for share in shares)

    def check(self):
        """No slice is exceeded, each account is the sum, and no batch waits for nothing."""
        for gpu, known in self.slices.items():
            percent, cpus = self.used(gpu)
            assert (known.used_percent, known.used_cpus) == (percent, cpus)
            assert percent <= known.percent
            assert cpus <= known.cpus
        for pod in self.owner.dispatcher.pods:
            known = self.slices[pod.gpu]
            free = pod.share.gpu_percent <= known.free_percent and (
                pod.share.cpu <= known.cpus - known.used_cpus
            )
            has_tokens = bool(pod.runs) or any(r.pod.name == pod.name for r in self.unanswered_ms)
            expected = known.is_open and len(pod.runs) < pod.slots and (has_tokens or free)
            assert pod.is_open == expected
            assert (pod in self.owner.dispatcher.functions[pod.function].pool.open) == expected

    def step(self, kind, number, now_ms):
        dispatcher, runs = self.owner.dispatcher, self.owner.open_runs
        run = runs[number % len(runs)] if runs else None
        gpu = GPUS[number % 2]
        if kind == "arrive":
            self.owner.arrive(name=f"w{number % 2}", now_ms=now_ms)
        elif kind == "pod":
            function, percent, cpu = (("f0", 50, 1), ("f1", 30, 2))[number // 2 % 2]
            name = f"p{next(self.numbers)}"
            options = {"pooled": True, "gpu": gpu, "node": gpu, "slots": 1 + number // 4}
            options |= {"percent": percent, "cpu": cpu}
            self.pods.append(self.owner.pod(name, function, now_ms=now_ms, **options))
        elif kind == "set":
            self.set(gpu, number, now_ms)
        elif kind == "close":
            dispatcher.close_slice(SPACE, gpu, now_ms)
        elif kind == "gone" and self.pods:
            self.gone.append(self.pods.pop(number % len(self.pods)))
            lost = dispatcher.remove_pod(self.gone[-1], now_ms)
            self.unanswered_ms |= {run: latest_end_ms(run, now_ms) for run in lost}
        elif kind == "again" and self.gone:
            pod = self.gone.pop()
            options = {"pooled": True, "gpu": pod.gpu, "node": pod.gpu, "slots": pod.slots}
            options |= {"percent": pod.share.gpu_percent, "cpu": pod.share.cpu}
            self.pods.append(self.owner.pod(pod.name, pod.function[1], now_ms=now_ms, **options))
        elif kind == "end" and run:
            dispatcher.run_ended(run, now_ms)
        elif kind == "fail" and run:
            dispatcher.run_failed(run, now_ms, retryable=number % 2 == 0)
            self.unanswered_ms[run] = latest_end_ms(run, now_ms)

    def wake(self, now_ms):
        """Wake the dispatcher at each of its times up to now."""
        while self.owner.dispatcher.wake_at_ms <= now_ms:
            self.owner.dispatcher.wake(now_ms)
        self.unanswered_ms = {
            run: end_ms for run, end_ms in self.unanswered_ms.items() if end_ms > now_ms
        }


def latest_end_ms(run, now_ms):
    """A quarter after the predicted time, or as long again as a run has exceeded that by."""
    longest_ms = run.execute_ms + 1.25 * run.latency_ms
    return longest_ms if now_ms < longest_ms else now_ms + max(now_ms - longest_ms, 1.0)


FUNCTIONS = (["f0", "f1"], ["f1", "f0"])


def played(steps):
    """Play steps and check the account after each; return the batches."""
    account, now_ms = Account(), 0.0
    for i in range(6):
        account.step("pod", i, 0.0)
    for kind, number, passed_ms in steps:
        now_ms += passed_ms
        account.wake(now_ms)
        account.step(kind, number, now_ms)
        account.wake(now_ms)
        account.check()
    while account.owner.open_runs or account.unanswered_ms:
        now_ms += 500.0
        account.wake(now_ms)
        for run in account.owner.open_runs:
            account.owner.dispatcher.run_ended(run, now_ms)
    for known in account.slices.values():
        assert (known.used_percent, known.used_cpus, known.is_idle) == (0, 0, True)
    return [(run.begin_ms, run.pod.name, run.batch, run.workflow) for run in account.owner.runs]


@given(steps=STEPS)
@examples(40)
def test_what_runs_never_exceeds_a_slice_and_every_token_comes_back(steps):
    """Equal reports give equal decisions."""
    assert played(steps) == played(steps)
