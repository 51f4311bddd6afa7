"""Runs of batches in containers: how long they take, what they cost, and when they end."""

from collections.abc import Callable
from typing import TypeAlias

from workbench.simulation.events import RUN_ENDED, EventQueue
from workbench.simulation.functions import Container
from workbench.simulation.loop import Job
from workbench.simulation.recorder import TallyWindows
from workbench.simulation.result import Span
from workbench.simulation.setup import SimulationState
from workbench.simulation.workflow_state import StageQueue

Parts: TypeAlias = tuple[tuple[StageQueue, list[Job]], ...]
"""Jobs of a batch by queue; the queues are of one function."""
Run: TypeAlias = tuple[Container, Parts]


class BatchRuns:
    """Begins runs.

    Attributes:
        runs, jobs: numbers of them.
        begun_ms: begin of the last run; predicted_end_ms: its end by the profile.
    """

    def __init__(
        self,
        state: SimulationState,
        tallies: TallyWindows,
        events: EventQueue,
        on_span: Callable[[Span], None] | None,
    ) -> None:
        self._cluster = state.cluster
        self._tallies = tallies
        self._events = events
        self._on_span = on_span
        self._interference_ratio = state.scenario.interference_ratio
        self._percent_max = state.scenario.limits.percent_max
        self.runs = self.jobs = 0
        self.begun_ms = self.predicted_end_ms = 0.0

    def begin(self, container: Container, parts: Parts, now_ms: float) -> None:
        """Run a batch in a container that holds its grant."""
        grant = container.grant
        ready_ms = container.ready_ms
        start_ms = ready_ms - now_ms if ready_ms > now_ms else 0.0
        transfer_ms, count = 0.0, 0
        for queue, jobs in parts:
            count += len(jobs)
            if queue.inputs.before:  # all jobs read over the node's one network
                for job in jobs:
                    transfer_ms += queue.inputs.transfer_ms(job.request.ran_on, container.node)
        first = parts[0][0]
        latency_ms = first.function.latency_ms(grant, count)
        execute_ms = latency_ms * first.noise.take_factor()
        if self._interference_ratio:
            execute_ms *= self._slowdown_factor(container)
        executes_ms = now_ms + start_ms + transfer_ms
        cost_dollars = execute_ms * grant.dollars_per_ms
        part_dollars = cost_dollars / count
        for queue, jobs in parts:
            for job in jobs:
                job.queue_ms += now_ms - job.since_ms
                job.start_ms += start_ms
                job.transfer_ms += transfer_ms
                job.execute_ms += execute_ms
                request = job.request
                request.cost_dollars += part_dollars
                tally = self._tallies.at(queue.workflow_index, request.arrival_ms)
                tally.ran_dollars += part_dollars
                if queue.has_siblings:
                    request.ends_ms[queue.index] = executes_ms + latency_ms
        self.runs += 1
        self.jobs += count
        self.begun_ms = now_ms
        self.predicted_end_ms = executes_ms + latency_ms
        self._events.push(executes_ms + execute_ms, RUN_ENDED, (container, parts))
        if self._on_span is not None:
            self._on_span(
                Span(
                    workflow=first.workflow_index,
                    stage=first.key[2],
                    function=first.function.name,
                    node=self._cluster.node_names[container.node],
                    gpu=self._cluster.gpu_uuids[container.gpu],
                    container=container.number,
                    begin_ms=now_ms,
                    start_ms=start_ms,
                    transfer_ms=transfer_ms,
                    execute_ms=executes_ms,
                    end_ms=executes_ms + execute_ms,
                    batch=grant.batch,
                    jobs=count,
                    cpu=grant.configuration.cpu,
                    gpu_percent=grant.percent,
                    memory_mib=grant.memory_mib,
                    cost_dollars=cost_dollars,
                )
            )

    def _slowdown_factor(self, container: Container) -> float:
        """Return the slowdown by what neighbours hold of the GPU, as the ledger has it."""
        free_percent = int(self._cluster.ledger.fleet.arrays.gpu_free_percent[container.gpu])
        others_ratio = 1.0 - (free_percent + container.grant.percent) / self._percent_max
        return 1.0 + self._interference_ratio * others_ratio
