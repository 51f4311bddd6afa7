"""What is published over time: GPUs that come, fall ill, are lost, return and are replaced."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler.agent.inventory import Inventory
from scheduler.agent.node_publisher import annotation, capacity
from scheduler.agent.reading import DeviceReading, Reading, Xid
from scheduler.model.names import ANNOTATION_GPUS
from scheduler.model.node import gpus_of
from tests.agent.readings import Clock, device, reading, settings

UNHEALTHY_WITHIN_S = 10
"""Limit of docs/operations.md on the time from a fault to the API server."""


class Case:
    """An inventory with its clock."""

    def __init__(self, *first: DeviceReading, **given):
        self.clock = Clock()
        self.inventory = Inventory(settings(**given), clock=self.clock)
        if first:
            self.read(*first)

    def read(self, *devices: DeviceReading, after_s: float = 1, **differing) -> None:
        self.clock.now += after_s
        self.inventory.take(reading(*devices, **differing))

    def shown(self) -> dict[str, str]:
        """UUID to reason, empty for a healthy one."""
        return {
            each.gpu.uuid: each.illness.reason if each.illness else ""
            for each in self.inventory.judged(lambda _: "")
        }


def test_nothing_is_known_before_the_first_reading():
    """And nothing is published then, until NVML has been silent for too long."""
    case = Case()
    assert not case.inventory.known
    case.clock.now += 7
    assert case.inventory.known
    assert case.shown() == {}


def test_a_gpu_that_is_lost_is_ill_then_forgotten():
    """It is shown with the reason while it may come back; the other stays as it is."""
    case = Case(device(0), device(1), forget_after_s=60)
    case.read(device(1), unreadable={0: "GPU is lost"})
    assert case.shown() == {"GPU-0": "lost", "GPU-1": ""}
    judged = case.inventory.judged(lambda _: "")
    assert "GPU is lost" in judged[0].illness.message
    case.read(device(1), after_s=59, unreadable={0: "GPU is lost"})
    assert "GPU-0" in case.shown()
    case.read(device(1), after_s=2, unreadable={0: "GPU is lost"})
    assert case.shown() == {"GPU-1": ""}


def test_a_critical_error_stays_until_the_gpu_is_taken_out():
    """NVML has to list it no longer; then it was out of the node, and its errors are of before."""
    case = Case(device(0), device(1))
    case.read(device(0), device(1), xids=(Xid("GPU-0", 79),))
    assert case.shown() == {"GPU-0": "xid", "GPU-1": ""}
    case.read(device(0), device(1), after_s=1)
    assert case.shown()["GPU-0"] == "xid"
    case.read(device(1))
    assert case.shown()["GPU-0"] == "lost"
    case.read(device(0), device(1))
    assert case.shown() == {"GPU-0": "", "GPU-1": ""}


@pytest.mark.parametrize("away_s", [1, 400])
def test_a_reading_that_fails_heals_nothing(away_s):
    """This was once taken for a reset; but none is made while this process is NVML's client.

    However long it lasts: also of a GPU that is no longer shown.
    """
    case = Case(device(0), device(1))
    case.read(device(0), device(1), xids=(Xid("GPU-0", 79),))
    for _ in range(2):
        case.read(device(1), after_s=away_s, unreadable={0: "Timeout"})
        assert case.shown().get("GPU-0", "lost") == "lost"
    case.read(device(0), device(1))
    assert case.shown() == {"GPU-0": "xid", "GPU-1": ""}


def test_a_gpu_that_is_no_longer_shown_can_be_taken_out():
    """Its errors end with that as any other's."""
    case = Case(device(0), device(1))
    case.read(device(0), device(1), xids=(Xid("GPU-0", 79),))
    case.read(device(1), after_s=400, unreadable={0: "GPU is lost"})
    assert case.shown() == {"GPU-1": ""}
    case.read(device(1))
    case.read(device(0), device(1))
    assert case.shown() == {"GPU-0": "", "GPU-1": ""}


def test_an_error_of_the_reading_that_loses_the_gpu_counts():
    """Where it can be read again, it still needs the reset that its XID asks for.

    That the loss ended the error was once believed; but a GPU that comes back by itself was not
    reset.
    """
    case = Case(device(0))
    case.read(xids=(Xid("GPU-0", 79),), unreadable={0: "GPU is lost"})
    case.read(device(0))
    assert case.shown() == {"GPU-0": "xid"}


def test_an_error_of_nobody_is_everybodys():
    """Where NVML does not say whose it is, no GPU is above suspicion."""
    case = Case(device(0), device(1))
    case.read(device(0), xids=(Xid("", 74),), unreadable={1: "Timeout"})
    case.read(device(0), device(1))
    assert case.shown() == {"GPU-0": "xid", "GPU-1": "xid"}


def test_a_gpu_in_anothers_place_replaces_it_at_once():
    """No two GPUs with one index."""
    case = Case(device(0), device(1))
    case.read(device(0), device(1), xids=(Xid("GPU-1", 79),))
    case.read(device(0), device(1, uuid="GPU-new"))
    assert case.shown() == {"GPU-0": "", "GPU-new": ""}
    case.read(device(0), device(1))
    assert case.shown() == {"GPU-0": "", "GPU-1": ""}


def test_without_a_driver_gpus_are_ill_at_once_and_gone_later():
    """What NVML does not vouch for is not offered; after a while it is not shown."""
    case = Case(device(0), forget_after_s=60)
    case.read(problem="the driver is not loaded")
    assert case.shown() == {"GPU-0": "nvml"}
    case.clock.now += 3
    case.read(device(0))
    assert case.shown() == {"GPU-0": ""}
    for _ in range(13):
        case.read(problem="the driver is not loaded", after_s=5)
    assert case.shown() == {}


def test_a_driver_that_was_away_does_not_heal():
    """Errors are remembered over an outage of NVML as a whole."""
    case = Case(device(0))
    case.read(device(0), xids=(Xid("GPU-0", 48),))
    case.read(problem="NVML lost its driver")
    case.read(device(0))
    assert case.shown() == {"GPU-0": "xid"}


def test_a_hanging_call_makes_all_gpus_ill():
    """A reading that does not come within the time says as much as a bad one."""
    case = Case(device(0), nvml_silent_after_s=6)
    case.clock.now += 5.9
    assert case.shown() == {"GPU-0": ""}
    case.clock.now += 0.2
    assert case.shown() == {"GPU-0": "nvml"}
    case.read(device(0))
    assert case.shown() == {"GPU-0": ""}


def test_how_long_nvml_has_told_nothing_is_counted():
    """From the first time to the last without a break; silence adds nothing."""
    case = Case()
    assert case.inventory.told_nothing_s == 0
    case.read(problem="the driver is not loaded", after_s=5)
    assert case.inventory.told_nothing_s == 0
    case.read(problem="NVML is not here", after_s=40)
    assert case.inventory.told_nothing_s == 40
    case.clock.now += 100
    assert case.shown() == {}
    assert case.inventory.told_nothing_s == 40
    case.read(device(0))
    case.read(problem="NVML lost its driver")
    assert case.inventory.told_nothing_s == 0


def test_mps_daemons_count_where_they_are_required():
    """The trouble is the GPU's, under its UUID."""
    for required, expected in ((True, {"GPU-0": "mps", "GPU-1": ""}), (False, {})):
        case = Case(device(0), device(1), require_mps=required)
        judged = case.inventory.judged(lambda uuid: "dead" if uuid == "GPU-0" else "")
        told = {each.gpu.uuid: each.illness.reason if each.illness else "" for each in judged}
        assert told == (expected or {"GPU-0": "", "GPU-1": ""})


DEVICES = st.lists(
    st.builds(
        device,
        st.integers(0, 5),
        uuid=st.sampled_from(["GPU-a", "GPU-b", "GPU-c", "GPU-d"]),
        mig=st.booleans(),
        multiprocessors=st.none() | st.integers(1, 200),
        memory_mib=st.integers(1, 200_000),
    ),
    max_size=4,
    unique_by=(lambda each: each.index, lambda each: each.uuid),
)
READINGS = st.builds(
    lambda devices, problem: Reading(devices=() if problem else tuple(devices), problem=problem),
    DEVICES,
    st.sampled_from(["", "", "the driver is not loaded"]),
)


@given(st.lists(st.tuples(READINGS, st.floats(0, 400)), max_size=12))
def test_what_is_published_can_always_be_read(history):
    """The scheduler reads back what is meant, and each GPU and each index is there once."""
    case = Case()
    for each, after_s in history:
        case.clock.now += after_s
        case.inventory.take(each)
        gpus = tuple(judged.gpu for judged in case.inventory.judged(lambda _: ""))

        assert gpus_of({ANNOTATION_GPUS: annotation(gpus)}) == gpus
        assert capacity(gpus) == 100 * sum(gpu.healthy for gpu in gpus)
        assert len({gpu.index for gpu in gpus}) == len(gpus)
        if not each.problem:
            assert {d.uuid for d in each.devices} <= {gpu.uuid for gpu in gpus}
        else:
            assert not any(gpu.healthy for gpu in gpus)


def test_the_intervals_fit_the_documented_limit():
    """A fault waits for timers only: elapsed time would measure the machine's load."""
    default = settings()
    assert default.nvml_silent_after_s + default.read_every_s < UNHEALTHY_WITHIN_S
    assert default.mps_silent_after_s + default.read_every_s < UNHEALTHY_WITHIN_S
    detection_s = default.mps_check_every_s + default.mps_ask_timeout_s
    assert detection_s + default.read_every_s < UNHEALTHY_WITHIN_S
