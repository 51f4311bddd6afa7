"""The agent's metrics: every series is declared and documented here, and only here.

Each scrape computes them from the current state, so a series ends with its GPU or its pod.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from scheduler import __version__
from scheduler.agent.gpus.inventory import AssessedGpu
from scheduler.agent.mps.clients import ClientReport
from scheduler.agent.pods.granted_pod import GrantedPod
from scheduler.agent.pods.memory_use import MemoryExcess, memory_by_pod


@dataclass(frozen=True, slots=True)
class Series:
    """Declaration of one series."""

    kind: type[CounterMetricFamily | GaugeMetricFamily]
    labels: tuple[str, ...]
    text: str


_CUDA_13_1 = 13_010
_CLIENTS_MAX_BEFORE, _CLIENTS_MAX = 48, 60  # from Volta on; from CUDA 13.1 on
_GPU = ("node", "gpu")
_POD = ("namespace", "pod", "gpu")
_GRANTED = ("node", *_POD, "workflow", "stage")
SERIES: Final = {
    "esg_agent_info": Series(GaugeMetricFamily, ("version",), "The running version."),
    "esg_agent_nvml_up": Series(
        GaugeMetricFamily, ("node",), "1 if NVML reports the GPUs: the driver is loaded."
    ),
    "esg_agent_node_writes_total": Series(
        CounterMetricFamily,
        ("node", "field"),
        "Writes to the node. Steady growth of annotation or capacity: a client overwrites them.",
    ),
    "esg_agent_claim_plugin_registered": Series(
        GaugeMetricFamily,
        ("node",),
        "1 if the kubelet calls the agent for the resource claims of pods; absent without claims.",
    ),
    "esg_agent_claims_total": Series(
        CounterMetricFamily,
        ("node", "result"),
        "Resource claims in the kubelet's calls: prepared; refused, because no pod of the node has "
        "the claim and a grant; released; failed.",
    ),
    "esg_gpu_healthy": Series(
        GaugeMetricFamily, _GPU, "1 if pods may be placed on the GPU, 0 if it is unhealthy."
    ),
    "esg_gpu_unhealthy": Series(
        GaugeMetricFamily,
        (*_GPU, "reason"),
        "1 for the reason of its problem: nvml, lost, claimed, unsupported, mig, xid, ecc, memory, "
        "mps.",
    ),
    "esg_gpu_reset_due": Series(
        GaugeMetricFamily,
        _GPU,
        "1 if a repair of the GPU's memory waits for its next reset, healthy or not.",
    ),
    "esg_gpu_memory_bytes": Series(
        GaugeMetricFamily, _GPU, "Memory of the GPU without the part that its driver reserves."
    ),
    "esg_gpu_memory_used_bytes": Series(
        GaugeMetricFamily, _GPU, "Memory in use, without the part that its driver reserves."
    ),
    "esg_gpu_utilization_ratio": Series(
        GaugeMetricFamily, _GPU, "Share of time in which the GPU ran a kernel."
    ),
    "esg_gpu_temperature_celsius": Series(GaugeMetricFamily, _GPU, "Temperature of the GPU."),
    "esg_gpu_xid_errors_total": Series(
        CounterMetricFamily, (*_GPU, "xid"), "Critical errors of the driver, by XID."
    ),
    "esg_mps_restarts_total": Series(
        CounterMetricFamily, _GPU, "Restarts of the GPU's MPS daemon by `esg mps`."
    ),
    "esg_mps_faults_total": Series(
        CounterMetricFamily, _GPU, "MPS servers that failed, or ended while they had clients."
    ),
    "esg_mps_clients": Series(
        GaugeMetricFamily, _GPU, "Processes that use the GPU by its MPS server."
    ),
    "esg_mps_clients_max": Series(
        GaugeMetricFamily, _GPU, "Processes that the GPU's MPS server admits, by CUDA's version."
    ),
    "esg_mps_stale_clients": Series(
        GaugeMetricFamily,
        _GPU,
        "Processes whose MPS server has ended and that have not ended yet; should be 0.",
    ),
    "esg_mps_clients_ended_total": Series(
        CounterMetricFamily, _GPU, "Stale processes of granted pods that were ended."
    ),
    "esg_pod_gpu_memory_used_bytes": Series(
        GaugeMetricFamily, _POD, "GPU memory of the processes of a pod with a granted share."
    ),
    "esg_pod_gpu_memory_excess_bytes": Series(
        GaugeMetricFamily, _POD, "GPU memory of a pod above its grant; absent if it is within it."
    ),
    "esg_pod_gpu_memory_limit_bytes": Series(
        GaugeMetricFamily, _POD, "Memory limit of each process of the pod."
    ),
    "esg_pod_gpu_granted_ratio": Series(
        GaugeMetricFamily,
        _GRANTED,
        "Share of the GPU that is granted to a pod; 0 for a member of a pool.",
    ),
    "esg_pod_gpu_granted_bytes": Series(
        GaugeMetricFamily, _GRANTED, "GPU memory that is granted to a pod."
    ),
}
Sample = tuple[str, tuple[str, ...], float]
"""A series' name, its labels' values in order, and its value."""


class AgentMetrics(Collector):
    """Converts samples to metric families in its own `registry`."""

    def __init__(self, samples: Callable[[], Iterable[Sample]]) -> None:
        self._samples = samples
        self.registry = CollectorRegistry()
        self.registry.register(self)

    def collect(self) -> Iterable[Metric]:
        """Collect all series, for the registry."""
        families = {
            name: series.kind(name, series.text, labels=series.labels)
            for name, series in SERIES.items()
        }
        families["esg_agent_info"].add_metric([__version__], 1)
        for name, labels, value in self._samples():
            families[name].add_metric(list(labels), value)
        return families.values()


def gpu_samples(node: str, gpus: Iterable[AssessedGpu]) -> Iterator[Sample]:
    """Sample the series of the GPUs."""
    for assessed in gpus:
        gpu, problem, device = assessed.gpu, assessed.problem, assessed.device
        labels = (node, gpu.uuid)
        yield "esg_gpu_healthy", labels, float(gpu.healthy)
        yield "esg_gpu_memory_bytes", labels, gpu.memory_mib * 2**20
        if problem is not None:
            yield "esg_gpu_unhealthy", (*labels, problem.reason), 1
        if assessed.is_outdated:
            continue
        yield "esg_gpu_reset_due", labels, float(bool(device.reset_due))
        for name, value in (
            ("esg_gpu_memory_used_bytes", device.memory_used_bytes),
            ("esg_gpu_utilization_ratio", device.utilization_ratio),
            ("esg_gpu_temperature_celsius", device.temperature_celsius),
        ):
            if value is not None:
                yield name, labels, value


def clients_max(cuda_version: int | None) -> int:
    """Return the number of clients that an MPS server admits (NVIDIA's MPS documentation)."""
    return _CLIENTS_MAX if (cuda_version or 0) >= _CUDA_13_1 else _CLIENTS_MAX_BEFORE


def client_samples(node: str, gpu: str, clients: ClientReport) -> Iterator[Sample]:
    """Sample the series of a GPU's MPS clients."""
    labels = (node, gpu)
    yield "esg_mps_faults_total", labels, clients.faults
    yield "esg_mps_clients", labels, clients.connected
    yield "esg_mps_stale_clients", labels, clients.stale
    yield "esg_mps_clients_ended_total", labels, clients.ended_total


def excess_samples(excesses: Iterable[MemoryExcess]) -> Iterator[Sample]:
    """Sample the series of pods that exceed their memory."""
    for excess in excesses:
        labels = (excess.pod.namespace, excess.pod.name, excess.pod.gpu_uuid)
        yield "esg_pod_gpu_memory_excess_bytes", labels, excess.excess_bytes


def pod_samples(
    gpus: Collection[AssessedGpu],
    pods: Mapping[str, GrantedPod],
    uid_of: Callable[[int], str | None],
) -> Iterator[Sample]:
    """Sample the series of pods with a granted share; ``uid_of`` returns a process's pod."""
    for (uid, gpu), used_bytes in memory_by_pod(gpus, pods, uid_of).items():
        labels = (pods[uid].namespace, pods[uid].name, gpu)
        yield "esg_pod_gpu_memory_used_bytes", labels, used_bytes
    for pod in pods.values():
        labels = (pod.namespace, pod.name, pod.gpu_uuid)
        yield "esg_pod_gpu_memory_limit_bytes", labels, pod.memory_mib * 2**20


def granted_samples(node: str, pods: Iterable[GrantedPod]) -> Iterator[Sample]:
    """Sample what is granted to each pod."""
    for pod in pods:
        labels = (node, pod.namespace, pod.name, pod.gpu_uuid, pod.workflow, pod.stage)
        percent = 0 if pod.is_member else pod.gpu_percent
        yield "esg_pod_gpu_granted_ratio", labels, percent / 100
        yield "esg_pod_gpu_granted_bytes", labels, pod.memory_mib * 2**20
