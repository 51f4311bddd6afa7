"""Events on pods: ended processes, and GPU memory above the grant."""

from scheduler.agent.gpus.inventory import Inventory
from scheduler.agent.gpus.reading import Process
from scheduler.agent.metrics import excess_samples
from scheduler.agent.mps.clients import ClientReport
from scheduler.agent.pod_events import PodEvents
from scheduler.agent.pods.granted_pod import GrantedPod
from scheduler.agent.pods.memory_use import MemoryExcesses, memory_by_pod
from tests.agent.factories import device, reading, settings
from tests.agent.fakes import Clock

MIB = 2**20
POD = GrantedPod("uid-a", "team", "a", "GPU-0", 30, 1000)
PODS = {"uid-a": POD, "uid-b": GrantedPod("uid-b", "team", "b", "GPU-0", 20, 1000)}


class RecordedEvents(PodEvents):
    """Pod events in a list."""

    def __init__(self):
        self.events: list[tuple[str, str, str]] = []
        super().__init__(self._add)

    def _add(self, pod, kind, reason, message):
        assert (pod.namespace, kind) == ("team", "Warning")
        self.events.append((pod.name, reason, message))


def used(*processes):
    """Sum the memory of processes: the pod's UID and MiB."""
    listed = [
        Process(pid, None if mib is None else mib * MIB) for pid, (_, mib) in enumerate(processes)
    ]
    inventory = Inventory(settings(), clock=Clock())
    inventory.update(reading(device(0, processes=tuple(listed))))
    gpus = inventory.assessed(lambda _: "")
    return memory_by_pod(gpus, PODS, lambda pid: processes[pid][0])


def test_each_ended_process_is_reported_once():
    """Pods without a grant, and reports of an earlier agent, are left out."""
    events = RecordedEvents()
    for ended in (
        {"uid-a": 1},
        {"uid-a": 1},
        {"uid-a": 3, "uid-gone": 1},
        {"uid-b": 1},  # of a new supervisor
        {"uid-b": 1},
    ):
        events.report_ended("GPU-0", ClientReport(ended=ended), PODS)
    assert [(pod, reason) for pod, reason, _ in events.events] == [
        ("a", "MPSClientsEnded"),
        ("b", "MPSClientsEnded"),
    ]
    assert "2 of the pod's processes could not use the GPU" in events.events[0][2]


def test_a_pod_above_its_memory_is_reported_at_the_beginning():
    """A pod's memory is the sum of its processes; unknown and foreign memory does not count."""
    excesses = MemoryExcesses(tolerance_ratio=0.1, clock=Clock())
    events = RecordedEvents()

    def update(*processes):
        events.report_memory(excesses.update(used(*processes), PODS))
        return [name for name, *_ in events.events]

    assert update(("uid-a", 600), ("uid-a", 500), ("uid-b", None), ("foreign", 9000)) == []
    assert update(("uid-a", 600), ("uid-a", 501), ("uid-b", 10)) == ["a"]
    assert update(("uid-a", 600), ("uid-a", 700)) == ["a"]
    assert list(excess_samples(excesses.current.values())) == [
        ("esg_pod_gpu_memory_excess_bytes", ("team", "a", "GPU-0"), 300 * MIB)
    ]
    assert update() == ["a"]
    assert excesses.current == {}
    assert update(("uid-a", 2000)) == ["a", "a"]
    assert "use 1101 MiB of GPU GPU-0, and 1000 MiB are granted" in events.events[0][2]


def test_a_lasting_excess():
    """The time begins again when the pod was within its memory."""
    clock = Clock()
    excesses = MemoryExcesses(tolerance_ratio=0, clock=clock)
    for mib, seconds, expected in (
        (1001, 10, [POD]),
        (1001, 0, [POD]),
        (1000, 0, []),
        (1001, 9, []),
    ):
        excesses.update(used(("uid-a", mib)), PODS)
        clock.now_s += seconds
        assert [excess.pod for excess in excesses.lasting(10)] == expected
