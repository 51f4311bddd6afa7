"""Slices of a pool in the simulated cluster, and what runs in them without an arbiter."""

from typing import NamedTuple

from scheduler.dispatch.pods import Run
from scheduler.dispatch.slices import Slice, SliceStart
from scheduler.ledger.reservation import Reservation
from scheduler.model.plan import Configuration
from workbench.simulation.containers.grant_cache import ContainerGrant
from workbench.simulation.setup import SimulationState

ENDED_MS = 1e-6  # of a run that remain, by rounding
WHOLE_PERCENT = 100


class _Holder(NamedTuple):
    gpu: int
    grant: ContainerGrant
    reservation: Reservation


class SimulatedSlices:
    """Starts and stops slices.

    Attributes:
        by_gpu: slice of each GPU that has one, by its row in the fleet.
    """

    def __init__(self, state: SimulationState) -> None:
        self._cluster = state.cluster
        self._grants = state.grants
        self._arbiter = state.scenario.arbiter
        self._holders: dict[Slice, _Holder] = {}
        self.by_gpu: dict[int, Slice] = {}

    def start(self, start: SliceStart, now_ms: float) -> Slice | None:
        """Start a slice; None if no GPU has room for it."""
        cluster = self._cluster
        configuration = Configuration(1, start.cpus, start.percent, 1, 1.0)
        grant = self._grants.grant(configuration, start.gpu_model)
        free = (
            gpu
            for gpu, model in enumerate(cluster.gpu_models)
            if model == start.gpu_model and gpu not in self.by_gpu and cluster.has_room(gpu, grant)
        )
        gpu = next(free, None)
        if gpu is None:
            return None
        known = Slice(
            start.namespace,
            cluster.gpu_uuids[gpu],
            cluster.node_names[cluster.node_of[gpu]],
            start.percent,
            start.cpus,
            gpu_model=start.gpu_model,
            is_limited=self._arbiter,
        )
        self._holders[known] = _Holder(gpu, grant, cluster.start_slice(grant, gpu, now_ms))
        self.by_gpu[gpu] = known
        return known

    def stop(self, known: Slice, now_ms: float) -> None:
        """End a slice."""
        holder = self._holders.pop(known)
        del self.by_gpu[holder.gpu]
        self._cluster.stop_slice(holder.reservation, holder.grant, holder.gpu, now_ms)

    def ended(self) -> list[Slice]:
        """Return the closed slices in which nothing runs any more."""
        return [known for known in self.by_gpu.values() if known.is_closed and known.is_idle]

    def lost(self) -> list[Slice]:
        """Return the slices on GPUs that have failed."""
        models = self._cluster.ledger.fleet.arrays.gpu_model
        return [known for gpu, known in self.by_gpu.items() if models[gpu] < 0]


class CrowdedGpus:
    """Runs whose shares may exceed their GPU: all take as much longer as they do together."""

    def __init__(self, gpus: int) -> None:
        self._remaining_ms: list[dict[Run, float]] = [{} for _ in range(gpus)]
        self._last_ms = [0.0] * gpus

    def begin(self, gpu: int, run: Run, run_ms: float, now_ms: float) -> list[tuple[float, Run]]:
        """Begin a run that takes so long alone; return the ends of all runs on the GPU."""
        self._advance(gpu, now_ms)
        self._remaining_ms[gpu][run] = run_ms
        return self._ends(gpu)

    def end(self, gpu: int, run: Run, now_ms: float) -> list[tuple[float, Run]] | None:
        """End a run; return the ends of the others, or None if it has not ended yet."""
        remaining_ms = self._remaining_ms[gpu]
        self._advance(gpu, now_ms)
        if remaining_ms.get(run, 1.0) > ENDED_MS:  # its event is older than the last change
            return None
        del remaining_ms[run]
        return self._ends(gpu)

    def lose(self, gpu: int) -> None:
        """Forget the runs of a GPU that has failed."""
        self._remaining_ms[gpu].clear()

    def _advance(self, gpu: int, now_ms: float) -> None:
        passed_ms = (now_ms - self._last_ms[gpu]) / self._slowdown(gpu)
        self._last_ms[gpu] = now_ms
        for run in self._remaining_ms[gpu]:
            self._remaining_ms[gpu][run] -= passed_ms

    def _ends(self, gpu: int) -> list[tuple[float, Run]]:
        slowdown = self._slowdown(gpu)
        last_ms = self._last_ms[gpu]
        return [(last_ms + slowdown * ms, run) for run, ms in self._remaining_ms[gpu].items()]

    def _slowdown(self, gpu: int) -> float:
        percent = sum(run.pod.share.gpu_percent for run in self._remaining_ms[gpu])
        return max(percent / WHOLE_PERCENT, 1.0)
