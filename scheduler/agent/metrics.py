"""The agent's metrics: every series, declared and documented here alone.

They are made at the scrape from what is known then, so a series ends with its GPU or its pod.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from scheduler import __version__
from scheduler.agent.inventory import Judged
from scheduler.agent.pods import GrantedPod


@dataclass(frozen=True, slots=True)
class Series:
    """What is said of one series before it has any value."""

    kind: type[CounterMetricFamily | GaugeMetricFamily]
    labels: tuple[str, ...]
    text: str


_GPU = ("node", "gpu")
_POD = ("namespace", "pod", "gpu")
SERIES: Final = {
    "esg_agent_info": Series(GaugeMetricFamily, ("version",), "The version that runs."),
    "esg_agent_nvml_up": Series(
        GaugeMetricFamily, ("node",), "Whether NVML tells of the GPUs: the driver is there."
    ),
    "esg_agent_node_writes_total": Series(
        CounterMetricFamily,
        ("node", "what"),
        "Writes to the node: annotation or capacity. Steady growth: somebody writes against us.",
    ),
    "esg_gpu_healthy": Series(
        GaugeMetricFamily, _GPU, "1 where pods may be placed on the GPU, 0 where it is ill."
    ),
    "esg_gpu_unhealthy": Series(
        GaugeMetricFamily,
        (*_GPU, "reason"),
        "1 for the reason why the GPU is ill: nvml, lost, unsupported, mig, xid, ecc, memory, mps.",
    ),
    "esg_gpu_memory_bytes": Series(
        GaugeMetricFamily, _GPU, "Memory of the GPU, less what its driver keeps for itself."
    ),
    "esg_gpu_memory_used_bytes": Series(
        GaugeMetricFamily, _GPU, "Memory in use, by anybody but the driver."
    ),
    "esg_gpu_utilization_ratio": Series(
        GaugeMetricFamily, _GPU, "Share of the time in which the GPU ran a kernel."
    ),
    "esg_gpu_temperature_celsius": Series(GaugeMetricFamily, _GPU, "Temperature of the GPU."),
    "esg_gpu_xid_errors_total": Series(
        CounterMetricFamily, (*_GPU, "xid"), "Critical errors of the driver, by XID."
    ),
    "esg_mps_restarts_total": Series(
        CounterMetricFamily, _GPU, "How often `esg mps` has started the GPU's MPS daemon again."
    ),
    "esg_pod_gpu_memory_used_bytes": Series(
        GaugeMetricFamily, _POD, "GPU memory of the processes of a pod that was granted a share."
    ),
    "esg_pod_gpu_memory_limit_bytes": Series(
        GaugeMetricFamily, _POD, "What each of those processes may have of it."
    ),
    "esg_pod_gpu_utilization_ratio": Series(
        GaugeMetricFamily,
        _POD,
        "Share of the GPU's time that a pod's processes used, where NVML tells it of MPS clients.",
    ),
}
Sample = tuple[str, tuple[str, ...], float]
"""A series' name, its labels' values in order, and its value."""


class AgentMetrics(Collector):
    """Turns samples into what `generate_latest` writes; its registry is `registry`."""

    def __init__(self, samples: Callable[[], Iterable[Sample]]) -> None:
        self._samples = samples
        self.registry = CollectorRegistry()
        self.registry.register(self)

    def collect(self) -> Iterable[Metric]:
        """For the registry."""
        families = {
            name: series.kind(name, series.text, labels=series.labels)
            for name, series in SERIES.items()
        }
        families["esg_agent_info"].add_metric([__version__], 1)
        for name, labels, value in self._samples():
            families[name].add_metric(list(labels), value)
        return families.values()


def gpu_samples(node: str, judged: Iterable[Judged]) -> Iterator[Sample]:
    """The series of the GPUs."""
    for gpu, ill, device in ((each.gpu, each.illness, each.device) for each in judged):
        labels = (node, gpu.uuid)
        yield "esg_gpu_healthy", labels, float(gpu.healthy)
        yield "esg_gpu_memory_bytes", labels, gpu.memory_mib * 2**20
        if ill is not None:
            yield "esg_gpu_unhealthy", (*labels, ill.reason), 1
            if ill.reason in {"nvml", "lost"}:  # the rest is of earlier
                continue
        for name, value in (
            ("esg_gpu_memory_used_bytes", device.memory_used_bytes),
            ("esg_gpu_utilization_ratio", device.utilization_ratio),
            ("esg_gpu_temperature_celsius", device.temperature_celsius),
        ):
            if value is not None:
                yield name, labels, value


def pod_samples(
    judged: Iterable[Judged],
    pods: dict[str, GrantedPod],
    uid_of: Callable[[int], str | None],
) -> Iterator[Sample]:
    """The series of the pods that were granted a share; ``uid_of`` finds a process' pod."""
    memory: defaultdict[tuple[str, str], int] = defaultdict(int)
    time: defaultdict[tuple[str, str], float] = defaultdict(float)
    for each in judged:
        for process in each.device.processes:
            uid = uid_of(process.pid)
            if uid not in pods:
                continue
            if process.memory_bytes is not None:
                memory[uid, each.gpu.uuid] += process.memory_bytes
            if process.utilization_ratio is not None:
                time[uid, each.gpu.uuid] += process.utilization_ratio
    for (uid, gpu), used in memory.items():
        yield "esg_pod_gpu_memory_used_bytes", (pods[uid].namespace, pods[uid].name, gpu), used
    for (uid, gpu), ratio in time.items():
        yield "esg_pod_gpu_utilization_ratio", (pods[uid].namespace, pods[uid].name, gpu), ratio
    for pod in pods.values():
        labels = (pod.namespace, pod.name, pod.gpu_uuid)
        yield "esg_pod_gpu_memory_limit_bytes", labels, pod.memory_mib * 2**20
