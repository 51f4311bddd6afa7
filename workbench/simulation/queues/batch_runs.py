"""Runs of batches in containers: how long they take, what they cost, and when they end."""

from collections.abc import Callable, Sequence
from typing import TypeAlias

from workbench.simulation.containers.functions import Container
from workbench.simulation.events import RUN_ENDED, EventQueue
from workbench.simulation.execution import Executions
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
        runs, jobs: number of runs, and of the jobs in them.
        begun_ms: begin of the last run.
        predicted_end_ms: end of the last run by the profile.
    """

    def __init__(
        self,
        state: SimulationState,
        tallies: TallyWindows,
        events: EventQueue,
        on_span: Callable[[Span], None] | None,
    ) -> None:
        self._cluster = state.cluster
        self._executions = Executions(state, tallies)
        self._events = events
        self._on_span = on_span
        self._under_way: dict[Container, tuple[Parts, float]] = {}  # with the transfer time
        self.runs = self.jobs = 0
        self.begun_ms = self.predicted_end_ms = 0.0

    def begin(self, container: Container, parts: Parts, now_ms: float) -> None:
        """Run a batch in a container that holds its grant."""
        grant = container.grant
        ready_ms = container.ready_ms
        start_ms = ready_ms - now_ms if ready_ms > now_ms else 0.0
        transfer_ms = 0.0
        served = []
        for queue, jobs in parts:
            inputs = queue.inputs
            for job in jobs:
                served.append((job.request, queue))
                if inputs.before:  # all jobs read over the node's one network
                    transfer_ms += inputs.transfer_ms(job.request.ran_on, container.node)
        count = len(served)
        first = parts[0][0]
        latency_ms = first.function.latency_ms(grant, count)
        executes_ms = now_ms + start_ms + transfer_ms
        execution = self._executions.begin(container, latency_ms, grant.batch, executes_ms, served)
        execute_ms = execution.execute_ms
        for queue, jobs in parts:
            for job in jobs:
                job.queue_ms += now_ms - job.since_ms
                job.start_ms += start_ms
                job.transfer_ms += transfer_ms
                job.execute_ms += execute_ms
                if queue.has_siblings:
                    job.request.ends_ms[queue.index] = executes_ms + latency_ms
        self._under_way[container] = parts, transfer_ms
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
                    requests=tuple(
                        (job.request.number, queue.index) for queue, jobs in parts for job in jobs
                    ),
                    cpu=grant.configuration.cpu,
                    gpu_percent=grant.percent,
                    memory_mib=grant.memory_mib,
                    cost_dollars=execution.dollars,
                )
            )

    def lose(self, container: Container, now_ms: float) -> Sequence[StageQueue]:
        """Break the run of a container off: its jobs wait again; return their queues, if any.

        The time that is lost stays in the phase that it was spent in.
        """
        execution = self._executions.lose(container, now_ms)
        if execution is None:
            return ()
        parts, transfer_ms = self._under_way.pop(container)
        unspent_ms = execution.end_ms - now_ms
        unexecuted_ms = min(unspent_ms, execution.execute_ms)
        untransferred_ms = min(unspent_ms - unexecuted_ms, transfer_ms)
        for queue, jobs in parts:
            for job in jobs:
                job.execute_ms -= unexecuted_ms
                job.transfer_ms -= untransferred_ms
                job.start_ms -= unspent_ms - unexecuted_ms - untransferred_ms
                job.since_ms = now_ms
                if queue.has_siblings:
                    del job.request.ends_ms[queue.index]
                if not job.request.ended:
                    queue.add(job)
        return [queue for queue, _ in parts]

    def end(self, container: Container) -> None:
        """End the run of a container."""
        self._executions.end(container)
        del self._under_way[container]
