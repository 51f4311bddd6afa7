"""The thread that reads the GPUs: what it tells, when, and what it does when NVML does not work."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from scheduler.agent import reader
from scheduler.agent.reader import reading_gpus
from scheduler.agent.reading import Reading, Xid
from tests.agent.gpus import DRIVER_NOT_LOADED, GPU_IS_LOST, FakeGpus, a100


class Told:
    """The readings, in their order."""

    def __init__(self) -> None:
        self.readings: asyncio.Queue[Reading] = asyncio.Queue()

    async def until(self, condition) -> Reading:
        """The first that is so."""
        async with asyncio.timeout(60):
            while not condition(told := await self.readings.get()):
                pass
        return told


@asynccontextmanager
async def told(every_s: float = 0.05, **options) -> AsyncIterator[Told]:
    kept = Told()
    with reading_gpus(kept.readings.put_nowait, every_s=every_s, **options):
        yield kept


async def test_changes_are_told(own_gpus: FakeGpus):
    """A GPU that uses more memory, say, at the next reading."""
    async with told() as readings:
        first = await readings.until(lambda each: not each.problem)
        assert [device.uuid for device in first.devices] == own_gpus.uuids
        own_gpus.set(1, used=2**30)
        await readings.until(lambda each: each.devices[1].memory_used_bytes == 2**30)


async def test_an_error_does_not_wait_for_the_next_reading(own_gpus: FakeGpus):
    """It is told at once, with others of the same moment."""
    async with told(every_s=3600) as readings:
        await readings.until(lambda each: each.devices)
        own_gpus.strike(1, 79)
        own_gpus.strike(0, 13)
        struck = await readings.until(lambda each: each.xids)
    assert struck.xids == (Xid(own_gpus.uuids[1], 79), Xid(own_gpus.uuids[0], 13))


async def test_a_driver_that_comes_is_found(own_gpus: FakeGpus):
    """Until then it is told that there is none."""
    own_gpus.set_all(init=DRIVER_NOT_LOADED)
    async with told() as readings:
        missing = await readings.until(lambda each: each.problem)
        assert "not loaded" in missing.problem
        assert missing.devices == ()
        own_gpus.set_all(init=0)
        found = await readings.until(lambda each: not each.problem)
        assert len(found.devices) == 2


async def test_a_driver_that_goes_is_missed(own_gpus: FakeGpus):
    """And found again when it is back, with its errors listened for."""
    async with told() as readings:
        await readings.until(lambda each: each.devices)
        own_gpus.set_all(init=DRIVER_NOT_LOADED)
        await readings.until(lambda each: each.problem)
        own_gpus.set_all(init=0)
        await readings.until(lambda each: each.devices)
        own_gpus.strike(0, 48)
        await readings.until(lambda each: each.xids == (Xid(own_gpus.uuids[0], 48),))


async def test_errors_of_a_gpu_that_is_new_are_heard(own_gpus: FakeGpus):
    """NVML is opened anew for it."""
    async with told() as readings:
        await readings.until(lambda each: each.devices)
        own_gpus.replace(1, a100(1, "new"))
        await readings.until(lambda each: each.devices[1].uuid == own_gpus.uuids[1])
        await readings.until(lambda each: each.devices)  # of the NVML that was opened for it
        own_gpus.strike(1, 79)
        await readings.until(lambda each: each.xids == (Xid(own_gpus.uuids[1], 79),))


async def test_nvml_is_opened_again_while_a_gpu_is_lost(own_gpus: FakeGpus, monkeypatch):
    """Only so it finds one that was reset; the others are read meanwhile."""
    monkeypatch.setattr(reader, "_REOPEN_START_S", 0.1)
    opened = []
    monkeypatch.setattr(
        reader, "opened", lambda *given, **options: opened.append(1) or _opened(*given, **options)
    )
    async with told() as readings:
        await readings.until(lambda each: len(each.devices) == 2)
        own_gpus.set(0, error=GPU_IS_LOST)
        own_gpus.set_all(wait=GPU_IS_LOST)
        for _ in range(3):
            lost = await readings.until(lambda each: each.unreadable)
            assert [device.index for device in lost.devices] == [1]
        async with asyncio.timeout(60):
            while len(opened) < 3:
                await readings.readings.get()


_opened = reader.opened


async def test_a_hanging_call_does_not_hold_up_the_end(own_gpus: FakeGpus):
    """The thread is left behind; the process ends without it."""
    async with told() as readings:
        await readings.until(lambda each: each.devices)
        own_gpus.set_all(hang=1)
        await asyncio.sleep(0.1)
    own_gpus.set_all(hang=0)


async def test_nothing_is_told_after_the_end(own_gpus: FakeGpus):
    """Whoever has stopped listening would act on it."""
    async with told(every_s=0.01) as readings:
        await readings.until(lambda each: each.devices)
    while not readings.readings.empty():
        readings.readings.get_nowait()
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert readings.readings.empty()
