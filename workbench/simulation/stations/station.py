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
        arrival_ms, deadline_ms: of the request.
        ready_ms: the stages before have ended.
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
        number: among all stations.
        gpu, node: rows of the fleet.
        gpu_model: NVML name.
        percent: its share; the shares of a GPU may exceed 100 together.
        slots: stages that may run at a time; they divide the share.
        cpus: vCPUs of each of them.
        cache: models in the GPU's memory, which its stations share.
        running: its stages, those that wait for a model or their input included.
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
