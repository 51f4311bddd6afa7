"""Workflows while they run: their queues, and the requests that move through them."""

from collections.abc import Sequence
from math import inf

from scheduler.dispatch.forecast import Forecast
from scheduler.dispatch.queues import JobQueue
from scheduler.dispatch.stage_graph import StageGraph, StageWalk
from scheduler.model.progress import InstanceProgress
from scheduler.placement.placement import Placer
from scheduler.search.cost_bound import StageLimit
from workbench.simulation.containers.data_locality import Inputs
from workbench.simulation.containers.functions import Function
from workbench.simulation.containers.grant_cache import ContainerGrant, GrantOffers
from workbench.simulation.policy import QueueKey
from workbench.simulation.retries import RetryState
from workbench.simulation.rng import Noise
from workbench.simulation.stage_jobs import StageJob


class StageQueue(JobQueue[StageJob["SimulatedRequest"]]):
    """Waiting jobs of one stage of one workflow, and what decides where they run.

    Attributes:
        number: position among all queues.
        key: namespace, workflow and stage.
        index: index of the stage in its workflow.
        has_siblings: true if other stages may run in parallel with this one.
        workflow_index: index of the workflow among those of the arrivals.
        inputs: outputs of the stages before, which this stage reads.
        give_up_after_ms: time after its deadline at which a request is given up; inf: never.
        planned_ms: time from a request's arrival to this stage, by the split of the SLO.
        minimum: minimum configuration, for forced runs.
        retry_state: count of consecutive placement failures.
        noise: factors on run times.
        placer: placement of this queue's jobs on nodes.
        retry_at_ms: time of the next call of the policy without another event; inf: none.
        arrived: number of jobs since the last rescaling.
        prewarm_pending: true if a start for a predicted arrival is in the event queue.
        preferred: first grant of the policy's last answer; None before the first one.
        limit: part of the stage in the least cost of a request; None: none can be in time.
    """

    __slots__ = (
        "_batching_dollars",
        "arrived",
        "function",
        "give_up_after_ms",
        "has_siblings",
        "index",
        "inputs",
        "key",
        "limit",
        "minimum",
        "noise",
        "number",
        "placer",
        "planned_ms",
        "preferred",
        "prewarm_pending",
        "retry_at_ms",
        "retry_state",
        "workflow_index",
    )

    def __init__(  # noqa: PLR0913 - a queue is built once, complete
        self,
        *,
        number: int,
        key: QueueKey,
        index: int,
        has_siblings: bool,
        workflow_index: int,
        function: Function,
        inputs: Inputs,
        give_up_after_ms: float,
        planned_ms: float,
        minimum: GrantOffers,
        retry_state: RetryState,
        noise: Noise,
        placer: Placer,
        limit: StageLimit | None,
    ) -> None:
        super().__init__()
        self.number = number
        self.key = key
        self.index = index
        self.has_siblings = has_siblings
        self.workflow_index = workflow_index
        self.function = function
        self.inputs = inputs
        self.give_up_after_ms = give_up_after_ms
        self.planned_ms = planned_ms
        self.minimum = minimum
        self.retry_state = retry_state
        self.noise = noise
        self.placer = placer
        self.limit = limit
        self._batching_dollars: dict[int, float] = {}
        self.retry_at_ms = inf
        self.arrived = 0
        self.prewarm_pending = False
        self.preferred: ContainerGrant | None = None

    def batching_dollars(self, jobs: int, dollars_per_ms: float) -> float:
        """Return `Function.batching_dollars`; the price of a millisecond is always the same."""
        dollars = self._batching_dollars.get(jobs)
        if dollars is None:
            dollars = self.function.batching_dollars(jobs, dollars_per_ms)
            self._batching_dollars[jobs] = dollars
        return dollars


class WorkflowState:
    """One workflow.

    Attributes:
        index: index among the workflows of the arrivals.
        key: namespace and name.
        slo_ms: SLO as scaled by the scenario.
        graph: order of the stages.
        queues: queues of the stages, by index.
        forecast: forecast of the workflow's arrivals.
    """

    __slots__ = ("forecast", "graph", "index", "key", "queues", "slo_ms")

    def __init__(
        self,
        index: int,
        key: tuple[str, str],
        slo_ms: float,
        graph: StageGraph,
        queues: Sequence[StageQueue],
    ) -> None:
        self.index = index
        self.key = key
        self.slo_ms = slo_ms
        self.graph = graph
        self.queues = tuple(queues)
        self.forecast = Forecast()


class SimulatedRequest(StageWalk):
    """One request of a workflow, from its arrival to its end; times in ms of the virtual clock.

    Attributes:
        cost_dollars: cost of the request's part of the runs that served it.
        ran_on: row of the node that ran each stage; -1 before the stage has ended.
        ends_ms: end by the profile of each stage that has begun, for stages with siblings.
        transfers_ms: transfers on the longest chain of stages up to each one, of those that have
            ended; policies whose jobs have them leave it at 0.
    """

    __slots__ = (
        "arrival_ms",
        "cost_dollars",
        "ended",
        "ends_ms",
        "number",
        "ran_on",
        "transfers_ms",
        "workflow",
    )

    def __init__(self, number: int, workflow: WorkflowState, arrival_ms: float) -> None:
        super().__init__(workflow.graph)
        self.number = number
        self.workflow = workflow
        self.arrival_ms = arrival_ms
        self.cost_dollars = 0.0
        self.ran_on = [-1] * len(workflow.queues)
        self.ended = False
        self.ends_ms: dict[int, float] = {}
        self.transfers_ms = [0.0] * len(workflow.queues)

    def progress(self, now_ms: float) -> InstanceProgress:
        """Return the stages that have ended, and when those that run end by their profile."""
        names = [queue.key[2] for queue in self.workflow.queues]
        return InstanceProgress(
            frozenset(name for name, node in zip(names, self.ran_on, strict=True) if node >= 0),
            {names[v]: end_ms - now_ms for v, end_ms in self.ends_ms.items() if self.ran_on[v] < 0},
        )
