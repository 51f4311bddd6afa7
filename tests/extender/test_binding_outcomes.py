"""Outcome of a Binding while the watch delivers events, and while it does not.

The Bindings go to an API server. What the watch hears of it, and when, is the tests' to say.
"""

import asyncio

import pytest
from aiohttp import web

from scheduler.cluster.resource import PODS
from tests.cluster.api_server import hang, refuse, status
from tests.extender.bindings import TTL_S, BindingHarness
from tests.extender.factories import pod
from tests.extender.harness import Clock


async def test_another_replica_was_first_and_the_watch_says_so(binder: BindingHarness) -> None:
    """Our Binding is refused; the reservation that the watch has confirmed is not released."""
    pending = binder.create()
    binder.server.fault("POST", "binding", binder.outrun(pending, "n2"))
    assert await binder.bind(pending, "n1") == "the pod is bound to node n2"
    assert binder.held(pending) == ("n2", "confirmed")
    assert binder.offered() == ["n1"]


async def test_another_replica_was_first_and_the_watch_is_silent(binder: BindingHarness) -> None:
    """The state read after our refusal is reserved until the watch shows another."""
    pending = binder.create()
    binder.server.fault("POST", "binding", binder.before(lambda: binder.others_bind(pending, "n2")))
    assert await binder.bind(pending, "n1") == "the pod is bound to node n2"
    assert binder.held(pending) == ("n2", "assumed")
    assert binder.offered() == ["n1"]
    binder.hears(pending)
    assert binder.held(pending) == ("n2", "confirmed")


async def test_another_replica_was_first_on_the_same_node(
    binder: BindingHarness, monotonic: Clock
) -> None:
    """The watch has confirmed its grant; our later read does not make it an assumption again."""
    pending = binder.create()
    binder.server.fault("POST", "binding", binder.outrun(pending, "n1", percent=60))
    assert await binder.bind(pending, "n1") == ""
    assert binder.held(pending) == ("n1", "confirmed")
    binder.server.requests.clear()
    monotonic.now_s += TTL_S + 1
    await binder.binder.reconcile_lost_bindings()
    assert binder.server.requests == []


async def test_an_ordinary_pod_that_was_bound_before(binder: BindingHarness) -> None:
    """It was never assumed; the reservation that the watch has confirmed remains."""
    pending = binder.create(None)
    binder.server.fault("POST", "binding", binder.outrun(pending, "n2"))
    assert await binder.bind(pending, "n1") == "the pod is bound to node n2"
    assert binder.held(pending) == ("n2", "confirmed")


async def test_the_pod_ends_before_its_conflict_is_looked_into(binder: BindingHarness) -> None:
    """The read is older than the watch: nothing is reserved for a pod that is gone."""
    pending = binder.create()

    async def late(_request: web.Request) -> web.Response:
        seen = web.json_response(binder.stored(pending))
        binder.state.pods.delete(binder.stored(pending) | {"status": {"phase": "Failed"}})
        return seen

    binder.server.fault("POST", "binding", binder.before(lambda: binder.others_bind(pending, "n2")))
    binder.server.fault("GET", pending["metadata"]["name"], late)
    assert await binder.bind(pending, "n1") == "the pod is bound to node n2"
    assert binder.held(pending) is None
    assert binder.offered() == ["n1", "n2"]


async def test_another_replica_is_faster_than_our_refusal(binder: BindingHarness) -> None:
    """The pod was read unbound, and bound before the answer came: its reservation stays."""
    pending = binder.create()

    binder.server.fault("POST", "binding", refuse(409, "Conflict", "it has scheduling gates"))
    binder.server.fault("GET", pending["metadata"]["name"], binder.outdated(pending, "n2"))
    assert await binder.bind(pending, "n1") == "it has scheduling gates"
    assert binder.held(pending) == ("n2", "confirmed")


async def test_another_replica_is_faster_than_our_first_read(binder: BindingHarness) -> None:
    """The watch delivers the pod for the first time together with its Binding elsewhere."""
    pending = binder.create(observed=False)
    binder.server.fault("GET", pending["metadata"]["name"], binder.outdated(pending, "n2"))
    assert await binder.bind(pending, "n1") == (
        "node n1: the pod has a reservation on node n2: its Binding is in progress or done"
    )
    assert binder.held(pending) == ("n2", "confirmed")
    assert binder.server.seen("POST", "binding") == []


async def test_an_heir_of_the_name_is_bound(binder: BindingHarness) -> None:
    """The read shows another pod: ours can never be bound, and its reservation is released."""
    pending = binder.create()
    name = pending["metadata"]["name"]

    def recreate() -> None:
        binder.server.remove(PODS, name, "default")
        heir = binder.server.put(PODS, pod("whole", name=name))
        binder.others_bind(heir, "n2")
        binder.hears(heir)

    binder.server.fault("POST", "binding", binder.before(recreate))
    assert "recreated with another UID" in await binder.bind(pending, "n1")
    assert binder.held(pending) is None
    assert binder.offered() == ["n1"]


async def test_nobody_can_say_who_was_first(binder: BindingHarness) -> None:
    """A conflict that cannot be read keeps its share until a later call has read the pod."""
    pending = binder.create()
    name = pending["metadata"]["name"]
    binder.others_bind(pending, "n1")
    binder.server.fault("GET", name, refuse(500, "InternalError", "etcd"), times=20)
    with binder.hurried():
        assert await binder.bind(pending, "n1")
    assert binder.held(pending) == ("n1", "assumed")
    assert binder.offered() == ["n2"]
    assert binder.counted() == {"unknown": 1}
    binder.server.forgive()
    assert await binder.bind(pending, "n1") == ""
    assert binder.counted() == {"unknown": 1, "repeated": 1}


async def test_a_refused_binding_frees_its_share(binder: BindingHarness) -> None:
    """The assumed reservation is released at once where the watch delivered nothing else."""
    pending = binder.create()
    binder.server.fault("POST", "binding", refuse(403, "Forbidden", "no"))
    assert "RBAC" in await binder.bind(pending, "n1")
    assert binder.held(pending) is None
    assert binder.offered("whole") == ["n1", "n2"]
    assert binder.counted() == {"refused": 1}


@pytest.mark.parametrize("lost_before", [False, True])
async def test_a_bind_call_ends_in_its_time(binder: BindingHarness, lost_before: bool) -> None:
    """No read waits longer than a Binding would, nor a write to the status."""
    pending = binder.create(observed=lost_before)
    name = pending["metadata"]["name"]
    binder.server.fault("GET", name, hang)
    if lost_before:
        await binder.lose(pending, "n1")
        binder.server.fault("PATCH", f"{name}/status", hang)
    with binder.hurried():
        async with asyncio.timeout(20):
            assert await binder.bind(pending, "n1")
    assert binder.server.seen("POST", "binding") == []


async def test_settling_ends_in_its_time(binder: BindingHarness) -> None:
    """A write without an answer is not waited for; the reservation stays."""
    pending = binder.create()
    await binder.lose(pending, "n1")
    binder.server.fault("PATCH", f"{pending['metadata']['name']}/status", hang)
    with binder.hurried():
        async with asyncio.timeout(20):
            await binder.binder.reconcile_lost_bindings()
    assert binder.held(pending) == ("n1", "assumed")


@pytest.mark.parametrize("function", ["whole", None])
async def test_nothing_is_bound_after_the_time_of_the_call(
    binder: BindingHarness, monotonic: Clock, function: str | None
) -> None:
    """The reads took all the time: kube-scheduler has given up, so no Binding follows."""
    pending = binder.create(function, observed=False)

    def take_long() -> None:
        monotonic.now_s += 5.0

    binder.server.fault("GET", pending["metadata"]["name"], binder.before(take_long))
    errors = await binder.bind(pending, "n1")
    assert errors.startswith("the 3 s for a bind call (ESG_API_TIMEOUT_S) were over before")
    assert binder.held(pending) is None
    assert binder.server.seen("POST", "binding") == []
    assert await binder.bind(pending, "n1") == ""


async def test_a_call_that_waited_for_another(binder: BindingHarness, monotonic: Clock) -> None:
    """The time counts from the start of the call: a later Binding would surprise its client."""
    pending = binder.create()

    async def take_long(_request: web.Request) -> web.Response:
        monotonic.now_s += 5.0
        return status(403, "Forbidden", "no")

    binder.server.fault("POST", "binding", take_long)
    errors = await asyncio.gather(binder.bind(pending, "n1"), binder.bind(pending, "n1"))
    assert "RBAC" in errors[0]
    assert "were over before a Binding was sent" in errors[1]
    assert len(binder.server.seen("POST", "binding")) == 1


async def test_a_pod_changes_while_its_binding_is_unanswered(binder: BindingHarness) -> None:
    """The read shows that the unanswered Binding is void: the share is free at once."""
    pending = binder.create()

    async def fail_and_change(_request: web.Request) -> web.Response:
        binder.changes(pending)
        return status(503, "ServiceUnavailable", "busy")

    binder.server.fault("POST", "binding", fail_and_change)
    assert await binder.bind(pending, "n1") == "the pod has changed since it was read"
    assert binder.held(pending) is None
    binder.hears(pending)
    assert await binder.bind(pending, "n1") == ""


async def test_a_pod_that_changes_before_its_binding_is_bound_in_one_call(
    binder: BindingHarness,
) -> None:
    """kube-scheduler nominates a node just before bind: the pod is read and tried once more."""
    pending = binder.create()
    binder.changes(pending)
    assert await binder.bind(pending, "n1") == ""
    assert [s.method for s in binder.server.requests] == ["POST", "GET", "POST"]
    assert binder.held(pending) == ("n1", "assumed")
    assert binder.counted() == {"bound": 1}


async def test_a_pod_that_changes_again_is_refused(binder: BindingHarness) -> None:
    """One more try is enough for one write; kube-scheduler retries after more."""
    pending = binder.create()
    change = binder.before(lambda: binder.changes(pending))
    binder.server.fault("POST", "binding", change, times=2)
    assert await binder.bind(pending, "n1") == "the pod has changed since it was read"
    assert len(binder.server.seen("POST", "binding")) == 2
    assert binder.held(pending) is None
    assert binder.counted() == {"refused": 1}


async def test_a_changed_pod_is_planned_as_it_is_now(binder: BindingHarness) -> None:
    """The share chosen for the older version is free, and the present one is checked."""
    pending = binder.create("tenth")
    stored = binder.stored(pending)
    labels = stored["metadata"]["labels"] | {"esg-scheduler.io/function": "whole"}
    binder.server.put(PODS, {**stored, "metadata": stored["metadata"] | {"labels": labels}})
    assert await binder.bind(pending, "n1") == ""
    [share] = binder.state.ledger.reservations()
    assert share.gpu_percent == 100


async def test_the_place_of_a_changed_pod_is_not_lost(binder: BindingHarness) -> None:
    """Nothing else takes its share between the two tries."""
    pending, rival = binder.create(), binder.create()
    binder.changes(pending)
    errors = await asyncio.gather(binder.bind(pending, "n1"), binder.bind(rival, "n1"))
    assert errors[0] == ""
    assert "0 % free" in errors[1]
