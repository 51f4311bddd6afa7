"""What NVML tells of each GPU, through NVIDIA's own bindings and a library of ours."""

import pytest

from scheduler.agent.compute_modes import ComputeMode, ComputeModes
from scheduler.agent.nvml import NvmlError, opened
from scheduler.agent.reading import DeviceReading, Process, Xid
from tests.agent.gpus import (
    ARGUMENT_VERSION_MISMATCH,
    DRIVER_EXCHANGED,
    DRIVER_NOT_LOADED,
    EXCLUSIVE_PROCESS,
    FUNCTION_NOT_FOUND,
    GPU_IS_LOST,
    TIMEOUT,
    FakeGpus,
)


def read(index: int = 0, modes: ComputeModes | None = None) -> DeviceReading:
    with opened(modes) as session:
        return session.read().devices[index]


def test_a_gpu_is_read_whole(own_gpus: FakeGpus):
    """Everything that NVML knows is in the reading, in our units."""
    own_gpus.set(
        1,
        used=3 * 2**30,
        utilization=40,
        temperature=61,
        processes="11:1048576,12:2097152",
        samples="11:30,12:130",
        sampled_us=5,
    )

    assert read(1) == DeviceReading(
        index=1,
        uuid=own_gpus.uuids[1],
        model="NVIDIA A100-SXM4-80GB",
        memory_mib=81_920,
        multiprocessors=108,
        compute_capability=(8, 0),
        ecc_uncorrected=0,
        memory_used_bytes=3 * 2**30,
        utilization_ratio=0.4,
        temperature_celsius=61,
        processes=(Process(11, 2**20, 0.3), Process(12, 2**21, 1.0)),
    )


def test_what_a_gpu_does_not_tell_is_left_open(own_gpus: FakeGpus):
    """A GPU without ECC, MIG, row remapping and sensors is read all the same."""
    own_gpus.set(0, mig=None, ecc=None, rows_pending=None, rows_failed=None, cores=None)
    own_gpus.set(0, utilization=None, temperature=None, processes=None, mps_processes=None)

    device = read()

    assert device.multiprocessors is None
    assert not device.mig
    assert (device.ecc_uncorrected, device.utilization_ratio) == (None, None)
    assert (device.temperature_celsius, device.processes) == (None, ())


def test_what_the_driver_keeps_for_itself_nobody_is_offered(own_gpus: FakeGpus):
    """Neither is it in what is in use; the old version of the call counts it there."""
    own_gpus.set(0, reserved=600 * 2**20, used=700 * 2**20)
    device = read()
    assert (device.memory_mib, device.memory_used_bytes) == (81_320, 100 * 2**20)


@pytest.mark.parametrize("error", [FUNCTION_NOT_FOUND, ARGUMENT_VERSION_MISMATCH, None])
def test_an_older_driver_does_not_say_what_it_keeps(own_gpus: FakeGpus, error):
    """All memory counts then, as it says it."""
    own_gpus.set(0, memory_v2=error, reserved=None, used=700 * 2**20)
    device = read()
    assert (device.memory_mib, device.memory_used_bytes) == (81_920, 700 * 2**20)


def test_memory_does_not_change_with_an_error(own_gpus: FakeGpus):
    """A GPU whose driver could say what it keeps is not read when it does not."""
    own_gpus.set(0, reserved=600 * 2**20, memory_v2=TIMEOUT)
    with opened() as session:
        assert session.read().unreadable == {0: "Timeout"}


@pytest.mark.parametrize(
    ("capability", "cores", "multiprocessors"),
    [
        pytest.param("7.0", 5120, 80, id="V100"),
        pytest.param("7.5", 2560, 40, id="T4"),
        pytest.param("8.0", 6912, 108, id="A100"),
        pytest.param("8.6", 10752, 84, id="A40"),
        pytest.param("8.9", 18176, 142, id="L40S"),
        pytest.param("9.0", 16896, 132, id="H100"),
        pytest.param("10.0", 18944, 148, id="B200"),
        pytest.param("12.0", 24064, 188, id="RTX PRO 6000"),
    ],
)
def test_multiprocessors_follow_from_cores(own_gpus, capability, cores, multiprocessors):
    """They are as many as the GPU's data sheet says."""
    own_gpus.set(0, capability=capability, cores=cores)
    assert read().multiprocessors == multiprocessors


def test_multiprocessors_that_nvml_counts_itself_are_taken(own_gpus: FakeGpus):
    """Where the call for attributes answers, nothing is computed."""
    own_gpus.set(0, multiprocessors=98)
    assert read().multiprocessors == 98


def test_mps_clients_are_processes_too(own_gpus: FakeGpus):
    """A process that both lists have counts once, with the larger memory that is told."""
    own_gpus.set(0, processes="7:100,8:", mps_processes="7:300,9:50")
    assert set(read().processes) == {Process(7, 300), Process(8, None), Process(9, 50)}


def test_a_sample_of_utilisation_counts_once(own_gpus: FakeGpus):
    """A process whose newest sample was seen already has none."""
    own_gpus.set(0, processes="7:1", samples="7:50", sampled_us=10)
    with opened() as session:
        first, second = session.read(), session.read()
        own_gpus.set(0, samples="7:60", sampled_us=20)
        third = session.read()
    told = [each.devices[0].processes[0].utilization_ratio for each in (first, second, third)]
    assert told == [0.5, None, 0.6]


@pytest.mark.parametrize(
    ("properties", "due", "failed"),
    [
        ({"rows_pending": 1}, "row remapping", False),
        ({"rows_failed": 1}, "", True),
        ({"rows_pending": None, "rows_failed": None, "pages_pending": 1}, "page retirement", False),
    ],
)
def test_memory_that_wants_a_reset_is_seen(own_gpus, properties, due, failed):
    """Rows that wait to be remapped, pages to be retired, and rows that cannot be."""
    own_gpus.set(0, **properties)
    device = read()
    assert (device.reset_due, device.memory_failed) == (due, failed)


def test_a_lost_gpu_does_not_hide_the_others(own_gpus: FakeGpus):
    """The one is named with its index and the reason; the other is read."""
    own_gpus.set(0, error=GPU_IS_LOST)
    with opened() as session:
        reading = session.read()
    assert [device.index for device in reading.devices] == [1]
    assert reading.unreadable == {0: "GPU is lost"}


def test_a_gpu_whose_identity_makes_no_sense_is_not_read(own_gpus: FakeGpus):
    """A UUID that is no name of a folder, and a GPU without memory, are not believed."""
    own_gpus.set(0, uuid="../../etc")
    own_gpus.set(1, memory=0)
    with opened() as session:
        reading = session.read()
    assert reading.devices == ()
    assert set(reading.unreadable) == {0, 1}


@pytest.mark.parametrize(
    ("code", "says", "outdated"),
    [(DRIVER_NOT_LOADED, "not loaded", False), (DRIVER_EXCHANGED, "started anew", True)],
)
def test_a_driver_that_is_not_there_is_told(own_gpus, code, says, outdated):
    """At the start and later on; a driver that was exchanged wants a new process."""
    with opened() as session:
        own_gpus.set_all(init=code)
        with pytest.raises(NvmlError, match=says) as later:
            session.read()
    with pytest.raises(NvmlError, match=says) as at_start, opened():
        pass
    assert later.value.outdated is at_start.value.outdated is outdated


def test_a_critical_error_is_heard_with_its_gpu(own_gpus: FakeGpus):
    """Each once, in their order; what happened before is not heard."""
    own_gpus.strike(0, 31)
    with opened() as session:
        own_gpus.strike(1, 79)
        own_gpus.strike(0, 13)
        heard = [session.wait(1), session.wait(1), session.wait(0.01)]
    assert heard == [Xid(own_gpus.uuids[1], 79), Xid(own_gpus.uuids[0], 13), None]
    assert not session.deaf


def test_listening_ends_where_nvml_says_so(own_gpus: FakeGpus):
    """A GPU that fell off the bus ends the waiting for all."""
    with opened() as session:
        own_gpus.set_all(wait=GPU_IS_LOST)
        assert session.wait(1) is None
        assert session.deaf


class _Wanted(ComputeModes):
    """One mode for all GPUs."""

    def __init__(self, mode: ComputeMode) -> None:
        super().__init__()
        self.mode = mode

    def wanted(self, uuid: str) -> ComputeMode:
        return self.mode


@pytest.mark.parametrize("mode", ComputeMode)
def test_the_compute_mode_is_set_where_wanted(own_gpus: FakeGpus, mode):
    """And left alone where it is not; also after somebody else has changed it."""
    assert not read().exclusive
    assert own_gpus.mode(0) == 0

    with opened(_Wanted(mode)) as session:
        for _ in range(2):
            first, _ = session.read().devices
            assert (first.exclusive, first.mode_problem) == (mode == EXCLUSIVE_PROCESS, "")
            assert own_gpus.mode(0) == own_gpus.mode(1) == mode
            own_gpus.set_mode(0, 0)


@pytest.mark.parametrize("properties", [{"mig": 1}, {"capability": "6.1"}])
def test_the_compute_mode_of_a_gpu_that_is_not_shared_is_left_alone(own_gpus, properties):
    """It is somebody else's."""
    own_gpus.set(0, **properties)
    assert read(modes=_Wanted(ComputeMode.PROHIBITED)).mode_problem == ""
    assert (own_gpus.mode(0), own_gpus.mode(1)) == (0, ComputeMode.PROHIBITED)


def test_a_compute_mode_that_cannot_be_set_is_told(own_gpus: FakeGpus):
    """Without the rights for it, say."""
    own_gpus.set(0, mode_locked=1)
    device = read(modes=_Wanted(ComputeMode.PROHIBITED))
    assert device.mode_problem == "compute mode PROHIBITED cannot be set: Insufficient Permissions"
    assert not device.exclusive
