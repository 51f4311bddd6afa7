"""Each change of a GPU's health is reported once, in the log and as an Event on the node."""

from scheduler.agent.gpus.inventory import Inventory
from scheduler.agent.gpus.reading import Xid
from scheduler.agent.health_events import HealthEvents
from tests.agent.factories import device, reading, settings
from tests.agent.fakes import Clock


class HealthHistory:
    """Readings of an inventory, and the Events that they cause."""

    def __init__(self):
        self.recorded = []
        self.events = HealthEvents(lambda *event: self.recorded.append(event))
        self.inventory = Inventory(settings(), clock=Clock())

    def read(self, *devices, **overrides):
        new_reading = reading(*devices, **overrides)
        self.events.report_reading(new_reading)
        self.inventory.update(new_reading)
        self.events.report_health(self.inventory.assessed(lambda _: ""))
        events, self.recorded[:] = list(self.recorded), []
        return events


def test_problem_and_recovery_are_events():
    """They have the GPU's index, UUID and the reason; a healthy GPU causes none."""
    case = HealthHistory()
    assert case.read(device(0), device(1)) == []
    events = case.read(device(0), device(1, reset_due="page retirement"))
    message = "GPU 1 (GPU-1): page retirement is pending: reset the GPU"
    assert events == [("Warning", "GPUUnhealthy", message)]
    assert case.read(device(0), device(1, reset_due="page retirement")) == []
    assert case.read(device(0), device(1)) == [
        ("Normal", "GPUHealthy", "GPU 1 (GPU-1) has recovered")
    ]


def test_another_problem_is_reported():
    """The message has the current reason."""
    case = HealthHistory()
    case.read(device(0, reset_due="page retirement"))
    [(_, _, message)] = case.read(device(0, memory_failed=True))
    assert "no spare rows" in message


def test_returned_gpu_is_reported_again():
    """The last report of a removed GPU is forgotten."""
    case = HealthHistory()
    assert case.read(device(0, mig=True))
    assert case.read() != []  # it is lost now
    case.read(device(0, uuid="GPU-new"))
    assert case.read(device(0, mig=True)) != []


def test_nvml_and_unreadable_gpus_are_logged_once(logged):
    """A lasting state is one line."""
    case = HealthHistory()
    for _ in range(3):
        case.read(device(0), unreadable={1: "GPU is lost"}, xids=())
    for _ in range(3):
        case.read(problem="the driver is not loaded")
    case.read(device(0), xids=(Xid("GPU-0", 13),))
    assert [entry["event"] for entry in logged] == [
        "GPU cannot be read",
        "GPUs cannot be read",
        "GPU is unhealthy",
        "GPUs can be read again",
        "XID",
        "GPU has recovered",
    ]
