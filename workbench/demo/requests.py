"""Requests, the queues they wait in, and the pods that serve them."""

from bisect import insort
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from scheduler.model import names
from scheduler.model.documents import Stage, Workflow


@dataclass(eq=False, slots=True)
class DemoRequest:
    """One walk through all stages of a workflow; times in seconds since the epoch."""

    name: str
    workflow: Workflow
    arrived: float
    ended: float | None = None
    told: float | None = None  # when the service had heard of the end
    succeeded: set[str] = field(default_factory=set)
    started: set[str] = field(default_factory=set)
    cost: float = 0.0  # dollars: its part of every pod that served it
    waited_s: float = 0.0  # over all its stages, until the pod was bound
    beyond_plan_s: float = 0.0  # what its pods ran longer than planned; may be negative
    led: bool = True  # whether it was the oldest, and so the label, of every pod that served it

    @property
    def slo_s(self) -> float:
        """What its workflow promises."""
        return self.workflow.spec.slo.latency_ms / 1000

    @property
    def latency_s(self) -> float:
        """From its arrival to the end of its last stage; infinite while that is not over."""
        return float("inf") if self.ended is None else self.ended - self.arrived

    @property
    def hit(self) -> bool:
        """Whether the SLO was kept."""
        return self.latency_s <= self.slo_s

    @property
    def hit_when_told(self) -> bool:
        """Whether the SLO was kept even when the service had heard of the end."""
        return self.told is not None and self.told - self.arrived <= self.slo_s

    def ready_stages(self) -> list[Stage]:
        """The stages whose predecessors have succeeded, each told once."""
        ready = [
            stage
            for stage in self.workflow.spec.stages
            if stage.name not in self.started and self.succeeded.issuperset(stage.after)
        ]
        self.started.update(stage.name for stage in ready)
        return ready

    def succeed(self, stage: str, ended: float, told: float) -> None:
        """A stage is over; with the last one, so is the request."""
        self.succeeded.add(stage)
        if len(self.succeeded) == len(self.workflow.spec.stages):
            self.ended, self.told = ended, told


@dataclass(frozen=True, slots=True)
class WaitingStage:
    """A request that is ready for a stage, and since when."""

    request: DemoRequest
    since: float


@dataclass(eq=False, slots=True)
class Queue:
    """The requests that wait for one stage of one workflow (the paper's AFW queue), oldest first.

    At most one pod at a time is created for it. How many requests the pod will serve is not known
    before it is bound: the plan chooses the batch, of at most those that wait.
    """

    workflow: Workflow
    stage: str
    waiting: list[WaitingStage] = field(default_factory=list)
    leader: DemoRequest | None = (
        None  # the oldest at the moment when the pod was created; None: no pod
    )
    pods: int = 0  # created so far

    @property
    def pod_name(self) -> str:
        """Of the pod that is being scheduled."""
        return f"{self.workflow.metadata.name}-{self.stage}-{self.pods:05d}"

    def add(self, request: DemoRequest, now: float) -> None:
        """A request is ready for the stage."""
        insort(
            self.waiting, WaitingStage(request, now), key=lambda waiting: waiting.request.arrived
        )

    def take(self, batch: int) -> list[WaitingStage]:
        """The pod's leader and the next oldest, ``batch`` in all at most: they run in the pod.

        Who came in the meantime and is older than the leader is for the next pod.
        """
        first = next(i for i, each in enumerate(self.waiting) if each.request is self.leader)
        taken = self.waiting[first : first + batch]
        del self.waiting[first : first + batch]
        self.leader = None
        return taken

    def create_pod(self) -> None:
        """A new pod, for those that wait now."""
        self.pods += 1
        self.leader = self.waiting[0].request

    def pod(self) -> dict[str, Any]:
        """The pod as it is shown now; after a while, it tells how many wait then.

        A pod has one label ``request``: that of the oldest it will serve, whose arrival is also the
        earliest deadline.
        """
        oldest = self.waiting[0].request
        arrival = datetime.fromtimestamp(oldest.arrived, UTC).isoformat(timespec="microseconds")
        return {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {
                "name": self.pod_name,
                "namespace": self.workflow.key[0],
                "uid": f"uid-{self.pod_name}",
                "labels": {
                    names.LABEL_WORKFLOW: self.workflow.metadata.name,
                    names.LABEL_STAGE: self.stage,
                    names.LABEL_REQUEST: oldest.name,
                },
                "annotations": {
                    names.ANNOTATION_ARRIVAL: arrival,
                    names.ANNOTATION_QUEUED: str(len(self.waiting)),
                },
            },
            "spec": {
                "schedulerName": "esg-scheduler",
                "restartPolicy": "Never",
                "containers": [{"name": "function", "image": "example.org/function"}],
            },
        }
