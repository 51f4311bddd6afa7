"""Requests of the demo, the queues they wait in, and the pods that serve them."""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from scheduler.dispatch.queues import JobQueue
from scheduler.dispatch.stage_graph import StageGraph, StageJob, StageWalk
from scheduler.model import names
from scheduler.model.documents import Workflow
from workbench.simulation.recorder import Tally


class DemoRequest(StageWalk):
    """One request; times in ms since the epoch.

    Attributes:
        ended_ms: end of its last stage; None before.
        reported_ms: when the service had answered that the last pod ended; None before.
        led: it was the oldest, and so the label, of every pod that served it.
    """

    __slots__ = ("arrival_ms", "ended_ms", "led", "name", "reported_ms", "slo_ms", "workflow")

    def __init__(self, number: int, workflow: "DemoWorkflow", arrival_ms: float) -> None:
        super().__init__(workflow.graph)
        self.name = f"request-{number:05d}"
        self.workflow = workflow
        self.arrival_ms = arrival_ms
        self.slo_ms = workflow.tally.slo_ms
        self.ended_ms: float | None = None
        self.reported_ms: float | None = None
        self.led = True

    @property
    def hit(self) -> bool:
        """True when it ended within its SLO."""
        return self.ended_ms is not None and self.ended_ms - self.arrival_ms <= self.slo_ms

    @property
    def hit_when_reported(self) -> bool:
        """True when the service had answered within the SLO too."""
        return self.reported_ms is not None and self.reported_ms - self.arrival_ms <= self.slo_ms


DemoJob = StageJob[DemoRequest]


class PodQueue(JobQueue[DemoJob]):
    """Requests that wait for one stage of one workflow (the paper's AFW queue), oldest first.

    It has at most one pod at a time that is not bound. The number of requests that the pod serves
    is known when it is bound: the plan chooses the batch, of at most those that wait.

    Attributes:
        leader: the oldest job when the pod was created; None without a pod.
    """

    __slots__ = ("_document", "_pods", "index", "leader", "stage")

    def __init__(self, document: Workflow, index: int) -> None:
        super().__init__()
        self._document = document
        self._pods = 0  # created so far
        self.index = index
        self.stage = document.spec.stages[index].name
        self.leader: DemoJob | None = None

    def take_batch(self, batch: int) -> list[DemoJob]:
        """Remove the pod's leader and the next oldest, at most ``batch``; they run in the pod.

        A request that came later and is older than the leader waits for the next pod.
        """
        waiting = list(self.jobs)
        first = next(i for i, job in enumerate(waiting) if job is self.leader)
        self.jobs.clear()
        self.jobs.extend(waiting[:first] + waiting[first + batch :])
        self.leader = None
        return waiting[first : first + batch]

    def create_pod(self) -> None:
        """Create a pod for the requests that wait now."""
        self._pods += 1
        self.leader = self.jobs[0]

    def pod(self) -> Mapping[str, Any]:
        """Return the pod, with the number of requests that wait now.

        It has one label ``request``, that of the oldest that it will serve, whose arrival is also
        the earliest deadline.
        """
        oldest = self.jobs[0].request
        arrival = datetime.fromtimestamp(oldest.arrival_ms / 1000, UTC)
        namespace, workflow = self._document.key
        name = f"{workflow}-{self.stage}-{self._pods:05d}"
        return {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {
                "name": name,
                "namespace": namespace,
                "uid": f"uid-{name}",
                "labels": {
                    names.LABEL_WORKFLOW: workflow,
                    names.LABEL_STAGE: self.stage,
                    names.LABEL_REQUEST: oldest.name,
                },
                "annotations": {
                    names.ANNOTATION_ARRIVAL: arrival.isoformat(timespec="microseconds"),
                    names.ANNOTATION_QUEUED: str(len(self.jobs)),
                },
            },
            "spec": {
                "schedulerName": "esg-scheduler",
                "restartPolicy": "Never",
                "containers": [{"name": "function", "image": "example.org/function"}],
            },
        }


class DemoWorkflow:
    """One workflow: its stages, their queues, and the outcomes of its requests."""

    def __init__(self, document: Workflow) -> None:
        self.key = document.key
        self.graph = StageGraph(document.spec.stages)
        self.tally = Tally(document.spec.slo.latency_ms)
        self.queues = [PodQueue(document, i) for i in range(len(document.spec.stages))]
