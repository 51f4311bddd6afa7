"""Readings of NVML, by NVIDIA's own bindings and a fake library."""

import pytest

from scheduler.agent.gpus.compute_modes import ComputeMode, ComputeModes
from scheduler.agent.gpus.nvml import NvmlError, open_nvml
from scheduler.agent.gpus.reading import DeviceReading, Process, Xid
from tests.agent.fakes import (
    ARGUMENT_VERSION_MISMATCH,
    DRIVER_EXCHANGED,
    DRIVER_NOT_LOADED,
    EXCLUSIVE_PROCESS,
    FUNCTION_NOT_FOUND,
    GPU_IS_LOST,
    TIMEOUT,
)


def read(index=0, modes=None):
    with open_nvml(modes) as session:
        return session.read().devices[index]


def test_complete_reading(own_gpus):
    """A reading has all values of NVML, in the agent's units."""
    own_gpus.set(
        1,
        used=3 * 2**30,
        utilization=40,
        temperature=61,
        processes="11:1048576,12:2097152",
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
        processes=(Process(11, 2**20), Process(12, 2**21)),
    )


def test_unsupported_values_are_none(own_gpus):
    """A GPU without ECC, MIG, row remapping and sensors can be read."""
    own_gpus.set(0, mig=None, ecc=None, rows_pending=None, rows_failed=None, cores=None)
    own_gpus.set(0, utilization=None, temperature=None, processes=None, mps_processes=None)

    device = read()

    assert device.multiprocessors is None
    assert not device.mig
    assert (device.ecc_uncorrected, device.utilization_ratio) == (None, None)
    assert (device.temperature_celsius, device.processes) == (None, ())


def test_reserved_memory_is_excluded(own_gpus):
    """It is not in use either; the old version of the call counts it there."""
    own_gpus.set(0, reserved=600 * 2**20, used=700 * 2**20)
    device = read()
    assert (device.memory_mib, device.memory_used_bytes) == (81_320, 100 * 2**20)


@pytest.mark.parametrize("error", [FUNCTION_NOT_FOUND, ARGUMENT_VERSION_MISMATCH, None])
def test_older_driver_without_reserved_memory(own_gpus, error):
    """Then all memory counts, as reported."""
    own_gpus.set(0, memory_v2=error, reserved=None, used=700 * 2**20)
    device = read()
    assert (device.memory_mib, device.memory_used_bytes) == (81_920, 700 * 2**20)


def test_failed_memory_call(own_gpus):
    """A GPU whose driver supports reserved memory is unreadable while that call fails."""
    own_gpus.set(0, reserved=600 * 2**20, memory_v2=TIMEOUT)
    with open_nvml() as session:
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
    """Their number matches the GPU's data sheet."""
    own_gpus.set(0, capability=capability, cores=cores)
    assert read().multiprocessors == multiprocessors


def test_multiprocessors_reported_by_nvml(own_gpus):
    """If the call for attributes works, nothing is computed."""
    own_gpus.set(0, multiprocessors=98)
    assert read().multiprocessors == 98


def test_mps_clients_are_processes_too(own_gpus):
    """A process in both lists counts once, with the larger memory."""
    own_gpus.set(0, processes="7:100,8:", mps_processes="7:300,9:50")
    assert set(read().processes) == {Process(7, 300), Process(8, None), Process(9, 50)}


def test_the_version_of_cuda_is_read(own_gpus):
    """It decides how many clients an MPS server admits."""
    own_gpus.set_all(cuda=13_010)
    with open_nvml() as session:
        assert session.read().cuda_version == 13_010


@pytest.mark.parametrize(
    ("properties", "due", "failed"),
    [
        ({"rows_pending": 1}, "row remapping", False),
        ({"rows_failed": 1}, "", True),
        ({"rows_pending": None, "rows_failed": None, "pages_pending": 1}, "page retirement", False),
    ],
)
def test_memory_repair(own_gpus, properties, due, failed):
    """Rows that wait for remapping, pages for retirement, and rows without spares."""
    own_gpus.set(0, **properties)
    device = read()
    assert (device.reset_due, device.memory_failed) == (due, failed)


def test_a_lost_gpu_does_not_hide_the_others(own_gpus):
    """The lost one has its index and the reason; the other is read."""
    own_gpus.set(0, error=GPU_IS_LOST)
    with open_nvml() as session:
        reading = session.read()
    assert [device.index for device in reading.devices] == [1]
    assert reading.unreadable == {0: "GPU is lost"}


def test_invalid_identity(own_gpus):
    """A UUID that cannot name a folder, and a GPU without memory, make a GPU unreadable."""
    own_gpus.set(0, uuid="../../etc")
    own_gpus.set(1, memory=0)
    with open_nvml() as session:
        reading = session.read()
    assert reading.devices == ()
    assert set(reading.unreadable) == {0, 1}


@pytest.mark.parametrize(
    ("code", "message", "outdated"),
    [(DRIVER_NOT_LOADED, "not loaded", False), (DRIVER_EXCHANGED, "restart the container", True)],
)
def test_missing_driver(own_gpus, code, message, outdated):
    """At the start and later; an exchanged driver needs a new process."""
    with open_nvml() as session:
        own_gpus.set_all(init=code)
        with pytest.raises(NvmlError, match=message) as later:
            session.read()
    with pytest.raises(NvmlError, match=message) as at_start, open_nvml():
        pass
    assert later.value.outdated is at_start.value.outdated is outdated


def test_xids_have_their_gpu(own_gpus):
    """Each comes once, in order; earlier ones do not come."""
    own_gpus.strike(0, 31)
    with open_nvml() as session:
        own_gpus.strike(1, 79)
        own_gpus.strike(0, 13)
        xids = [session.wait(1), session.wait(1), session.wait(0.01)]
    assert xids == [Xid(own_gpus.uuids[1], 79), Xid(own_gpus.uuids[0], 13), None]
    assert not session.is_unsubscribed


def test_wait_for_xids_ends_with_a_lost_gpu(own_gpus):
    """A GPU that fell off the bus ends the wait for all GPUs."""
    with open_nvml() as session:
        own_gpus.set_all(wait=GPU_IS_LOST)
        assert session.wait(1) is None
        assert session.is_unsubscribed


class _OneMode(ComputeModes):
    """One mode for all GPUs."""

    def __init__(self, mode):
        super().__init__()
        self.mode = mode

    def desired(self, uuid):
        return self.mode


@pytest.mark.parametrize("mode", ComputeMode)
def test_requested_compute_mode_is_set(own_gpus, mode):
    """Without a request it is unchanged; another program's change is reverted."""
    assert not read().exclusive
    assert own_gpus.mode(0) == 0

    with open_nvml(_OneMode(mode)) as session:
        for _ in range(2):
            first, _ = session.read().devices
            assert (first.exclusive, first.mode_problem) == (mode == EXCLUSIVE_PROCESS, "")
            assert own_gpus.mode(0) == own_gpus.mode(1) == mode
            own_gpus.set_mode(0, 0)


@pytest.mark.parametrize("properties", [{"mig": 1}, {"capability": "6.1"}])
def test_compute_mode_of_an_unshareable_gpu_is_unchanged(own_gpus, properties):
    """esg-scheduler does not use that GPU."""
    own_gpus.set(0, **properties)
    assert read(modes=_OneMode(ComputeMode.PROHIBITED)).mode_problem == ""
    assert (own_gpus.mode(0), own_gpus.mode(1)) == (0, ComputeMode.PROHIBITED)


def test_failed_mode_change_is_reported(own_gpus):
    """For example without the rights."""
    own_gpus.set(0, mode_locked=1)
    device = read(modes=_OneMode(ComputeMode.PROHIBITED))
    assert device.mode_problem == "compute mode PROHIBITED cannot be set: Insufficient Permissions"
    assert not device.exclusive
