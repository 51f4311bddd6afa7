"""Pods whose share of a GPU is fixed, and the batches on them."""

from collections.abc import Sequence
from enum import Enum
from math import inf
from typing import NamedTuple

from scheduler.dispatch.requests import Job, WorkflowKey
from scheduler.dispatch.slices import Slice, remaining_ms

FunctionKey = tuple[str, str]  # namespace of its server, name of its profile
LONGEST_RATIO = 1.25  # of the longest time of a run over the expected one: runs vary


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


class PodStart(NamedTuple):
    """A pod to start."""

    function: FunctionKey
    share: Share
    pooled: bool = False


class Pod:
    """A process that serves one function.

    Attributes:
        name: unique among the pods of a dispatcher.
        node, gpu: place of the pod, as far as the owner knows.
        slots: batches that it takes at a time; those after the first wait in the pod.
        pooled: true if batches need tokens of the slice of its GPU; a pod holds them once.
        slice: slice of a pooled pod; the dispatcher sets it.
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
        "pooled",
        "ran_until_ms",
        "ready_ms",
        "runs",
        "served",
        "share",
        "slice",
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
        pooled: bool = False,
        state: PodState = PodState.STARTING,
        ready_ms: float = inf,
    ) -> None:
        self.name = name
        self.function = function
        self.share = share
        self.node = node
        self.gpu = gpu
        self.slots = slots
        self.pooled = pooled
        self.slice: Slice | None = None
        self.state = state
        self.ready_ms = ready_ms
        self.idle_since_ms = ready_ms
        self.ran_until_ms = -inf
        self.runs: list[Run] = []
        self.served = 0

    @property
    def is_open(self) -> bool:
        """True if it takes a batch now."""
        if self.state is not PodState.READY or len(self.runs) >= self.slots:
            return False
        if not self.pooled:
            return True
        gpu_slice, share = self.slice, self.share
        return gpu_slice is not None and gpu_slice.admits(self.name, share.gpu_percent, share.cpu)

    def free_in_ms(self, now_ms: float) -> float:
        """Return the predicted time until another batch would execute; inf: not known."""
        if self.runs:
            return remaining_ms(self.runs[-1].end_ms, now_ms)
        start_ms = remaining_ms(self.ready_ms, now_ms) if self.state is PodState.STARTING else 0.0
        if not self.pooled:
            return start_ms
        gpu_slice, share = self.slice, self.share
        if gpu_slice is None:
            return inf
        return max(start_ms, gpu_slice.wait_ms(share.gpu_percent, share.cpu, now_ms))


class Run:
    """A batch on a pod.

    Attributes:
        workflow, stage: queue of all its jobs.
        batch: batch of the profiled row that it was planned with; it has ``rows`` rows.
        latency_ms, profiled_ms: expected run time, and that of the profile.
        begin_ms: time at which it was handed over; ``execute_ms`` is the expected begin on the pod,
            which is later where another batch is in front.
        end_ms: predicted end.
        ended: true if it has ended or failed, or its pod was removed.
        pod_idle_ms: end of the run before it on the pod, or of the pod's start.
        is_first: true if no run has begun on the pod before it.
    """

    __slots__ = (
        "batch",
        "begin_ms",
        "end_ms",
        "ended",
        "execute_ms",
        "is_first",
        "jobs",
        "latency_ms",
        "pod",
        "pod_idle_ms",
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
        self.pod_idle_ms = pod.idle_since_ms
        self.is_first = not pod.served

    def lost_until_ms(self, now_ms: float) -> float:
        """Return until when its process may go on with it, if its answer is lost now."""
        return now_ms + remaining_ms(self.execute_ms + LONGEST_RATIO * self.latency_ms, now_ms)

    def count_waits(self) -> None:
        """Add the waits of its jobs, for the start of the pod and in the queue, to their phases."""
        pod, now_ms = self.pod, self.begin_ms
        for job in self.jobs:
            start_ms = min(max(pod.ready_ms - job.since_ms, 0.0), now_ms - job.since_ms)
            start_ms = start_ms if not pod.served else 0.0
            job.start_ms += start_ms
            job.queue_ms += self.execute_ms - job.since_ms - start_ms
            job.request.ends_ms[self.stage] = self.end_ms
