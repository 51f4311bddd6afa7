"""Pods that vanish around a hand-over: the new owner counts their containers, or waits for them."""

import asyncio
from typing import Any

import pytest
from aiohttp import web

from scheduler.cluster.owner_lease import DURATION_S
from scheduler.extender import binding_voider
from scheduler.extender.binding_voider import BindingVoider
from tests.extender.replicas import HeldBinding, Replicas, fill

Raw = dict[str, Any]
GRACE_S = 35.0  # Kubernetes' default of 30 s, and 5 s


def delete_by_force(replicas: Replicas, raw: Raw) -> None:
    """Remove a bound pod whose containers run."""
    options = {"gracePeriodSeconds": 0}
    path = f"/api/v1/namespaces/default/pods/{raw['metadata']['name']}"
    assert replicas.server.process("DELETE", path, options).status == 200


async def test_a_pod_that_vanished_before_a_process_started(replicas: Replicas) -> None:
    """The process cannot know of it: it waits for its containers; the first of all does not."""
    a = await replicas.start(grace_s=GRACE_S, has_watch=True)
    first, second = fill(replicas, a, whole=2)
    assert await a.bind(first, "n2") == ""
    replicas.kill(a)
    delete_by_force(replicas, first)
    heir = await replicas.start(grace_s=GRACE_S, has_watch=True)
    await replicas.hand_over(heir)
    wait_s = GRACE_S - DURATION_S - 1
    assert f"may run for {wait_s:.0f} s" in await heir.bind(second, "n2")
    replicas.clock.now_s += wait_s - 0.1
    assert "may run for 0 s" in await heir.bind(second, "n2")
    replicas.clock.now_s += 0.2
    assert await heir.bind(second, "n2") == ""


async def test_a_pod_that_vanished_before_a_hand_over(replicas: Replicas) -> None:
    """A standby's watch has shown it: its share stays, and nothing else waits."""
    a = await replicas.start(grace_s=GRACE_S, has_watch=True)
    b = await replicas.start(grace_s=GRACE_S, has_watch=True)
    first, second = fill(replicas, a, whole=2)
    assert await a.bind(first, "n2") == ""
    replicas.clock.now_s += GRACE_S
    delete_by_force(replicas, first)
    await replicas.hand_over(b)
    assert "0 % free" in await b.bind(second, "n2")
    assert await b.bind(second, "n1") == ""


async def test_a_pod_that_vanished_during_a_hand_over(
    replicas: Replicas, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A's Binding arrives after B's list, and its pod is gone before B makes it void.

    B's watch has shown what came before; B waits until it has shown that, too.
    """
    a = await replicas.start(grace_s=GRACE_S, has_watch=True)
    b = await replicas.start(grace_s=GRACE_S, has_watch=True)
    first, second = fill(replicas, a, whole=2)
    held = await HeldBinding.sent(a, first)
    replicas.clock.now_s += GRACE_S
    await replicas.hand_over(b)

    async def arrive_and_vanish(_request: web.Request) -> None:
        while b.state.pods.version == version:  # noqa: ASYNC110
            await asyncio.sleep(0)  # the Bindings of the other pod are being made void
        replicas.events_flow.clear()
        assert await held.arrive() == ""
        delete_by_force(replicas, first)

    is_known = BindingVoider._is_known

    def release_events(voider: BindingVoider, uid: str) -> bool:
        replicas.events_flow.set()
        return is_known(voider, uid)

    monkeypatch.setattr(BindingVoider, "_is_known", release_events)
    name, version = first["metadata"]["name"], b.state.pods.version
    replicas.server.fault("PATCH", f"{name}/status", arrive_and_vanish)
    assert "0 % free" in await b.bind(second, "n2")
    assert b.state.pods.is_ending(first["metadata"]["uid"])


async def test_a_standby_whose_watch_is_late(
    replicas: Replicas, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It lists the pods, and cannot know of what vanished since its last event: it waits."""
    monkeypatch.setattr(binding_voider, "_WATCH_WITHIN_S", 0.05)
    a = await replicas.start(grace_s=GRACE_S, has_watch=True)
    b = await replicas.start(grace_s=GRACE_S)
    first, second = fill(replicas, a, whole=2)
    assert await a.bind(first, "n2") == ""
    delete_by_force(replicas, first)
    replicas.clock.now_s += GRACE_S
    await replicas.hand_over(b)
    assert f"may run for {GRACE_S:.0f} s" in await b.bind(second, "n2")
    replicas.clock.now_s += GRACE_S
    replicas.suspend()
    assert await b.bind(second, "n2") == ""
