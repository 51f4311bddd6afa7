"""Request of a plan: a stage, the remaining time, and the limits of its pod."""

from dataclasses import dataclass

from scheduler.model.documents import GridPoint
from scheduler.model.fleet_capacity import FleetCapacity
from scheduler.model.progress import NOTHING_BEGUN, InstanceProgress


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanRequest:
    """A stage to plan, the remaining time, and the limits of its pod.

    Attributes:
        workflow: name of the workflow; None: ``stage`` is the name of a function, which is planned
            like a workflow of one stage without an SLO.
        stage: name of the current stage.
        slack_ms: time for the remaining stages; None: the workflow's own budget from this stage on.
        queued: number of waiting requests, the maximum batch of the current stage. If no
            configuration has a batch that small, the smallest existing batch is the maximum.
        rate_rps: requests per second that a long-lived pod must serve. The time to fill a batch,
            (batch - 1) / rate, is added to the current stage, and batch / latency must be at least
            the rate. If no configuration is fast enough, the plan is infeasible and lists those of
            the highest throughput.
        configuration: only configuration that the current stage may have; None: any.
        cpu_max, gpu_percent_max, memory_mib_max: ceilings of the current stage.
        fleet: the cluster's nodes; None: of any size, with all GPU models of the profiles. Every
            stage may run on any model; each candidate for the current stage names its own.
        other_cpu_milli: thousandths of a vCPU that the pod's other containers request.
        starts_ms: time until the stage runs, for each kind of node: cold start and input transfer.
        later_waits_ms: time that the request will wait at later stages, in addition to their run
            times. It is reserved while the SLO can be met with it.
        margin_ratio: ratio by which the stages may take longer than planned in total; the plan
            stays within the remaining time even then. None: as the workflow's objective needs.
        progress: other stages of the instance that ended or run. By default only the predecessors
            have ended, so stages parallel to the current one are planned as if they began now.
        k: number of candidates for each GPU model and each of ``starts_ms``.
    """

    namespace: str
    workflow: str | None
    stage: str
    slack_ms: float | None = None
    queued: int | None = None
    rate_rps: float | None = None
    configuration: GridPoint | None = None
    cpu_max: int | None = None
    gpu_percent_max: int | None = None
    memory_mib_max: int | None = None
    fleet: FleetCapacity | None = None
    other_cpu_milli: int = 0
    starts_ms: tuple[float, ...] = (0.0,)
    later_waits_ms: float = 0.0
    margin_ratio: float | None = 0.0
    progress: InstanceProgress = NOTHING_BEGUN
    k: int = 5
