"""Machines that are paused: what runs on them waits, and the rest of the world does not."""

import asyncio
from contextlib import suppress

import pytest

from tests.campaign.machines import Machine, MachineLoop
from tests.virtual_loop import run_virtually


def play(scenario):
    """Run a scenario with a machine."""

    async def run():
        loop = asyncio.get_running_loop()
        machine = Machine(loop)
        await scenario(loop, machine)

    run_virtually(run(), MachineLoop)


@pytest.mark.parametrize(("is_suspended", "end_s"), [(False, 12.0), (True, 14.0)])
def test_a_timer_that_ends_during_a_pause(is_suspended, end_s):
    """It ends with the pause, and after a suspension when its rest has passed."""

    async def scenario(loop, machine):
        times_s = []

        async def sleeper():
            await asyncio.sleep(5.0)
            times_s.append((loop.time(), machine.monotonic_s()))

        task = loop.create_task(sleeper(), context=machine.context)
        await asyncio.sleep(3.0)
        machine.pause()
        await asyncio.sleep(9.0)
        assert not task.done()
        machine.resume(is_suspended=is_suspended)
        await task
        assert times_s == [(end_s, 5.0 if is_suspended else end_s)]

    play(scenario)


def test_a_timer_that_ends_after_a_suspension():
    """It ends later by the length of the suspension."""

    async def scenario(loop, machine):
        task = loop.create_task(asyncio.sleep(5.0), context=machine.context)
        await asyncio.sleep(1.0)
        machine.pause()
        await asyncio.sleep(2.0)
        machine.resume(is_suspended=True)
        await task
        assert loop.time() == 7.0

    play(scenario)


def test_an_answer_during_a_pause_comes_with_its_end():
    """The rest of the world goes on: what waits for a paused machine sees nothing of it."""

    async def scenario(loop, machine):
        answer = loop.create_future()

        async def caller():
            return await answer

        task = loop.create_task(caller(), context=machine.context)
        await asyncio.sleep(1.0)
        machine.pause()
        answer.set_result("stored")
        await asyncio.sleep(60.0)
        assert not task.done()
        machine.resume(is_suspended=False)
        assert await task == "stored"
        assert loop.time() == 61.0

    play(scenario)


def test_what_is_cancelled_during_a_pause_does_not_happen():
    """A timer and a task of the machine are cancelled while they are held back."""

    async def scenario(loop, machine):
        happened = []
        timer = machine.context.run(loop.call_later, 1.0, happened.append, "timer")

        async def worker():
            await asyncio.sleep(1.0)
            happened.append("task")

        task = loop.create_task(worker(), context=machine.context)
        await asyncio.sleep(0.5)
        machine.pause()
        await asyncio.sleep(2.0)
        timer.cancel()
        task.cancel()
        await asyncio.sleep(1.0)
        assert not task.done()
        machine.resume(is_suspended=False)
        with suppress(asyncio.CancelledError):
            await task
        assert happened == []

    play(scenario)
