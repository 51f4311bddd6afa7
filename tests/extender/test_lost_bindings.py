"""Bindings without a known outcome: made void by a later call, or read after their time."""

import pytest
from aiohttp import web

from scheduler.cluster.resource import PODS, trim_pod
from tests.cluster.api_server import refuse
from tests.extender.bindings import TTL_S, BindingHarness
from tests.extender.factories import pod
from tests.extender.harness import Clock

GRACE_S = 35.0


async def test_a_late_binding_lands_before_it_is_made_void(binder: BindingHarness) -> None:
    """The write to the pod's status conflicts, and the watch has shown the pod bound."""
    pending = binder.create()
    await binder.lose(pending, "n1")

    binder.server.fault(
        "PATCH", f"{pending['metadata']['name']}/status", binder.outrun(pending, "n1")
    )
    await binder.binder.reconcile_lost_bindings()
    assert binder.held(pending) == ("n1", "confirmed")
    assert binder.offered() == ["n2"]


@pytest.mark.parametrize("step_s", [-86_400.0, 86_400.0])
async def test_a_clock_that_is_set(
    binder: BindingHarness, wall: Clock, monotonic: Clock, step_s: float
) -> None:
    """A Binding that no watch shows is read after its time, whatever happens to the time of day."""
    pending = binder.create()
    assert await binder.bind(pending, "n1") == ""
    binder.server.requests.clear()
    wall.now_s += step_s
    monotonic.now_s += TTL_S - 1
    await binder.binder.reconcile_lost_bindings()
    assert binder.server.requests == []
    monotonic.now_s += 2
    await binder.binder.reconcile_lost_bindings()
    assert len(binder.server.requests) == 1
    assert binder.held(pending) == ("n1", "assumed")


async def test_a_lost_binding_of_a_pod_that_has_ended(
    binder: BindingHarness, monotonic: Clock
) -> None:
    """Its end is read, not delivered: nothing stays reserved."""
    pending = binder.create()
    await binder.lose(pending, "n1")
    binder.others_bind(pending, "n1")
    binder.server.put(PODS, {**binder.stored(pending), "status": {"phase": "Succeeded"}})
    monotonic.now_s += TTL_S + 1
    await binder.binder.reconcile_lost_bindings()
    assert binder.held(pending) is None
    assert binder.offered("whole") == ["n1", "n2"]


@pytest.mark.parametrize("is_answered", [False, True])
@pytest.mark.parametrize("is_recreated", [False, True])
async def test_a_binding_of_a_pod_that_is_gone(
    binder: BindingHarness, monotonic: Clock, is_answered: bool, is_recreated: bool
) -> None:
    """A read shows that it is gone; it may have been bound, so its containers have their grace."""
    pending = binder.create()
    name = pending["metadata"]["name"]
    if is_answered:
        assert await binder.bind(pending, "n1") == ""
    else:
        await binder.lose(pending, "n1")
    binder.server.remove(PODS, name, "default")
    if is_recreated:
        binder.server.put(PODS, pod("whole", name=name))
    monotonic.now_s += TTL_S + 1
    await binder.binder.reconcile_lost_bindings()
    assert binder.held(pending) == ("n1", "confirmed")
    assert binder.offered("whole") == ["n2"]
    monotonic.now_s += GRACE_S
    binder.state.pods.expire()
    assert binder.held(pending) is None


async def test_a_lost_binding_of_a_pod_that_was_deleted_unbound(binder: BindingHarness) -> None:
    """The watch shows its last state: it was never bound, and its share is free."""
    pending = binder.create()
    await binder.lose(pending, "n1")
    last = binder.stored(pending)
    binder.server.remove(PODS, pending["metadata"]["name"], "default")
    await binder.binder.reconcile_lost_bindings()
    assert binder.held(pending) == ("n1", "confirmed")
    binder.state.pods.delete(trim_pod(last))
    assert binder.held(pending) is None


async def test_the_watch_is_faster_than_the_read_of_a_pod_that_is_gone(
    binder: BindingHarness,
) -> None:
    """Its reservation is the one that the watch has shown."""
    pending = binder.create()
    await binder.lose(pending, "n1")
    name = pending["metadata"]["name"]

    def vanish() -> None:
        binder.others_bind(pending, "n2", observed=True)
        binder.server.remove(PODS, name, "default")

    binder.server.fault("PATCH", f"{name}/status", binder.before(vanish))
    await binder.binder.reconcile_lost_bindings()
    assert binder.held(pending) == ("n2", "confirmed")
    assert not binder.state.pods.is_ending(pending["metadata"]["uid"])


async def test_a_later_call_makes_the_lost_binding_void(binder: BindingHarness) -> None:
    """The pod is bound to another node at once, and the lost Binding arrives in vain."""
    pending = binder.create()
    await binder.lose(pending, "n1")
    lost = str(pending["metadata"]["resourceVersion"])
    assert await binder.bind(pending, "n2") == ""
    assert binder.held(pending) == ("n2", "assumed")
    late = {"metadata": {"name": pending["metadata"]["name"], "resourceVersion": lost}}
    answer = binder.server.bind("default", pending["metadata"]["name"], late)
    assert answer.status == 409


async def test_a_later_call_that_cannot_make_it_void(binder: BindingHarness) -> None:
    """While the Binding may arrive nothing else is tried; a pod that is gone keeps its share."""
    pending = binder.create()
    await binder.lose(pending, "n1")
    name = pending["metadata"]["name"]
    binder.server.fault("PATCH", f"{name}/status", refuse(503, "ServiceUnavailable", "busy"))
    assert "may still arrive" in await binder.bind(pending, "n2")
    assert binder.held(pending) == ("n1", "assumed")
    binder.server.remove(PODS, name, "default")
    assert "does not exist any more" in await binder.bind(pending, "n2")
    assert binder.state.pods.is_ending(pending["metadata"]["uid"])


async def test_a_binding_that_landed_unseen(binder: BindingHarness, monotonic: Clock) -> None:
    """It is read and reserved, and read again only after the same time."""
    pending = binder.create()
    await binder.lose(pending, "n1")
    binder.others_bind(pending, "n2")
    monotonic.now_s += TTL_S + 1
    await binder.binder.reconcile_lost_bindings()
    await binder.binder.reconcile_lost_bindings()
    assert binder.held(pending) == ("n2", "assumed")
    assert len(binder.server.seen("GET", pending["metadata"]["name"])) == 1
    monotonic.now_s += TTL_S + 1
    await binder.binder.reconcile_lost_bindings()
    assert len(binder.server.seen("GET", pending["metadata"]["name"])) == 2


async def test_a_binding_that_takes_longer_than_an_assumption(
    binder: BindingHarness, monotonic: Clock
) -> None:
    """While its call is in progress a Binding is not lost, however long that may be."""
    pending = binder.create()

    async def ask(_request: web.Request) -> None:
        monotonic.now_s += TTL_S + 1
        await binder.binder.reconcile_lost_bindings()

    binder.server.fault("POST", "binding", ask)
    assert await binder.bind(pending, "n1") == ""
    assert binder.held(pending) == ("n1", "assumed")


async def test_one_answer_that_stays_away_holds_up_no_other(
    binder: BindingHarness, monotonic: Clock
) -> None:
    """Lost Bindings are read concurrently; the reservation of an unreadable pod stays."""
    hidden, visible = binder.create(), binder.create()
    await binder.lose(hidden, "n1")
    await binder.lose(visible, "n2")
    binder.changes(hidden)
    binder.changes(visible)

    async def until_the_other_is_asked_about(_request: web.Request) -> None:
        await binder.server.until(
            lambda: bool(binder.server.seen("GET", visible["metadata"]["name"]))
        )

    binder.server.fault("GET", hidden["metadata"]["name"], until_the_other_is_asked_about)
    monotonic.now_s += TTL_S + 1
    await binder.binder.reconcile_lost_bindings()
    assert (binder.held(hidden), binder.held(visible)) == (None, None)


async def test_a_changed_pod_ends_its_lost_binding(binder: BindingHarness) -> None:
    """A Binding names the pod's version: once that has changed, none can arrive any more."""
    pending = binder.create()
    await binder.lose(pending, "n1")
    binder.hears(pending)
    assert binder.held(pending) == ("n1", "assumed")
    binder.changes(pending)
    binder.hears(pending)
    assert binder.held(pending) is None
    assert binder.offered("whole") == ["n1", "n2"]
