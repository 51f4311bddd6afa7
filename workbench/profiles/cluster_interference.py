"""Slowdown of a function by another one: a pod of each on one GPU of a cluster.

The scheduler chooses the GPUs. Pods of both functions are created in turn, and kept, until two of
them are on the same one. So GPUs with room for a single one are soon left out.
"""

from collections import defaultdict
from collections.abc import Callable, Collection
from contextlib import AsyncExitStack
from dataclasses import dataclass

from scheduler.cluster.api import Api
from scheduler.model.function_server import FunctionServer
from workbench.profiles.batch_inputs import BatchInputs
from workbench.profiles.cluster_measurement import ClusterGrid, ServingPod, serving_pod
from workbench.profiles.interference import ServerBatches, Slowdown, measure_slowdown
from workbench.profiles.measured_pod import MeasuredPodError, PodShare
from workbench.profiles.server_measurement import batch_run

_PODS_MAX = 16
_WHOLE_PERCENT = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class NeighbourFunction:
    """A function whose pod runs batches on the same GPU.

    Attributes:
        server: FunctionServer with a template.
        gpu_percent: share of its pod.
        measured_percent: share of the pod that is measured.
    """

    server: FunctionServer
    gpu_percent: int
    measured_percent: int


def pair_percents(shares: Collection[int], neighbour_percent: int | None) -> tuple[int, int] | None:
    """Return the largest share that leaves room for a neighbour, and the neighbour's.

    Args:
        shares: shares to choose from, in percent.
        neighbour_percent: share of the neighbour; None: the same as the other one.
    """
    pairs = [(share, neighbour_percent or share) for share in shares]
    return max((pair for pair in pairs if sum(pair) <= _WHOLE_PERCENT), default=None)


async def measure_beside(
    api: Api, grid: ClusterGrid, neighbour: NeighbourFunction, report: Callable[[str], None]
) -> Slowdown:
    """Measure the largest batch of a grid alone, and while the neighbour runs batches.

    Both pods have the most vCPUs and the memory of the grid.

    Raises:
        MeasuredPodError: a pod does not start, or no two are on the same GPU.
        InputError, ModelServerError, NeighbourError: as `measure_slowdown` and `measure_server`.
    """
    rows, server = max(grid.batches), grid.server
    async with AsyncExitStack() as stack:
        measured, beside = await _pair(stack, api, grid, neighbour, report)
        inputs = BatchInputs(await measured.client.metadata(server.model), grid.inputs)
        spec = neighbour.server.spec
        return await measure_slowdown(
            batch_run(measured.client, server.model, inputs, rows),
            grid.precision,
            connect=ServerBatches(
                protocol=spec.protocol,
                host=beside.started.host,
                port=spec.port,
                model=neighbour.server.model,
                rows=rows,
                inputs={},
            ),
            neighbour_percent=neighbour.gpu_percent,
        )


async def _pair(
    stack: AsyncExitStack,
    api: Api,
    grid: ClusterGrid,
    neighbour: NeighbourFunction,
    report: Callable[[str], None],
) -> tuple[ServingPod, ServingPod]:
    """Create pods until one of each function is on the same GPU; return these two."""
    functions = (
        (grid.server, neighbour.measured_percent),
        (neighbour.server, neighbour.gpu_percent),
    )
    by_gpu: defaultdict[str, dict[int, ServingPod]] = defaultdict(dict)
    life_s = grid.life_s(2) + _PODS_MAX * grid.start_s  # it outlives the starts of the others
    for number in range(_PODS_MAX):
        index = number % 2
        server, percent = functions[index]
        share = PodShare(
            batch=max(grid.batches),
            cpu=max(grid.cpus),
            gpu_percent=percent,
            memory_mib=grid.memory_mib,
            gpu_model=grid.gpu_model,
        )
        pod = await stack.enter_async_context(serving_pod(api, grid, server, share, life_s, report))
        on_gpu = by_gpu[pod.started.grant.gpu_uuid]
        on_gpu[index] = pod
        if len(on_gpu) == len(functions):
            return on_gpu[0], on_gpu[1]
        if number:
            report(f"pod {pod.started.name} is on a GPU of its own; another one is created")
    raise MeasuredPodError(
        f"no two of {_PODS_MAX} pods of {functions[0][0].spec.function} and "
        f"{functions[1][0].spec.function} are on the same GPU; name one node with a free GPU in "
        "both templates, by nodeSelector"
    )
