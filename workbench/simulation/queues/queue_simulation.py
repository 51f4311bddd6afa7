"""A run of a planning policy: containers start and end as its queues require."""

from collections.abc import Callable, Iterable, Sequence
from math import inf
from typing import Any

from workbench.simulation.containers.functions import Container
from workbench.simulation.events import KEEP_ALIVE_ENDED, PREWARM_DUE
from workbench.simulation.loop import Observers
from workbench.simulation.policy import Policy
from workbench.simulation.queues.batch_runs import Run
from workbench.simulation.queues.dispatcher import QueueDispatcher
from workbench.simulation.queues.prewarmer import Prewarmer
from workbench.simulation.queues.simulation import QueuedSimulation
from workbench.simulation.queues.warm_start import warm_up
from workbench.simulation.result import Result
from workbench.simulation.setup import SimulationState
from workbench.simulation.workflow_state import StageQueue, WorkflowState


class QueueSimulation(QueuedSimulation):
    """Any container of a function serves all its queues, and ends when it was idle too long."""

    def __init__(
        self, state: SimulationState, policy: Policy, seed: int, observers: Observers
    ) -> None:
        super().__init__(state, policy, seed, observers)
        warm_up(state, self._calls, policy.context.rate_rps)
        self._prewarmer: Prewarmer | None = None
        if state.scenario.prewarm and policy.prewarms:
            self._prewarmer = Prewarmer(policy, state.cluster, self._queue)
        self._dispatcher = QueueDispatcher(state, self._calls, self._runs, self._drop)
        self._keep_alive_ms = state.scenario.container_keep_alive_ms
        self._expiry_pending = False
        self._schedule_expiry(0.0)

    def result(self) -> Result:
        """Return the result of all events so far."""
        return Result(
            **self._measured(),
            cold_starts=self._dispatcher.cold_starts,
            prewarmed=self._prewarmer.started if self._prewarmer else 0,
            forced=self._dispatcher.forced,
            placement_failures=self._dispatcher.placement_failures,
        )

    def _handlers(self) -> dict[int, Callable[[Any, float], None]]:
        handlers = super()._handlers()
        handlers[KEEP_ALIVE_ENDED] = self._expire
        if self._prewarmer is not None:
            handlers[PREWARM_DUE] = self._prewarmer.due
        return handlers

    def _arrive(self, workflow: WorkflowState, now_ms: float) -> None:
        super()._arrive(workflow, now_ms)
        if self._prewarmer is not None:
            self._prewarmer.arrived(workflow, now_ms)

    def _schedule(self, queue: StageQueue, now_ms: float) -> None:
        self._dispatcher.schedule(queue, now_ms)

    def _joined(self, queues: Sequence[StageQueue], now_ms: float) -> None:
        self._dispatcher.capacity_freed(queues, now_ms)

    def _freed(self, run: Run, now_ms: float) -> Iterable[StageQueue]:
        self._cluster.end(run[0], now_ms)
        self._schedule_expiry(now_ms)
        return ()

    def _lost(
        self, container: Container, now_ms: float, *, is_running: bool
    ) -> Iterable[StageQueue]:
        self._cluster.lose(container, now_ms, is_running=is_running)
        return ()

    def _container_started(self, container: Container, now_ms: float) -> None:
        if self._cluster.started(container, now_ms):
            self._schedule_expiry(now_ms)
            self._dispatcher.capacity_freed([], now_ms)

    def _schedule_expiry(self, now_ms: float) -> None:
        if not self._expiry_pending:
            self._expiry_pending = True
            self._queue.push(now_ms + self._keep_alive_ms, KEEP_ALIVE_ENDED, None)

    def _expire(self, _: None, now_ms: float) -> None:
        next_ms = self._cluster.expire_ms(now_ms)
        self._expiry_pending = next_ms < inf
        if self._expiry_pending:
            self._queue.push(next_ms, KEEP_ALIVE_ENDED, None)
