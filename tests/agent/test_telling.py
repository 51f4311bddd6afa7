"""Each change of a GPU is told once, in the log and as an Event on the node."""

from scheduler.agent.health_events import HealthEvents
from scheduler.agent.inventory import Inventory
from scheduler.agent.reading import Xid
from tests.agent.readings import Clock, device, reading, settings


class Case:
    def __init__(self):
        self.events = []
        self.teller = HealthEvents(lambda *event: self.events.append(event))
        self.inventory = Inventory(settings(), clock=Clock())

    def read(self, *devices, **differing):
        made = reading(*devices, **differing)
        self.teller.heard(made)
        self.inventory.take(made)
        self.teller.judged(self.inventory.judged(lambda _: ""))
        told, self.events[:] = list(self.events), []
        return told


def test_falling_ill_and_recovering_are_events():
    """With the GPU's index, UUID and the reason; a GPU that was never ill is not news."""
    case = Case()
    assert case.read(device(0), device(1)) == []
    told = case.read(device(0), device(1, reset_due="row remapping"))
    message = "GPU 1 (GPU-1): row remapping is pending: the GPU wants a reset"
    assert told == [("Warning", "GPUUnhealthy", message)]
    assert case.read(device(0), device(1, reset_due="row remapping")) == []
    assert case.read(device(0), device(1)) == [
        ("Normal", "GPUHealthy", "GPU 1 (GPU-1) has recovered")
    ]


def test_another_illness_is_news():
    """The reason that counts now is told."""
    case = Case()
    case.read(device(0, reset_due="row remapping"))
    [(_, _, message)] = case.read(device(0, memory_failed=True))
    assert "no spare rows" in message


def test_a_gpu_that_comes_back_is_news_again():
    """What was told of a GPU that is gone is forgotten."""
    case = Case()
    assert case.read(device(0, mig=True))
    assert case.read() != []  # it is lost now
    case.read(device(0, uuid="GPU-other"))
    assert case.read(device(0, mig=True)) != []


def test_nvml_and_unreadable_gpus_are_logged_once(logged):
    """A state that lasts is one line."""
    case = Case()
    for _ in range(3):
        case.read(device(0), unreadable={1: "GPU is lost"}, xids=())
    for _ in range(3):
        case.read(problem="the driver is not loaded")
    case.read(device(0), xids=(Xid("GPU-0", 13),))
    assert [entry["event"] for entry in logged] == [
        "a GPU cannot be read",
        "the GPUs cannot be read",
        "a GPU is ill",
        "the GPUs can be read again",
        "XID",
        "a GPU has recovered",
    ]
