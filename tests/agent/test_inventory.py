"""The published inventory over time: new, unhealthy, lost, returned and replaced GPUs."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler.agent.gpus.inventory import Inventory
from scheduler.agent.gpus.reading import Reading, Xid
from scheduler.agent.node_publisher import annotation, capacity
from scheduler.model.names import ANNOTATION_GPUS
from scheduler.model.node import gpus_of
from tests.agent.factories import device, reading, settings
from tests.agent.fakes import Clock

UNHEALTHY_WITHIN_S = 10
"""Limit of docs/components.md on the time from a fault to the API server."""


class InventoryHistory:
    """An inventory with its clock."""

    def __init__(self, *first, **overrides):
        self.clock = Clock()
        self.inventory = Inventory(settings(**overrides), clock=self.clock)
        if first:
            self.read(*first)

    def read(self, *devices, after_s=1, **overrides):
        self.clock.now_s += after_s
        self.inventory.update(reading(*devices, **overrides))

    def published(self):
        """Map UUIDs to the reason of their problem, empty for a healthy GPU."""
        return {
            assessed.gpu.uuid: assessed.problem.reason if assessed.problem else ""
            for assessed in self.inventory.assessed(lambda _: "")
        }


def test_nothing_is_known_before_the_first_reading():
    """Nothing is published, until NVML has been silent for too long."""
    case = InventoryHistory()
    assert not case.inventory.is_known
    case.clock.now_s += 7
    assert case.inventory.is_known
    assert case.published() == {}


def test_lost_gpu_is_unhealthy_then_removed():
    """It is published with the reason while it may return; the other GPU is unchanged."""
    case = InventoryHistory(device(0), device(1), forget_after_s=60)
    case.read(device(1), unreadable={0: "GPU is lost"})
    assert case.published() == {"GPU-0": "lost", "GPU-1": ""}
    lost, _ = case.inventory.assessed(lambda _: "")
    assert "GPU is lost" in lost.problem.message
    case.read(device(1), after_s=59, unreadable={0: "GPU is lost"})
    assert "GPU-0" in case.published()
    case.read(device(1), after_s=2, unreadable={0: "GPU is lost"})
    assert case.published() == {"GPU-1": ""}


def test_xid_lasts_until_the_gpu_is_removed():
    """NVML must stop listing it; then it was out of the node, and its XIDs are old."""
    case = InventoryHistory(device(0), device(1))
    case.read(device(0), device(1), xids=(Xid("GPU-0", 79),))
    assert case.published() == {"GPU-0": "xid", "GPU-1": ""}
    case.read(device(0), device(1), after_s=1)
    assert case.published()["GPU-0"] == "xid"
    case.read(device(1))
    assert case.published()["GPU-0"] == "lost"
    case.read(device(0), device(1))
    assert case.published() == {"GPU-0": "", "GPU-1": ""}


@pytest.mark.parametrize("away_s", [1, 400])
def test_failed_reading_does_not_clear_an_xid(away_s):
    """It is not a reset: no GPU is reset while this process is a client of NVML.

    Its duration does not matter, even for a GPU that is no longer published.
    """
    case = InventoryHistory(device(0), device(1))
    case.read(device(0), device(1), xids=(Xid("GPU-0", 79),))
    for _ in range(2):
        case.read(device(1), after_s=away_s, unreadable={0: "Timeout"})
        assert case.published().get("GPU-0", "lost") == "lost"
    case.read(device(0), device(1))
    assert case.published() == {"GPU-0": "xid", "GPU-1": ""}


def test_unpublished_gpu_can_be_removed():
    """Its removal clears its XIDs, too."""
    case = InventoryHistory(device(0), device(1))
    case.read(device(0), device(1), xids=(Xid("GPU-0", 79),))
    case.read(device(1), after_s=400, unreadable={0: "GPU is lost"})
    assert case.published() == {"GPU-1": ""}
    case.read(device(1))
    case.read(device(0), device(1))
    assert case.published() == {"GPU-0": "", "GPU-1": ""}


def test_xid_of_the_reading_that_loses_the_gpu():
    """When the GPU can be read again, it still needs a reset: the loss itself was not one."""
    case = InventoryHistory(device(0))
    case.read(xids=(Xid("GPU-0", 79),), unreadable={0: "GPU is lost"})
    case.read(device(0))
    assert case.published() == {"GPU-0": "xid"}


def test_xid_without_a_gpu():
    """If NVML does not know the GPU of an XID, all GPUs are suspect."""
    case = InventoryHistory(device(0), device(1))
    case.read(device(0), xids=(Xid("", 74),), unreadable={1: "Timeout"})
    case.read(device(0), device(1))
    assert case.published() == {"GPU-0": "xid", "GPU-1": "xid"}


def test_replaced_gpu_is_removed_at_once():
    """No two GPUs have the same index."""
    case = InventoryHistory(device(0), device(1))
    case.read(device(0), device(1), xids=(Xid("GPU-1", 79),))
    case.read(device(0), device(1, uuid="GPU-new"))
    assert case.published() == {"GPU-0": "", "GPU-new": ""}
    case.read(device(0), device(1))
    assert case.published() == {"GPU-0": "", "GPU-1": ""}


def test_missing_driver():
    """The GPUs are unhealthy at once, and removed after a while."""
    case = InventoryHistory(device(0), forget_after_s=60)
    case.read(problem="the driver is not loaded")
    assert case.published() == {"GPU-0": "nvml"}
    case.clock.now_s += 3
    case.read(device(0))
    assert case.published() == {"GPU-0": ""}
    for _ in range(13):
        case.read(problem="the driver is not loaded", after_s=5)
    assert case.published() == {}


def test_reloaded_driver_does_not_clear_an_xid():
    """XIDs survive an outage of NVML as a whole."""
    case = InventoryHistory(device(0))
    case.read(device(0), xids=(Xid("GPU-0", 79),))
    case.read(problem="NVML lost its driver")
    case.read(device(0))
    assert case.published() == {"GPU-0": "xid"}


def test_hanging_call_makes_all_gpus_unhealthy():
    """A missing reading means as much as a failed one."""
    case = InventoryHistory(device(0), nvml_silent_after_s=6)
    case.clock.now_s += 5.9
    assert case.published() == {"GPU-0": ""}
    case.clock.now_s += 0.2
    assert case.published() == {"GPU-0": "nvml"}
    case.read(device(0))
    assert case.published() == {"GPU-0": ""}


def test_duration_of_an_outage():
    """It lasts from the first failed reading to the last; silence adds nothing."""
    case = InventoryHistory()
    assert case.inventory.unavailable_s == 0
    case.read(problem="the driver is not loaded", after_s=5)
    assert case.inventory.unavailable_s == 0
    case.read(problem="NVML is not here", after_s=40)
    assert case.inventory.unavailable_s == 40
    case.clock.now_s += 100
    assert case.published() == {}
    assert case.inventory.unavailable_s == 40
    case.read(device(0))
    case.read(problem="NVML lost its driver")
    assert case.inventory.unavailable_s == 0


def test_mps_trouble_counts_if_mps_is_required():
    """The trouble belongs to the GPU with that UUID."""
    for required, expected in ((True, {"GPU-0": "mps", "GPU-1": ""}), (False, {})):
        case = InventoryHistory(device(0), device(1), require_mps=required)
        gpus = case.inventory.assessed(lambda uuid: "dead" if uuid == "GPU-0" else "")
        reasons = {a.gpu.uuid: a.problem.reason if a.problem else "" for a in gpus}
        assert reasons == (expected or {"GPU-0": "", "GPU-1": ""})


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
    unique_by=(lambda gpu: gpu.index, lambda gpu: gpu.uuid),
)
READINGS = st.builds(
    lambda devices, problem: Reading(devices=() if problem else tuple(devices), problem=problem),
    DEVICES,
    st.sampled_from(["", "", "the driver is not loaded"]),
)


@given(st.lists(st.tuples(READINGS, st.floats(0, 400)), max_size=12))
def test_published_inventory_can_always_be_read(history):
    """The scheduler reads the same GPUs, each GPU and each index once."""
    case = InventoryHistory()
    for reading_, after_s in history:
        case.clock.now_s += after_s
        case.inventory.update(reading_)
        gpus = tuple(assessed.gpu for assessed in case.inventory.assessed(lambda _: ""))

        assert gpus_of({ANNOTATION_GPUS: annotation(gpus)}) == gpus
        assert capacity(gpus) == 100 * sum(gpu.healthy for gpu in gpus)
        assert len({gpu.index for gpu in gpus}) == len(gpus)
        if not reading_.problem:
            assert {d.uuid for d in reading_.devices} <= {gpu.uuid for gpu in gpus}
        else:
            assert not any(gpu.healthy for gpu in gpus)


def test_the_intervals_fit_the_documented_limit():
    """A fault waits for timers only: elapsed time would measure the machine's load."""
    default = settings()
    assert default.nvml_silent_after_s + default.read_every_s < UNHEALTHY_WITHIN_S
    assert default.mps_silent_after_s + default.read_every_s < UNHEALTHY_WITHIN_S
    detection_s = default.mps_check_every_s + default.mps_ask_timeout_s
    assert detection_s + default.read_every_s < UNHEALTHY_WITHIN_S
