"""Pre-warming in the simulation: containers started for predicted requests."""

from math import inf

from workbench.simulation.containers.cluster import SimulatedCluster
from workbench.simulation.errors import PolicyError
from workbench.simulation.events import CONTAINER_READY, PREWARM_DUE, EventQueue
from workbench.simulation.policy import Policy
from workbench.simulation.workflow_state import StageQueue, WorkflowState


class Prewarmer:
    """Starts containers one cold start before they are expected to be needed.

    A container gets the grant that the policy put first last time. None is started where the
    function has an idle one that can run under that grant: it serves the next request too.

    Attributes:
        started: number of containers that were started.
    """

    def __init__(self, policy: Policy, cluster: SimulatedCluster, events: EventQueue) -> None:
        self._policy = policy
        self._cluster = cluster
        self._events = events
        self._own_delays = type(policy).prewarm_delay_ms is not Policy.prewarm_delay_ms
        self.started = 0

    def arrived(self, workflow: WorkflowState, now_ms: float) -> None:
        """Update the forecast at a request's arrival, and start or schedule containers."""
        forecast = workflow.forecast
        forecast.arrived(now_ms)
        for queue in workflow.queues:
            if self._own_delays:
                delay_ms = self._delay_ms(queue, now_ms)
                if delay_ms is not None:
                    self._events.push(now_ms + delay_ms, PREWARM_DUE, queue)
                    continue
            function = queue.function
            due_ms = forecast.start_at_ms(queue.planned_ms, function.slow_start_ms)
            if due_ms <= now_ms:
                if function.lacks(queue.preferred):
                    self._start(queue, now_ms)
            elif not queue.prewarm_pending and due_ms < inf:
                queue.prewarm_pending = True
                self._events.push(due_ms, PREWARM_DUE, queue)

    def due(self, queue: StageQueue, now_ms: float) -> None:
        """Start a container at its predicted time."""
        queue.prewarm_pending = False
        if queue.function.lacks(queue.preferred):
            self._start(queue, now_ms)

    def _delay_ms(self, queue: StageQueue, now_ms: float) -> float | None:
        try:
            return self._policy.prewarm_delay_ms(queue.key)
        except Exception as error:
            raise PolicyError.of(self._policy.name, queue.key, now_ms, error) from error

    def _start(self, queue: StageQueue, now_ms: float) -> None:
        """Start a container on the first GPU with room for it, walking from the queue's home."""
        function = queue.function
        grants = queue.minimum.grants if queue.preferred is None else (queue.preferred,)
        for gpu in self._cluster.gpus_from(queue.placer.nodes_from_home):
            for grant in grants:
                if grant.gpu_model != self._cluster.gpu_models[gpu]:
                    continue
                container = self._cluster.start(function, grant, gpu, now_ms)
                if container is not None:
                    self.started += 1
                    self._events.push(container.ready_ms, CONTAINER_READY, container)
                    return
