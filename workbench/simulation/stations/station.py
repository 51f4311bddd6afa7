"""Stations, and the stages that run on them."""

from dataclasses import dataclass, field

from workbench.simulation.policy import QueueKey
from workbench.simulation.stations.model_cache import ModelCache


@dataclass(slots=True, eq=False, kw_only=True)
class StageTask:
    """A stage of one request, from the end of the stages before it.

    Attributes:
        key: namespace, workflow and stage.
        stage: index of the stage in its workflow.
        request: number of the request.
        workflow: number of the workflow among those that arrive.
        arrival_ms, deadline_ms: arrival and deadline of the request.
        ready_ms: time at which the stages before have ended.
    """

    key: QueueKey
    stage: int
    request: int
    workflow: int
    arrival_ms: float
    deadline_ms: float
    ready_ms: float


@dataclass(slots=True, eq=False, kw_only=True)
class Station:
    """Share of a GPU that runs stages, as a context of an MPS client does.

    Attributes:
        number: position among all stations.
        gpu, node: rows of GPU and node in the fleet.
        gpu_model: NVML name of the GPU.
        percent: share of the GPU; the shares of its stations may exceed 100 together.
        slots: number of stages that may run at a time; they divide the share.
        cpus: vCPUs of each slot.
        cache: models in the GPU's memory, which its stations share.
        running: stages on the station, including those that wait for a model or their input.
    """

    number: int
    gpu: int
    node: int
    gpu_model: str
    percent: float
    slots: int
    cpus: int
    cache: ModelCache
    running: list[StageTask] = field(default_factory=list)
