"""A run of an autoscaling policy, which sets the number of containers of each pool."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from workbench.simulation.containers.functions import Container
from workbench.simulation.events import RESCALE
from workbench.simulation.loop import Observers
from workbench.simulation.policy import Policy
from workbench.simulation.queues.autoscaler import Autoscaler
from workbench.simulation.queues.batch_runs import Run
from workbench.simulation.queues.pool_dispatcher import PoolDispatcher
from workbench.simulation.queues.simulation import QueuedSimulation
from workbench.simulation.result import Result
from workbench.simulation.setup import SimulationState
from workbench.simulation.workflow_state import StageQueue


class PoolSimulation(QueuedSimulation):
    """A container serves the queues of its pool, and ends when the policy needs fewer."""

    def __init__(
        self, state: SimulationState, policy: Policy, seed: int, observers: Observers
    ) -> None:
        super().__init__(state, policy, seed, observers)
        self._autoscaler = Autoscaler(
            policy,
            state.queues,
            state.cluster,
            state.grants,
            self._queue,
            warm_at_start=state.scenario.warm_containers > 0,
        )
        self._dispatcher = PoolDispatcher(self._calls, self._runs, self._autoscaler, self._drop)
        self._queue.push(0.0, RESCALE, None)

    def result(self) -> Result:
        """Return the result of all events so far."""
        return Result(
            **self._measured(),
            cold_starts=self._autoscaler.cold_starts,
            prewarmed=0,
            forced=0,
            placement_failures=self._dispatcher.placement_failures,
        )

    def _handlers(self) -> dict[int, Callable[[Any, float], None]]:
        return {**super()._handlers(), RESCALE: self._rescale}

    def _schedule(self, queue: StageQueue, now_ms: float) -> None:
        self._dispatcher.schedule(queue, now_ms)

    def _joined(self, queues: Sequence[StageQueue], now_ms: float) -> None:
        for queue in queues:
            self._dispatcher.schedule(queue, now_ms)

    def _freed(self, run: Run, now_ms: float) -> Iterable[StageQueue]:
        container, parts = run
        self._autoscaler.release(container, now_ms)
        return (parts[0][0],)

    def _lost(
        self,
        container: Container,
        now_ms: float,
        *,
        is_running: bool,  # noqa: ARG002 - its contract
    ) -> Iterable[StageQueue]:
        return (self._autoscaler.lose(container, now_ms),)

    def _container_started(self, container: Container, now_ms: float) -> None:
        self._schedule(self._autoscaler.release(container, now_ms), now_ms)

    def _rescale(self, _: None, now_ms: float) -> None:
        if not self._is_stalled(now_ms):
            self._autoscaler.rescale(now_ms)
            self._queue.push(now_ms + self._policy.rescale_ms, RESCALE, None)
