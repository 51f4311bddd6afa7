"""Size of a function's pods: one share for each function, such that all workflows are in time.

A pod's share is fixed, so it is chosen when pods are started, for all workflows that use the
function. All functions begin with the configuration whose pods cost least. While a workflow takes
longer than its limit, one function gets a faster configuration: the one that saves the most time of
late workflows for its additional cost. Then each function gets the cheapest configuration
that keeps the workflows in time that are in time. In the end, vCPUs that no other pod needs next to
the GPUs make pods faster, so that fewer pods are needed.
"""

from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import inf, sqrt
from operator import itemgetter
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from scheduler.dispatch.stage_graph import StageGraph
from scheduler.model.documents import FunctionProfile, ProfiledConfiguration, Workflow
from scheduler.model.plan import MS_PER_HOUR, Prices

Floats = NDArray[np.float64]

_RESERVE_RATIO = 1.2  # of the square root of the busy pods, whatever the objective: ADR 41
_TIE_RATIO = 0.01  # of a pod's own price beside that of the part of a node that it takes
_DOLLARS_MIN = 1e-9  # per hour: an upgrade that costs nothing, or saves, comes first


class PodSize(NamedTuple):
    """A configuration for the pods of a function.

    Attributes:
        stage_ms: run time of its batch, and the time in which it fills.
        busy_pods: number of pods that the rate keeps busy.
        pods: number of pods that serve the rate.
        dollars_per_hour: price of these.
        node_ratio: part of a node that a pod counts for, without its memory.
    """

    gpu_model: str
    configuration: ProfiledConfiguration
    stage_ms: float
    busy_pods: float
    pods: float
    dollars_per_hour: float
    node_ratio: float


@dataclass(frozen=True, slots=True)
class WorkflowLoad:
    """A workflow with its rate.

    Attributes:
        limit_ms: time that its stages may take.
    """

    document: Workflow
    rows_per_ms: float
    limit_ms: float


@dataclass(frozen=True, slots=True)
class PodPrices:
    """Prices of pods that hold their resources.

    A pod with more vCPUs for its share than the node has leaves a part of a GPU that no other pod
    can use, and the reverse; so does one with more memory. It costs as much as the largest part of
    the node that it takes.

    Attributes:
        cpus_per_gpu: vCPUs of a node for each of its GPUs; None: a pod costs what it holds.
        gpu_memory_mib: memory of one GPU for pods, by model; unknown for models that are absent.
    """

    prices: Prices
    cpus_per_gpu: float | None = None
    gpu_memory_mib: Mapping[str, int] = field(default_factory=dict)

    def dollars_per_hour(self, gpu_model: str, configuration: ProfiledConfiguration) -> float:
        """Return the price of one pod, with the memory of this configuration."""
        cpu, percent = configuration.cpu, configuration.gpu_percent
        own = self.prices.request_cost_dollars(MS_PER_HOUR, cpu, percent, 1, gpu_model)
        cpus, total_mib = self.cpus_per_gpu, self.gpu_memory_mib.get(gpu_model)
        if cpus is None:
            return own
        whole = self.prices.request_cost_dollars(MS_PER_HOUR, cpus, 100, 1, gpu_model)
        memory_ratio = configuration.memory_mib / total_mib if total_mib else 0.0
        return max(self.node_ratio(configuration), memory_ratio) * whole + _TIE_RATIO * own

    def pod_memory_mib(self, profile: FunctionProfile, size: "PodSize", parts: int = 1) -> int:
        """Return the memory of a size's pod: that of the largest batch that costs no other pod.

        A batch larger than the size's is a help with bursts and late rows. Its memory is free as
        long as the pod takes no larger part of it than of the GPU's share, or of the vCPUs; of a
        pooled pod, than one of so many ``parts`` of that.
        """
        point, total_mib = size.configuration, self.gpu_memory_mib.get(size.gpu_model, inf)
        free_mib = max(size.node_ratio * total_mib / parts, point.memory_mib)
        return max(
            c.memory_mib
            for gpu in profile.spec.gpus
            for c in gpu.configurations
            if gpu.model == size.gpu_model
            and (c.cpu, c.gpu_percent) == (point.cpu, point.gpu_percent)
            and c.memory_mib <= free_mib
        )

    def node_ratio(self, configuration: ProfiledConfiguration) -> float:
        """Return the larger of a pod's parts of the GPU and of its node's vCPUs for one GPU."""
        cpu_ratio = configuration.cpu / self.cpus_per_gpu if self.cpus_per_gpu else 0.0
        return max(configuration.gpu_percent / 100, cpu_ratio)


def least_memory_mib(gpus: Iterable[tuple[str, int]]) -> dict[str, int]:
    """Return the least memory of the GPUs of each model; ``gpus`` are models and MiB."""
    memory_mib: dict[str, int] = {}
    for model, gpu_mib in gpus:
        memory_mib[model] = min(memory_mib.get(model, gpu_mib), gpu_mib)
    return memory_mib


class Sizing:
    """Choice of the sizes of all functions together.

    Attributes:
        rows_per_ms: rate of each function.
    """

    def __init__(
        self,
        loads: Sequence[WorkflowLoad],
        profiles: Mapping[str, FunctionProfile],
        prices: PodPrices,
        refused: Container[tuple[str, str, int, int]] = frozenset(),
    ) -> None:
        """Prepare the sizes.

        ``refused`` has shares that cannot be started now: function, GPU model, vCPUs and percent.
        They count only for a function that has no other.
        """
        self._limits_ms = np.array([load.limit_ms for load in loads], np.float64)
        self._orders = [_order(load.document) for load in loads]
        self._uses: dict[str, list[int]] = {}  # of each function, by index of the workflow
        for i, order in enumerate(self._orders):
            for function in dict(order):
                self._uses.setdefault(function, []).append(i)
        self.rows_per_ms: dict[str, float] = {}
        for load in loads:
            for stage in load.document.spec.stages:
                rate = self.rows_per_ms.get(stage.function, 0.0)
                self.rows_per_ms[stage.function] = rate + load.rows_per_ms
        self._cpus_per_gpu = prices.cpus_per_gpu
        self._startable = {
            function: [size for size in sizes if (function, *_share(size)) not in refused] or sizes
            for function, rate in self.rows_per_ms.items()
            for sizes in [list(_sizes(profiles[function], rate, prices))]
        }
        self._sizes = {function: _efficient(sizes) for function, sizes in self._startable.items()}

    def choice(self) -> dict[str, PodSize]:
        """Return the size of each function's pods."""
        choice = {f: min(sizes, key=_dollars) for f, sizes in self._sizes.items()}
        while (self._excess_ms(choice) > 0.0).any():
            upgrade = self._upgrade(choice)
            if upgrade is None:
                break
            choice[upgrade[0]] = upgrade[1]
        self._trim(choice)
        self._use_spare_cpus(choice)
        return choice

    def _upgrade(self, choice: Mapping[str, PodSize]) -> tuple[str, PodSize] | None:
        """Return the faster size that saves late workflows the most time for its price."""
        late_ms = np.maximum(self._excess_ms(choice), 0.0)
        best, best_ratio = None, 0.0
        for function, sizes in self._sizes.items():
            faster = [size for size in sizes if size.stage_ms < choice[function].stage_ms]
            uses = self._uses[function]
            if not faster or not late_ms[uses].any():
                continue
            gains_ms = late_ms[uses].sum() - np.maximum(
                self._excess_with(choice, function, faster), 0.0
            ).sum(axis=0)
            prices = np.array([_dollars(size) for size in faster]) - _dollars(choice[function])
            ratios = gains_ms / np.maximum(prices, _DOLLARS_MIN)
            first = int(ratios.argmax())
            if ratios[first] > best_ratio:
                best, best_ratio = (function, faster[first]), ratios[first]
        return best

    def _trim(self, choice: dict[str, PodSize]) -> None:
        """Take the cheapest sizes that make no workflow late, the largest saving first."""
        allowed_ms = np.maximum(self._excess_ms(choice), 0.0)
        while True:
            savings = []
            for function, sizes in self._sizes.items():
                price = _dollars(choice[function])
                cheaper = [size for size in sizes if _dollars(size) < price]
                if cheaper:
                    excess_ms = self._excess_with(choice, function, cheaper)
                    fits = np.all(
                        excess_ms <= allowed_ms[self._uses[function], None], axis=0
                    ).tolist()
                    savings += [
                        (price - _dollars(size), function, size)
                        for size, is_in_time in zip(cheaper, fits, strict=True)
                        if is_in_time
                    ]
            if not savings:
                return
            _, function, size = max(savings, key=lambda saving: saving[0])
            choice[function] = size

    def _use_spare_cpus(self, choice: dict[str, PodSize]) -> None:
        """Give pods vCPUs that are spare next to the GPUs, where they save the most of these.

        All pods together take no larger part of the vCPUs than of the GPUs.
        """
        cpus_per_gpu = self._cpus_per_gpu
        if cpus_per_gpu is None:
            return
        while True:
            spare_cpus = sum(cpus_per_gpu * _gpus(size) - _vcpus(size) for size in choice.values())
            faster = [
                ((_gpus(current) - _gpus(size)) / cpus, function, size)
                for function, current in choice.items()
                for size in self._startable[function]
                if _is_like(size, current)
                and (cpus := _vcpus(size) - _vcpus(current)) > 0.0
                and cpus + cpus_per_gpu * (_gpus(current) - _gpus(size)) <= spare_cpus
            ]
            saved_ratio, function, size = max(faster, default=(0.0, "", None), key=itemgetter(0))
            if size is None or saved_ratio <= 0.0:
                return
            choice[function] = size._replace(node_ratio=choice[function].node_ratio)

    def _excess_ms(self, choice: Mapping[str, PodSize]) -> Floats:
        """Return (workflows,) by how much each workflow exceeds its limit; negative below it."""
        stage_ms = {function: size.stage_ms for function, size in choice.items()}
        paths_ms = [_path_ms(order, stage_ms) for order in self._orders]
        return np.array(paths_ms, np.float64) - self._limits_ms

    def _excess_with(
        self, choice: Mapping[str, PodSize], function: str, sizes: Sequence[PodSize]
    ) -> Floats:
        """Return (workflows, sizes) the same for the workflows that use a function, by its size."""
        stage_ms: dict[str, float | Floats] = {f: size.stage_ms for f, size in choice.items()}
        stage_ms[function] = np.array([size.stage_ms for size in sizes], np.float64)
        uses = self._uses[function]
        paths_ms = np.stack([_path_ms(self._orders[i], stage_ms) for i in uses])
        return paths_ms - self._limits_ms[uses, None]


def _dollars(size: PodSize) -> float:
    return size.dollars_per_hour


def _vcpus(size: PodSize) -> float:
    return size.pods * size.configuration.cpu


def _gpus(size: PodSize) -> float:
    return size.pods * size.configuration.gpu_percent / 100


def _is_like(size: PodSize, current: PodSize) -> bool:
    """Return true if two sizes differ in their vCPUs alone."""
    a, b = size.configuration, current.configuration
    return (size.gpu_model, a.gpu_percent, a.batch) == (current.gpu_model, b.gpu_percent, b.batch)


def _share(size: PodSize) -> tuple[str, int, int]:
    return size.gpu_model, size.configuration.cpu, size.configuration.gpu_percent


def _order(document: Workflow) -> list[tuple[str, list[int]]]:
    """Return function and predecessors of each stage, predecessors first, by place in the list."""
    stages = document.spec.stages
    graph = StageGraph(stages)
    place: dict[int, int] = {}
    order: list[tuple[str, list[int]]] = []
    while len(order) < len(stages):
        for i, before in enumerate(graph.predecessors):
            if i not in place and all(p in place for p in before):
                place[i] = len(order)
                order.append((stages[i].function, [place[p] for p in before]))
    return order


def _path_ms(
    order: Iterable[tuple[str, list[int]]], stage_ms: Mapping[str, float | Floats]
) -> float | Floats:
    """Return the longest path; an array where the time of a function is one."""
    ends_ms: list[float | Floats] = []
    longest_ms: float | Floats = 0.0
    for function, before in order:
        begin_ms: float | Floats = 0.0
        for place in before:
            begin_ms = np.maximum(begin_ms, ends_ms[place])
        ends_ms.append(begin_ms + stage_ms[function])
        longest_ms = np.maximum(longest_ms, ends_ms[-1])
    return longest_ms


def _sizes(profile: FunctionProfile, rows_per_ms: float, prices: PodPrices) -> Iterable[PodSize]:
    for gpu in profile.spec.gpus:
        for c in gpu.configurations:
            fill_ms = (c.batch - 1) / rows_per_ms if c.batch > 1 else 0.0
            busy_pods = rows_per_ms * c.latency_ms / c.batch
            pods = busy_pods + _RESERVE_RATIO * sqrt(busy_pods)
            dollars = pods * prices.dollars_per_hour(gpu.model, c)
            node_ratio = prices.node_ratio(c)
            stage_ms = c.latency_ms + fill_ms
            yield PodSize(gpu.model, c, stage_ms, busy_pods, pods, dollars, node_ratio)


def _efficient(sizes: Iterable[PodSize]) -> list[PodSize]:
    """Return those that are cheaper than every faster one, the fastest first."""
    efficient: list[PodSize] = []
    for size in sorted(sizes, key=lambda s: (s.stage_ms, s.dollars_per_hour)):
        if not efficient or _dollars(size) < _dollars(efficient[-1]):
            efficient.append(size)
    return efficient
