"""Two processes that bind pods, one after the other: no GPU is promised twice.

Both decide over the same API server. A's Bindings may arrive late, and B's watch may be silent.
"""

import asyncio
from typing import Any

import pytest
from aiohttp import web

from scheduler.cluster.resource import PODS
from scheduler.server.errors import RefusedError
from tests.cluster.api_server import refuse
from tests.extender.replicas import HeldBinding, Replicas, fill


async def test_a_binding_under_way_while_another_replica_leads(replicas: Replicas) -> None:
    """B makes A's Binding void before it binds; A's arrives and binds nothing."""
    a, b = await replicas.start(), await replicas.start()
    first, second = fill(replicas, a, b, whole=2)
    held = await HeldBinding.sent(a, first)
    assert "may not bind pods now: process" in await b.bind(second, "n2")
    replicas.pass_time()
    assert await b.bind(second, "n2") == ""
    assert "may not bind pods now" in await held.arrive()  # not even the pod as it is now
    assert replicas.percent() == {"GPU-n2-0": 100}
    assert a.held(first) is None


async def test_a_binding_under_way_while_its_process_restarts(replicas: Replicas) -> None:
    """The next life makes the Binding void that it knows nothing of."""
    a = await replicas.start()
    first, second = fill(replicas, a, whole=2)
    held = await HeldBinding.sent(a, first)
    replicas.kill(a)
    heir = await replicas.start()
    await replicas.hand_over(heir)
    assert await heir.bind(second, "n2") == ""
    assert await held.arrive() != ""
    assert replicas.percent() == {"GPU-n2-0": 100}


async def test_a_binding_arrives_during_the_hand_over(replicas: Replicas) -> None:
    """B has listed the pods, and finds the Binding when it tries to make it void."""
    a, b = await replicas.start(), await replicas.start()
    first, second = fill(replicas, a, b, whole=2)
    held = await HeldBinding.sent(a, first)
    await replicas.hand_over(b)

    async def arrive(_request: web.Request) -> None:
        assert await held.arrive() == ""

    replicas.server.fault("PATCH", f"{first['metadata']['name']}/status", arrive)
    assert "0 % free" in await b.bind(second, "n2")
    assert b.held(first) == ("n2", "assumed")
    assert replicas.percent() == {"GPU-n2-0": 100}


async def test_a_replica_whose_watch_is_silent(replicas: Replicas) -> None:
    """B has not heard of A's pods, one of which was created since: it lists them."""
    a, b = await replicas.start(), await replicas.start()
    (second,) = fill(replicas, a, b, whole=1)
    (first,) = fill(replicas, a, whole=1)
    assert await a.bind(first, "n2") == ""
    await replicas.hand_over(b)
    assert "0 % free" in await b.bind(second, "n2")
    assert b.held(first) == ("n2", "confirmed")


async def test_two_replicas_at_once(replicas: Replicas) -> None:
    """One of them binds; the other says who does."""
    a, b = await replicas.start(), await replicas.start()
    first, second = fill(replicas, a, b, whole=2)
    answers = await asyncio.gather(a.bind(first, "n2"), b.bind(second, "n2"))
    assert answers.count("") == 1
    assert "may not bind pods now" in "".join(answers)
    assert replicas.percent() == {"GPU-n2-0": 100}


async def test_a_paused_owner(replicas: Replicas) -> None:
    """Its Lease has ended, and B has bound the GPU; it binds nothing by its old cache."""
    a, b = await replicas.start(), await replicas.start()
    small = replicas.create("tenth")
    a.hears(small)
    assert await a.bind(small, "n1") == ""
    first, second = fill(replicas, a, b, whole=2)
    await replicas.hand_over(b)
    assert await b.bind(second, "n2") == ""
    a.hears(first)
    assert "may not bind pods now: process" in await a.bind(first, "n2")
    replicas.pass_time()
    assert "0 % free" in await a.bind(first, "n2")
    assert replicas.percent() == {"GPU-n1-0": 10, "GPU-n2-0": 100}


async def test_an_owner_that_is_suspended_in_a_bind_call(replicas: Replicas) -> None:
    """Its deadline is of a clock that stood still; it looks at the Lease before it reserves."""
    a, b = await replicas.start(), await replicas.start()
    small = replicas.create("tenth")
    a.hears(small)
    assert await a.bind(small, "n1") == ""
    (second,) = fill(replicas, b, whole=1)
    first = replicas.create()
    with pytest.raises(RefusedError, match="may not bind pods now: process"):
        await b.ownership.ensure(20.0)

    async def suspend(_request: web.Request) -> None:
        replicas.suspend()
        assert await b.bind(second, "n2") == ""

    replicas.server.fault("GET", first["metadata"]["name"], suspend)
    assert "its Lease has ended" in await a.bind(first, "n2")
    assert replicas.percent() == {"GPU-n1-0": 10, "GPU-n2-0": 100}


async def test_an_owner_whose_lease_has_ended_unseen(replicas: Replicas) -> None:
    """If no other process took it, one write continues it: nothing is listed or made void."""
    a = await replicas.start()
    for passing in (lambda: None, replicas.pass_time, lambda: None):
        pending = replicas.create("tenth")
        a.hears(pending)
        passing()
        assert await a.bind(pending, "n2") == ""
    server = replicas.server
    assert len(server.seen("POST", "/leases")) + len(server.seen("PATCH", "-gpus")) == 2
    assert len(server.list_requests(PODS)) == 1


async def test_a_released_lease(replicas: Replicas) -> None:
    """B has it at once; A, who takes it back before B, pays one write."""
    a, b = await replicas.start(), await replicas.start()
    pods = fill(replicas, a, b, whole=3)
    assert await a.bind(pods[0], "n1") == ""
    await a.ownership.release()
    assert await a.bind(pods[1], "n1") == ""
    assert len(replicas.server.list_requests(PODS)) == 1
    await a.ownership.release()
    assert await b.bind(pods[2], "n2") == ""
    assert len(replicas.server.list_requests(PODS)) == 2


async def test_a_bind_costs_no_other_write(replicas: Replicas) -> None:
    """Once the process is the owner, a bind is a Binding alone."""
    a = await replicas.start()
    pods = [replicas.create("tenth") for _ in range(6)]
    for pending in pods:
        a.hears(pending)
    assert await a.bind(pods[0], "n2") == ""
    replicas.server.requests.clear()
    for pending in pods[1:]:
        a.hears(pending)
        assert await a.bind(pending, "n2") == ""
    assert len(replicas.server.requests) == len(replicas.server.seen("POST", "binding")) == 5


@pytest.mark.parametrize(
    ("method", "path", "fault", "message"),
    [
        ("POST", "/leases", refuse(403, "Forbidden", "no leases"), "no leases"),
        ("POST", "/leases", refuse(500, "Internal", "etcd"), "etcd"),
        ("GET", "/pods", refuse(500, "Internal", "no list"), "no list"),
        ("PATCH", "/status", refuse(500, "Internal", "no patch"), "no patch"),
        ("PATCH", "/status", refuse(403, "Forbidden", "no"), "grant the verb patch on pods/status"),
    ],
)
async def test_nothing_is_bound_before_the_hand_over_is_complete(
    replicas: Replicas, method: str, path: str, fault: Any, message: str
) -> None:
    """A request of it that fails refuses the pod with the reason; the next call goes on."""
    a = await replicas.start()
    (pending,) = fill(replicas, a, whole=1)
    replicas.server.fault(method, path, fault)
    assert message in await a.bind(pending, "n2")
    assert replicas.server.seen("POST", "binding") == []
    assert a.held(pending) is None
    assert await a.bind(pending, "n2") == ""


async def test_a_lease_that_is_stored_and_not_answered(replicas: Replicas) -> None:
    """The process reads that it holds it, and takes over."""
    a = await replicas.start()
    first, _ = fill(replicas, a, whole=2)

    async def store_and_fail(request: web.Request) -> web.Response:
        replicas.server.process(request.method, request.path, await request.json())
        return await refuse(504, "Timeout", "late")(request)

    replicas.server.fault("POST", "/leases", store_and_fail)
    assert "late" in await a.bind(first, "n2")
    assert await a.bind(first, "n2") == ""
    assert len(replicas.server.list_requests(PODS)) == 1


async def test_an_unanswered_binding_of_the_owner(replicas: Replicas) -> None:
    """It is made void within the next upkeep, and its share is free."""
    a = await replicas.start()
    first, second = fill(replicas, a, whole=2)
    await a.lose(first, "n2")
    await a.binder.reconcile_lost_bindings()
    assert a.held(first) is None
    assert await a.bind(second, "n2") == ""
    assert replicas.percent() == {"GPU-n2-0": 100}


async def test_an_equal_grant_of_another_owner_counts_once(replicas: Replicas) -> None:
    """A's Binding was lost, and B has bound the pod with the same grant: A has bound nothing."""
    a, b = await replicas.start(), await replicas.start()
    (pending,) = fill(replicas, a, b, whole=1)

    async def lose(_request: web.Request) -> web.Response:
        await replicas.hand_over(b)
        assert await b.bind(pending, "n2") == ""
        return await refuse(503, "ServiceUnavailable", "busy")(_request)

    replicas.server.fault("POST", "binding", lose)
    assert await a.bind(pending, "n2") == ""
    bound = [p.state.metrics.binds.labels("bound")._value.get() for p in (a, b)]
    assert bound == [0, 1]
