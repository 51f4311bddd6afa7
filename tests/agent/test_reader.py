"""The thread that reads the GPUs: its readings, their times, and failures of NVML."""

import asyncio
from contextlib import asynccontextmanager

from scheduler.agent.gpus import reader
from scheduler.agent.gpus.reader import read_gpus
from scheduler.agent.gpus.reading import Reading, Xid
from tests.agent.fakes import DRIVER_NOT_LOADED, GPU_IS_LOST, a100


class Readings:
    """The readings, in their order."""

    def __init__(self):
        self.queue: asyncio.Queue[Reading] = asyncio.Queue()

    async def until(self, condition):
        """Wait for the first reading that meets the condition."""
        async with asyncio.timeout(60):
            while not condition(reading := await self.queue.get()):
                pass
        return reading


@asynccontextmanager
async def reader_thread(every_s=0.05, **options):
    readings = Readings()
    with read_gpus(readings.queue.put_nowait, every_s=every_s, **options):
        yield readings


async def test_changes_are_reported(own_gpus):
    """The next reading shows that a GPU uses more memory."""
    async with reader_thread() as readings:
        first = await readings.until(lambda reading: not reading.problem)
        assert [device.uuid for device in first.devices] == own_gpus.uuids
        own_gpus.set(1, used=2**30)
        await readings.until(lambda reading: reading.devices[1].memory_used_bytes == 2**30)


async def test_xid_triggers_a_reading(own_gpus):
    """It comes at once, with other XIDs of the same moment."""
    async with reader_thread(every_s=3600) as readings:
        await readings.until(lambda reading: reading.devices)
        own_gpus.strike(1, 79)
        own_gpus.strike(0, 13)
        struck = await readings.until(lambda reading: reading.xids)
    assert struck.xids == (Xid(own_gpus.uuids[1], 79), Xid(own_gpus.uuids[0], 13))


async def test_late_driver(own_gpus):
    """Until then the reading has a problem."""
    own_gpus.set_all(init=DRIVER_NOT_LOADED)
    async with reader_thread() as readings:
        missing = await readings.until(lambda reading: reading.problem)
        assert "not loaded" in missing.problem
        assert missing.devices == ()
        own_gpus.set_all(init=0)
        first = await readings.until(lambda reading: not reading.problem)
        assert len(first.devices) == 2


async def test_driver_is_unloaded_and_loaded_again(own_gpus):
    """Afterwards XIDs are received again."""
    async with reader_thread() as readings:
        await readings.until(lambda reading: reading.devices)
        own_gpus.set_all(init=DRIVER_NOT_LOADED)
        await readings.until(lambda reading: reading.problem)
        own_gpus.set_all(init=0)
        await readings.until(lambda reading: reading.devices)
        own_gpus.strike(0, 48)
        await readings.until(lambda reading: reading.xids == (Xid(own_gpus.uuids[0], 48),))


async def test_xid_of_a_new_gpu(own_gpus):
    """NVML is initialised again for it."""
    async with reader_thread() as readings:
        await readings.until(lambda reading: reading.devices)
        own_gpus.replace(1, a100(1, "new"))
        await readings.until(lambda reading: reading.devices[1].uuid == own_gpus.uuids[1])
        await readings.until(lambda reading: reading.devices)  # of the new session
        own_gpus.strike(1, 79)
        await readings.until(lambda reading: reading.xids == (Xid(own_gpus.uuids[1], 79),))


async def test_nvml_is_initialised_again_while_a_gpu_is_lost(own_gpus, monkeypatch):
    """Only so a GPU after a reset is detected; the others are read meanwhile."""
    monkeypatch.setattr(reader, "_REOPEN_START_S", 0.1)
    sessions = []

    def counted(*arguments, **options):
        sessions.append(1)
        return _open_nvml(*arguments, **options)

    monkeypatch.setattr(reader, "open_nvml", counted)
    async with reader_thread() as readings:
        await readings.until(lambda reading: len(reading.devices) == 2)
        own_gpus.set(0, error=GPU_IS_LOST)
        own_gpus.set_all(wait=GPU_IS_LOST)
        for _ in range(3):
            lost = await readings.until(lambda reading: reading.unreadable)
            assert [device.index for device in lost.devices] == [1]
        async with asyncio.timeout(60):
            while len(sessions) < 3:
                await readings.queue.get()


_open_nvml = reader.open_nvml


async def test_end_during_a_hanging_call(own_gpus):
    """The thread is abandoned; the process ends without it."""
    async with reader_thread() as readings:
        await readings.until(lambda reading: reading.devices)
        own_gpus.set_all(hang=1)
        await asyncio.sleep(0.1)
    own_gpus.set_all(hang=0)


async def test_no_reading_after_the_end(own_gpus):
    """The consumer would react to it."""
    async with reader_thread(every_s=0.01) as readings:
        await readings.until(lambda reading: reading.devices)
    while not readings.queue.empty():
        readings.queue.get_nowait()
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert readings.queue.empty()
