"""Pods whose share of a GPU is fixed, and the batches on them."""

from collections.abc import Sequence
from enum import Enum
from math import inf
from typing import NamedTuple

from scheduler.dispatch.requests import Job, WorkflowKey

FunctionKey = tuple[str, str]  # namespace of its server, name of its profile
OVERDUE_MS = 1.0  # so that a look at what is overdue is not repeated at the same moment


class PodState(Enum):
    """State of a pod."""

    STARTING = "starting"
    READY = "ready"
    DRAINING = "draining"  # it ends its runs and gets no other


class Share(NamedTuple):
    """Resources of a pod, which do not change while it lives."""

    gpu_model: str
    cpu: int
    gpu_percent: int
    memory_mib: int


class Pod:
    """A process that serves one function.

    Attributes:
        name: unique among the pods of a dispatcher.
        node, gpu: where it is, as far as the owner knows.
        slots: batches that it takes at a time; those after the first wait in the pod.
        ready_ms: end of its start; predicted while it starts.
        idle_since_ms: end of its last run, or of its start.
        ran_until_ms: end of its last run; -inf before the first one has ended.
        runs: batches on it, in the order in which they began.
        served: runs that have begun on it.
    """

    __slots__ = (
        "function",
        "gpu",
        "idle_since_ms",
        "name",
        "node",
        "ran_until_ms",
        "ready_ms",
        "runs",
        "served",
        "share",
        "slots",
        "state",
    )

    def __init__(  # noqa: PLR0913 - each by its name
        self,
        name: str,
        function: FunctionKey,
        share: Share,
        *,
        node: str = "",
        gpu: str = "",
        slots: int = 1,
        state: PodState = PodState.STARTING,
        ready_ms: float = inf,
    ) -> None:
        self.name = name
        self.function = function
        self.share = share
        self.node = node
        self.gpu = gpu
        self.slots = slots
        self.state = state
        self.ready_ms = ready_ms
        self.idle_since_ms = ready_ms
        self.ran_until_ms = -inf
        self.runs: list[Run] = []
        self.served = 0

    @property
    def is_open(self) -> bool:
        """True if it takes a batch now."""
        return self.state is PodState.READY and len(self.runs) < self.slots

    def free_in_ms(self, now_ms: float) -> float:
        """Return the predicted time until another batch would execute.

        A run, or a start, that exceeds its prediction is expected to take as long again as it has
        exceeded it by, and at least `OVERDUE_MS`.
        """
        if self.runs:
            end_ms = self.runs[-1].end_ms
        elif self.state is PodState.STARTING:
            end_ms = self.ready_ms
        else:
            return 0.0
        return end_ms - now_ms if now_ms < end_ms else max(now_ms - end_ms, OVERDUE_MS)


class Run:
    """A batch on a pod.

    Attributes:
        workflow, stage: of its jobs, which are all of one queue.
        batch: of the profiled row it was planned with; ``rows`` is the number of rows it has.
        latency_ms, profiled_ms: expected run time, and that of the profile.
        begin_ms: when it was handed over; ``execute_ms`` is when the pod is expected to begin it,
            which is later where another batch is in front.
        end_ms: predicted end.
        ended: it has ended or failed, or its pod was removed.
    """

    __slots__ = (
        "batch",
        "begin_ms",
        "end_ms",
        "ended",
        "execute_ms",
        "jobs",
        "latency_ms",
        "pod",
        "profiled_ms",
        "rows",
        "stage",
        "workflow",
    )

    def __init__(  # noqa: PLR0913 - each by its name
        self,
        *,
        pod: "Pod",
        workflow: WorkflowKey,
        stage: int,
        jobs: Sequence[Job],
        batch: int,
        latency_ms: float,
        profiled_ms: float,
        begin_ms: float,
        execute_ms: float,
    ) -> None:
        self.pod = pod
        self.workflow = workflow
        self.stage = stage
        self.jobs = tuple(jobs)
        self.rows = sum(job.rows for job in jobs)
        self.batch = batch
        self.latency_ms = latency_ms
        self.profiled_ms = profiled_ms
        self.begin_ms = begin_ms
        self.execute_ms = execute_ms
        self.end_ms = execute_ms + latency_ms
        self.ended = False
