"""Guard against refusals from a stale cache: wait for the watch, or answer with an error."""

import asyncio
import time
from contextlib import contextmanager
from types import SimpleNamespace

import pytest

from scheduler.cluster.errors import ApiTimeoutError
from scheduler.extender import stale_cache
from scheduler.extender.scheduling import Decision
from scheduler.extender.stale_cache import RefusalGuard
from scheduler.placement.reasons import Refusal
from scheduler.planning.pods import describe
from scheduler.server.errors import RefusedError

NAMES = ["n1"]
FULL = Decision([], [], {"n1": Refusal("full", resolvable=True)})
FREE = Decision(NAMES, NAMES)


class GuardHarness:
    """A fake state that the test advances, and a scheduler that answers by it."""

    def __init__(self):
        self.is_free = False
        self.victims = {}  # reservations in the cache
        self.ending = set()  # of which have vanished
        self.server = {}  # pods there; an exception: it cannot be read
        self.state = SimpleNamespace(
            pods=SimpleNamespace(
                version=0,
                pending={},
                is_ending=self.ending.__contains__,
                without_ending=self.without_ending,
            ),
            ledger=SimpleNamespace(free_capacity_epoch=0, reservation=self.victims.get),
            monotonic=time.monotonic,
        )
        self.nominations = SimpleNamespace(victims=lambda pod: list(self.victims))
        self.listed = {}
        self.guard = RefusalGuard(self.state, self, relist=self.relist, read_pod=self.read_pod)

    def stop_clock(self):
        """Let no wait end by its time, however slow the machine is."""
        now_s = time.monotonic()
        self.state.monotonic = lambda: now_s

    def preempt(self, at_server):
        """Let the pod wait for a victim, which is in the cache."""
        self.victims["v"] = SimpleNamespace(uid="v", namespace="default", name="victim")
        self.server["victim"] = at_server

    async def read_pod(self, namespace, name):
        if isinstance(pod := self.server[name], Exception):
            raise pod
        return pod

    async def relist(self):
        if not self.listed:
            await asyncio.Event().wait()
        self.watch_reports(**self.listed)

    @contextmanager
    def without_ending(self):
        before = self.is_free
        self.is_free = before or bool(self.ending)
        yield bool(self.ending)
        self.is_free = before

    def schedule(self, pod, nodes):
        return FREE if self.is_free else FULL

    def watch_reports(self, version=0, *, frees=False):
        self.state.pods.version = max(self.state.pods.version, version)
        self.state.ledger.free_capacity_epoch += frees
        self.is_free = self.is_free or frees
        if frees:
            self.victims.clear()

    async def check(self, version, *, nominated=False, gang=""):
        status = {"nominatedNodeName": "n1"} if nominated else {}
        raw = {"metadata": {"uid": "u", "resourceVersion": str(version)}, "status": status}
        if gang:
            raw["metadata"]["labels"] = {"esg-scheduler.io/function": "half"}
            raw["spec"] = {"schedulingGroup": {"podGroupName": gang}}
        return await self.guard.check(describe(raw), NAMES, FULL)


@pytest.fixture
def harness():
    return GuardHarness()


async def test_a_first_refusal_from_a_current_cache_stands(harness):
    """The cache is as new as the pod itself: nothing is delayed."""
    harness.watch_reports(7)
    assert await harness.check(7) == FULL


async def test_a_cache_older_than_the_pod_delays_the_answer(harness):
    """The event that frees capacity arrives during the delay, and counts."""
    harness.stop_clock()
    harness.watch_reports(7)
    checking = asyncio.create_task(harness.check(9))
    await asyncio.sleep(0.01)
    assert not checking.done()
    harness.watch_reports(9, frees=True)
    assert await checking == FREE


async def test_a_silent_watch_is_replaced_by_a_list(harness):
    """The pods are listed, and what the list frees counts."""
    harness.watch_reports(7)
    harness.listed = {"version": 9, "frees": True}
    assert await harness.check(9) == FREE


async def test_a_cache_that_stays_older_is_an_error(harness, monkeypatch):
    """kube-scheduler retries by itself after an error, not after a refusal."""
    monkeypatch.setattr(stale_cache, "RELIST_WAIT_S", 0.1)
    harness.watch_reports(7)
    with pytest.raises(RefusedError, match="cache does not have the pod's last change yet"):
        await harness.check(9)


async def test_an_unexplained_retry_delays_the_answer(harness):
    """The event that triggered the retry arrives a moment later, and counts."""
    harness.stop_clock()
    harness.watch_reports(7)
    await harness.check(7)
    checking = asyncio.create_task(harness.check(7))
    await asyncio.sleep(0.01)
    assert not checking.done()
    harness.watch_reports(frees=True)
    assert await checking == FREE


async def test_a_retry_that_stays_unexplained_is_an_error_once(harness):
    """Every second time: the pod is retried once more, and no pod is retried forever."""
    harness.watch_reports(7)
    assert await harness.check(7) == FULL
    with pytest.raises(RefusedError, match="retrying: full"):
        await harness.check(7)
    assert await harness.check(7) == FULL


async def test_a_changed_pod_or_a_new_event_explains_a_retry(harness):
    """The pod's own change (its condition, at the first refusal) triggers a retry too."""
    harness.watch_reports(8)
    assert await harness.check(7) == FULL
    assert await harness.check(8) == FULL
    harness.state.ledger.free_capacity_epoch += 1
    assert await harness.check(8) == FULL


async def test_a_pod_that_waits_for_its_victims_gets_no_error(harness):
    """An error would remove its nominated node."""
    harness.watch_reports(7)
    for _ in range(3):
        assert await harness.check(7, nominated=True) == FULL


GONE = None
ANOTHER = {"metadata": {"uid": "w"}, "status": {"phase": "Running"}}
FINISHED = {"metadata": {"uid": "v"}, "status": {"phase": "Failed"}}
RUNNING = {"metadata": {"uid": "v"}, "status": {"phase": "Running"}}


@pytest.mark.parametrize("at_server", [GONE, ANOTHER, FINISHED])
async def test_a_victim_that_has_ended_unseen_delays_the_answer(harness, at_server):
    """A refusal would end the nomination: the watch is awaited, although the pod has changed."""
    harness.stop_clock()
    harness.watch_reports(7)
    harness.preempt(at_server)
    checking = asyncio.create_task(harness.check(7, nominated=True))
    await asyncio.sleep(0.01)
    assert not checking.done()
    harness.watch_reports(frees=True)
    assert await checking == FREE


async def test_a_watch_that_does_not_show_a_victims_end_is_replaced_by_a_list(harness, monkeypatch):
    """The list shows that the victim is gone."""
    monkeypatch.setattr(stale_cache, "STALE_WAIT_S", 0.01)
    harness.watch_reports(7)
    harness.preempt(GONE)
    harness.listed = {"version": 9, "frees": True}
    assert await harness.check(7, nominated=True) == FREE


@pytest.mark.parametrize("at_server", [RUNNING, ApiTimeoutError("no answer", sent=True)])
async def test_a_victim_that_is_not_known_to_have_ended_delays_nothing(harness, at_server):
    """It runs, or it cannot be read."""
    harness.watch_reports(7)
    harness.preempt(at_server)
    assert await harness.check(7, nominated=True) == FULL


@pytest.mark.parametrize("is_victim", [False, True])
async def test_a_share_of_a_pod_that_vanished_is_waited_for(harness, is_victim):
    """No event shows its end, so kube-scheduler must retry by itself; the pod is not read."""
    harness.watch_reports(7)
    harness.ending.add("v")
    if is_victim:
        harness.preempt(ApiTimeoutError("never read", sent=True))
    for _ in range(3):
        with pytest.raises(RefusedError, match="grace period; retrying: full"):
            await harness.check(7, nominated=is_victim)


async def test_a_pod_without_a_version_is_answered_at_once(harness):
    """It comes from no API server, so no watch can be ahead of the cache."""
    pod = describe({"metadata": {"uid": "u"}})
    for _ in range(3):
        assert await harness.guard.check(pod, NAMES, FULL) == FULL


async def test_a_member_of_a_gang_is_refused_and_never_gets_an_error(harness):
    """An error would end the attempt for the members that fit; what arrives in time counts."""
    harness.watch_reports(8)
    for _ in range(3):
        assert await harness.check(7, gang="g") == FULL
    harness.ending.add("vanished")
    assert await harness.check(8, gang="g") == FULL
    harness.stop_clock()
    checking = asyncio.create_task(harness.check(9, gang="g"))
    await asyncio.sleep(0.01)
    harness.watch_reports(9, frees=True)
    assert await checking == FREE


async def test_a_member_is_refused_where_the_watch_and_the_list_are_silent(harness, monkeypatch):
    """The cache stays older than the member."""
    monkeypatch.setattr(stale_cache, "STALE_WAIT_S", 0.01)
    monkeypatch.setattr(stale_cache, "RELIST_WAIT_S", 0.01)
    assert await harness.check(9, gang="g") == FULL
    with pytest.raises(RefusedError):
        await harness.check(9)
