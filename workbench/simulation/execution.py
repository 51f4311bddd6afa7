"""Execution of batches in containers: times, costs and energy, for all kinds of policies."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from scheduler.search.margin import log_normal_sigma
from workbench.simulation.containers.functions import Container
from workbench.simulation.recorder import TallyWindows
from workbench.simulation.setup import SimulationState
from workbench.simulation.workflow_state import SimulatedRequest, StageQueue

_MS_PER_S = 1000.0
Served: TypeAlias = Sequence[tuple[SimulatedRequest, StageQueue]]
"""Requests of a batch, with the queues that they come from; all are of one function."""


@dataclass(slots=True)
class Execution:
    """One batch that executes in a container.

    Attributes:
        begin_ms: begin of the execution, after start and transfer; it may be in the future.
        execute_ms: duration of the execution.
        dollars, joules: cost and energy of the whole batch.
        profiled_dollars: cost of the whole batch for the profile's time.
        served: requests in the batch.
    """

    begin_ms: float
    execute_ms: float
    dollars: float
    joules: float
    profiled_dollars: float
    served: Served

    @property
    def end_ms(self) -> float:
        """End of the execution."""
        return self.begin_ms + self.execute_ms


class Executions:
    """Executes batches, and knows which are under way.

    A time is the profile's, times a log-normal factor, times the slowdown by the runs beside it on
    the GPU when it begins.

    Attributes:
        slowdown: slowdown of a run by its neighbours on the GPU.
    """

    def __init__(self, state: SimulationState, tallies: TallyWindows) -> None:
        scenario = state.scenario
        self._tallies = tallies
        self._percent_max = scenario.limits.percent_max
        self._profiled_noise = scenario.profiled_noise
        self._sigmas: dict[tuple[str, str, int, int, int], float] = {}
        if scenario.profiled_noise:
            self._sigmas = {
                (name, gpu.model, c.cpu, c.gpu_percent, c.batch): log_normal_sigma(
                    c.p95_ms / c.latency_ms
                )
                for name, function in state.functions.items()
                for gpu in function.profile.spec.gpus
                for c in gpu.configurations
                if c.p95_ms is not None
            }
        self.slowdown = NeighbourSlowdown(scenario.interference_ratio, scenario.interference)
        power = scenario.power
        self._gpu_watts = (power.gpu_max_watts - power.gpu_idle_watts) / 100
        self._cpu_watts = power.vcpu_watts
        self._on_gpu: list[dict[Container, Execution]] = [{} for _ in state.cluster.gpu_uuids]

    def begin(
        self,
        container: Container,
        latency_ms: float,
        batch: int,
        begin_ms: float,
        served: Served,
    ) -> Execution:
        """Execute a batch of requests, with the noise of the first one's queue."""
        grant, queue = container.grant, served[0][1]
        sigma = None
        if self._profiled_noise:
            sigma = self._sigmas.get((container.function.name, *grant.share, batch))
        execute_ms = latency_ms * queue.noise.take_factor(sigma)
        beside = self._on_gpu[container.gpu]
        if self.slowdown.is_any:
            execute_ms *= self.slowdown.factor(container, beside, self._percent_max)
        dollars = execute_ms * grant.dollars_per_ms
        watts = self._gpu_watts * grant.percent + self._cpu_watts * grant.configuration.cpu
        joules = watts * execute_ms / _MS_PER_S
        profiled_dollars = latency_ms * grant.dollars_per_ms
        execution = Execution(begin_ms, execute_ms, dollars, joules, profiled_dollars, served)
        self._attribute(execution, 1.0, 1)
        beside[container] = execution
        return execution

    def end(self, container: Container) -> Execution:
        """End the batch of a container; return it."""
        return self._on_gpu[container.gpu].pop(container)

    def lose(self, container: Container, now_ms: float) -> Execution | None:
        """Break a container's batch off; return it, None without one.

        What has executed until now is paid: at most the whole batch, which may be slower beside
        others than it was to be.
        """
        execution = self._on_gpu[container.gpu].pop(container, None)
        if execution is not None:
            executed_ratio = max(now_ms - execution.begin_ms, 0.0) / execution.execute_ms
            self._attribute(execution, min(executed_ratio, 1.0) - 1.0, -1)
        return execution

    def _attribute(self, execution: Execution, ratio: float, sign: int) -> None:
        """Add a ratio of the cost and the energy of a batch to its requests, in equal parts.

        With the sign, add the limit of its stages, and what the number of its rows and then its
        share cost beyond that.
        """
        tally_at = self._tallies.at
        count = len(execution.served)
        dollars = ratio * execution.dollars / count
        joules = ratio * execution.joules / count
        profiled_dollars = sign * execution.profiled_dollars / count
        for request, queue in execution.served:
            request.cost_dollars += dollars
            tally = tally_at(request.workflow.index, request.arrival_ms)
            tally.ran_dollars += dollars
            tally.ran_joules += joules
            limit = queue.limit
            if limit is not None:
                limit_dollars = sign * limit.dollars
                batching_dollars = sign * queue.batching_dollars(count, limit.dollars_per_ms)
                tally.limit_dollars += limit_dollars
                tally.batching_dollars += batching_dollars
                tally.planning_dollars += profiled_dollars - limit_dollars - batching_dollars


class NeighbourSlowdown:
    """Slowdown of a run by those beside it on its GPU.

    Attributes:
        is_any: true if a neighbour can slow a run down.
    """

    def __init__(self, ratio: float, by_function: "dict[str, float | dict[str, float]]") -> None:
        """Take ``ratio`` for what the table does not have: see the keys of the scenario."""
        self._ratio = ratio
        self._by_function = by_function
        self.is_any = bool(ratio or by_function)

    def factor(self, container: Container, beside: Iterable[Container], percent_max: int) -> float:
        """Return the factor on the time of a container's run with these neighbours."""
        listed = self._by_function.get(container.function.name, self._ratio)
        slowdown = 0.0
        for neighbour in beside:
            ratio = (
                listed
                if isinstance(listed, (int, float))
                else listed.get(neighbour.function.name, self._ratio)
            )
            slowdown += ratio * neighbour.grant.percent / percent_max
        return 1.0 + slowdown
