"""Workflows while they run: their queues, and the requests on their way through them."""

from math import inf

from scheduler.dispatch.prewarming import Forecast
from scheduler.dispatch.queues import JobQueue
from scheduler.dispatch.retries import RetryState
from scheduler.placement.placement import Placer
from workbench.simulation.data_locality import Inputs
from workbench.simulation.functions import Function
from workbench.simulation.grant_cache import ContainerGrant, GrantOffers
from workbench.simulation.policy import QueueKey
from workbench.simulation.recording import Tally
from workbench.simulation.rng import Noise


class WorkflowState:
    """One workflow.

    Attributes:
        index: among the arrivals' workflows.
        key: namespace and name.
        slo_ms: as scaled by the scenario.
        tally: how its requests ended.
        stages, entries: its queues, and those that a request joins when it arrives.
        nowhere, joins: what a new request has by stage: where it ran, and how many predecessors of
            a joining stage have not ended.
    """

    __slots__ = (
        "entries",
        "forecast",
        "index",
        "joins",
        "key",
        "nowhere",
        "size",
        "slo_ms",
        "stages",
        "tally",
    )

    def __init__(self, index: int, key: tuple[str, str], slo_ms: float) -> None:
        self.index = index
        self.key = key
        self.slo_ms = slo_ms
        self.forecast = Forecast()
        self.tally = Tally(slo_ms)
        self.stages: tuple[StageQueue, ...] = ()
        self.entries: tuple[StageQueue, ...] = ()
        self.size = 0
        self.nowhere: list[int] = []
        self.joins: list[int] = []

    def set_stages(self, stages: tuple["StageQueue", ...]) -> None:
        """Its queues, by number of stage."""
        self.stages = stages
        self.entries = tuple(stage for stage in stages if not stage.inputs.before)
        self.size = len(stages)
        self.nowhere = [-1] * self.size
        self.joins = [len(stage.inputs.before) for stage in stages]


class SimulatedRequest:
    """One request of a workflow, from its arrival to its end; times in ms of the virtual clock."""

    __slots__ = ("arrival_ms", "cost", "ended", "flow", "left", "number", "pending", "ran_on")

    def __init__(self, number: int, flow: WorkflowState, arrival_ms: float) -> None:
        self.number = number
        self.flow = flow
        self.arrival_ms = arrival_ms
        self.cost = 0.0  # dollars: its part of the runs that served it
        self.left = flow.size  # stages that have not ended
        self.ran_on = flow.nowhere.copy()  # by stage: the row of the node that ran it
        self.pending = flow.joins.copy()  # by stage: predecessors that have not ended
        self.ended = False


class StageJob:
    """A request at one stage, with the phases of the longest chain of stages that led to it."""

    __slots__ = (
        "deadline_ms",
        "execute_ms",
        "queue_ms",
        "request",
        "since_ms",
        "start_ms",
        "transfer_ms",
    )

    def __init__(self, request: SimulatedRequest, deadline_ms: float) -> None:
        self.request = request
        self.deadline_ms = deadline_ms
        self.since_ms = request.arrival_ms  # when it joined its queue
        self.queue_ms = 0.0
        self.start_ms = 0.0
        self.transfer_ms = 0.0
        self.execute_ms = 0.0

    def forked(self) -> "StageJob":
        """The same history, for another branch of the workflow."""
        other = StageJob(self.request, self.deadline_ms)
        other.queue_ms = self.queue_ms
        other.start_ms = self.start_ms
        other.transfer_ms = self.transfer_ms
        other.execute_ms = self.execute_ms
        return other


class StageQueue(JobQueue[StageJob]):
    """The jobs of one stage of one workflow that wait, and what bears on where they run.

    Attributes:
        number: among all queues.
        key: namespace, workflow and stage.
        index: of the stage in its workflow.
        inputs: what it reads.
        joins: whether it waits for more than one stage.
        successors: the queues that its jobs join next.
        tally: its workflow's.
        late_max_ms: how long after its deadline a request is given up; inf: never.
        planned_ms: from a request's arrival to this stage, by the split of the SLO.
        minimum: the minimum configuration, for whoever is forced.
        ask_ms: when the policy wants to be asked again; inf: it does not.
        joined: jobs since the last rescaling.
        prewarm_pending: whether a start for a predicted arrival is on the agenda.
        wanted: what its policy put first, last time; None before the first time.
    """

    __slots__ = (
        "ask_ms",
        "flow",
        "function",
        "index",
        "inputs",
        "joined",
        "joins",
        "key",
        "late_max_ms",
        "minimum",
        "noise",
        "number",
        "patience",
        "placer",
        "planned_ms",
        "prewarm_pending",
        "successors",
        "tally",
        "wanted",
    )

    def __init__(  # noqa: PLR0913 - what it is, each by name
        self,
        *,
        number: int,
        flow: WorkflowState,
        index: int,
        stage: str,
        function: Function,
        inputs: Inputs,
    ) -> None:
        super().__init__()
        self.number = number
        self.flow = flow
        self.index = index
        self.key: QueueKey = (*flow.key, stage)
        self.function = function
        self.inputs = inputs
        self.joins = len(inputs.before) > 1
        self.successors: tuple[StageQueue, ...] = ()
        self.planned_ms = 0.0
        self.ask_ms = inf
        self.joined = 0
        self.prewarm_pending = False
        self.wanted: ContainerGrant | None = None
        self.tally = flow.tally
        self.late_max_ms = inf
        self.patience: RetryState
        self.noise: Noise
        self.placer: Placer
        self.minimum: GrantOffers
