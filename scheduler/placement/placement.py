"""From candidates to a node and its GPU: the first candidate that fits anywhere is granted.

The rule is ESG_Dispatch's. The live service places pods by node start times, on the nodes that a
call names; the simulator places runs on all nodes, by the times when containers are ready.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import inf

import numpy as np

from scheduler.kernel_calls import entry_point
from scheduler.model.node import Gpu, Node
from scheduler.model.plan import Candidate, Configuration
from scheduler.placement import kernels
from scheduler.placement.arrays import Float64Array, Int64Array
from scheduler.placement.candidates import CandidateTable, CpuRequest
from scheduler.placement.fleet import Fleet
from scheduler.placement.fragmentation import (
    FragmentationDelta,
    GpuStarts,
    RequestClass,
    RequestMix,
    minimize_growth,
)
from scheduler.placement.options import Limits, PlacementPolicy
from scheduler.placement.scores import DEFRAG, INDEX_BITS, PACK, SPREAD
from scheduler.placement.scoring import Affinities, walk, walk_positions

MixOf = Callable[[str], RequestMix]  # the mix of requests on GPUs of a model


_place = entry_point(kernels.place)
_first_feasible = entry_point(kernels.first_feasible)
_score_nodes = entry_point(kernels.score_nodes)
_INDEX_MASK = (1 << INDEX_BITS) - 1


@dataclass(frozen=True, slots=True)
class Placement:
    """Result of placing one pod.

    Attributes:
        fleet: fleet on which the pod was placed.
        table: candidates of the pod.
        node_rows: (n,) rows of the nodes that were tried, -1 for unknown ones.
        node_start_ms: (n,) time that a start takes on each of them.
        candidate_index: index of the first candidate that fits on any node; None where none fits.
        gpu_rows: (n,) GPU row of the pod on each node, -1 where it does not fit.
        scores: (n,) scores from 0 to 10, as extenders score; 0 where it does not fit.
        best: index of the best node; None where no candidate fits.
        fragmentation: growth of fragmentation on each node, under the policy ``defrag``.
        home_key: key of the pod's home, as in `Affinities`.
    """

    fleet: Fleet
    table: CandidateTable
    node_rows: Int64Array
    node_start_ms: Float64Array
    candidate_index: int | None
    gpu_rows: Int64Array
    scores: Int64Array
    best: int | None
    fragmentation: FragmentationDelta | None
    home_key: str

    @property
    def candidate(self) -> Candidate | None:
        """The candidate that is granted."""
        return None if self.candidate_index is None else self.table.candidates[self.candidate_index]

    def best_first(self, limit: int | None = None) -> Int64Array:
        """Return the indices of the best nodes where the pod fits, the best node first.

        The order is that of `kernels.score_nodes`. The default is all nodes where it fits.
        """
        if limit == 1 and self.best is not None:
            return np.array([self.best], np.int64)
        feasible = np.flatnonzero(self.gpu_rows >= 0)
        count = max(len(self.fleet.nodes), 1)
        keys = [walk_positions(self.home_key, self.node_rows[feasible], count)]
        if self.fragmentation is not None:
            delta = self.fragmentation
            keys += [delta.free_percent[feasible], delta.growth[feasible]]
        order: Int64Array = feasible[np.lexsort([*keys, -self.scores[feasible]])]
        return order[:limit]


class Placer:
    """Places pods of one home on the same nodes of a fleet, which keeps its nodes meanwhile.

    Attributes:
        gpu_rows, scores: (nodes,) result of the last placement, as in `Placement`.
        fragmentation: growth of fragmentation in the last placement.
    """

    def __init__(  # noqa: PLR0913 - each by its name
        self,
        fleet: Fleet,
        home_key: str,
        *,
        node_rows: Int64Array | None = None,
        cold_ms: float = 0.0,
        policy: PlacementPolicy = "pack",
        mix_of: MixOf | None = None,
    ) -> None:
        """Prepare to place on ``node_rows``; None: on all nodes of the fleet.

        ``cold_ms`` is a start where a GPU has no container. The policy ``defrag`` needs ``mix_of``;
        where the mix is empty, it packs.
        """
        rows = np.arange(len(fleet.nodes)) if node_rows is None else node_rows
        self.fleet = fleet
        self.home_key = home_key
        self.gpu_rows: Int64Array = np.empty(len(rows), np.int64)
        self.scores: Int64Array = np.zeros(len(rows), np.int64)
        self.fragmentation: FragmentationDelta | None = None
        self._delta = FragmentationDelta.of(len(rows))
        self._node_rows = rows
        self._cold_ms = cold_ms
        self._policy = SPREAD if policy == "spread" else PACK
        self._mix_of = mix_of if policy == "defrag" else None
        self._node_count = max(len(fleet.nodes), 1)
        self._home, self._inverse = walk(home_key, self._node_count)
        self._nodes_from_home: list[int] | None = None
        self._free_max_percent = np.empty(len(rows), np.int32)
        self._gpu_row = self.gpu_rows.data

    @property
    def nodes_from_home(self) -> list[int]:
        """Rows of all nodes in the order of the walk from home."""
        if self._nodes_from_home is None:
            positions = walk_positions(self.home_key, np.arange(self._node_count), self._node_count)
            rows = np.argsort(positions).tolist()
            self._nodes_from_home = rows[: len(self.fleet.nodes)]
        return self._nodes_from_home

    def place(
        self,
        table: CandidateTable,
        node_start_ms: Float64Array,
        gpu_ready_ms: Float64Array,
        now_ms: float,
        predecessors: Int64Array,
    ) -> tuple[int, int] | None:
        """Return the first candidate that fits and the index of the best node; None: none fits.

        Args:
            table: candidates, best first; each fits where a start takes no longer than its own.
            node_start_ms: (n,) start time on each node before its GPUs' containers count.
            gpu_ready_ms: (GPUs,) time at which a container on each GPU is ready; inf where there is
                none.
            now_ms: current time of the clock of ``gpu_ready_ms``.
            predecessors: rows of the nodes whose output is read.
        """
        if self._mix_of is not None:
            return self._defragment(
                table, node_start_ms, GpuStarts(gpu_ready_ms, now_ms, self._cold_ms), predecessors
            )
        packed = _place(
            self.fleet.arrays, table.arrays, self._node_rows, node_start_ms, self._policy,
            gpu_ready_ms, now_ms, self._cold_ms, predecessors,
            self._home, self._inverse, self._node_count,
            self._free_max_percent, self.gpu_rows, self.scores,
        )  # fmt: skip
        return None if packed < 0 else (packed >> INDEX_BITS, packed & _INDEX_MASK)

    def best_gpu(
        self,
        table: CandidateTable,
        node_start_ms: Float64Array,
        gpu_ready_ms: Float64Array,
        now_ms: float,
        predecessors: Int64Array,
    ) -> tuple[int, int] | None:
        """Place as `place` does, and return the candidate and the row of its GPU."""
        placed = self.place(table, node_start_ms, gpu_ready_ms, now_ms, predecessors)
        return None if placed is None else (placed[0], self._gpu_row[placed[1]])

    def _defragment(
        self,
        table: CandidateTable,
        node_start_ms: Float64Array,
        starts: GpuStarts,
        predecessors: Int64Array,
    ) -> tuple[int, int] | None:
        assert self._mix_of is not None  # noqa: S101 - the caller has looked
        arrays = self.fleet.arrays
        candidate_index = _first_feasible(
            arrays, table.arrays, self._node_rows, node_start_ms, self._policy,
            *starts, self._free_max_percent, self.gpu_rows,
        )  # fmt: skip
        self.fragmentation = None
        if candidate_index < 0:
            return None
        request = table.request_class(candidate_index)
        mix = self._mix_of(table.candidates[candidate_index].gpu_model)
        policy, delta = self._policy, self._delta
        if len(mix.arrays.pods):
            policy, self.fragmentation = DEFRAG, delta
            minimize_growth(
                arrays, mix, self._node_rows, self.gpu_rows,
                model=int(table.arrays.model[candidate_index]), request=request, starts=starts,
                delta=delta,
            )  # fmt: skip
        best = _score_nodes(
            arrays, request.gpu_percent, self._node_rows, self.gpu_rows, starts.ready_ms,
            predecessors, self._home, self._inverse, self._node_count, policy,
            delta.growth, delta.free_percent, self.scores,
        )  # fmt: skip
        return candidate_index, best


def place(  # noqa: PLR0913 - each by its name
    fleet: Fleet,
    candidates: Sequence[Candidate],
    node_rows: Int64Array,
    *,
    node_start_ms: Float64Array | None = None,
    policy: PlacementPolicy = "pack",
    cpu: CpuRequest | None = None,
    mix_of: MixOf | None = None,
    affinities: Affinities | None = None,
) -> Placement:
    """Place one pod: the first candidate that fits on any of the nodes is granted.

    A candidate fits on GPUs of its model, on nodes where a start takes no longer than its own
    ``start_ms``. ``node_start_ms`` (n,) is the start on each node, ms; None: no start takes time.
    The policy ``defrag`` needs ``mix_of``: each node's GPU is then the one where the grant adds
    least to fragmentation. It packs where the mix is empty.
    """
    affinities = affinities or Affinities()
    table = CandidateTable(fleet, candidates, cpu)
    if node_start_ms is None:
        node_start_ms = np.zeros(node_rows.shape[0])
    placer = Placer(fleet, affinities.home_key, node_rows=node_rows, policy=policy, mix_of=mix_of)
    # The nodes' start times count warm containers already; here they only score.
    ready_ms = affinities.gpu_ready_ms
    if ready_ms is None:
        ready_ms = np.full(len(fleet.arrays.gpu_model), inf)
    rows = (fleet.node_row.get(name) for name in affinities.predecessors)
    predecessors = np.array([row for row in rows if row is not None], np.int64)
    placed = placer.place(table, node_start_ms, ready_ms, 0.0, predecessors)
    candidate_index, best = (None, None) if placed is None else placed
    return Placement(
        fleet, table, node_rows, node_start_ms, candidate_index, placer.gpu_rows, placer.scores,
        best, placer.fragmentation, affinities.home_key,
    )  # fmt: skip


def prepare() -> None:
    """Run every kernel once, so that the first pod finds them in memory.

    Their signatures are written out, so they are compiled, or loaded from Numba's cache, when their
    modules are imported.
    """
    gpu = Gpu(index=0, uuid="GPU-0", model="none", memory_mib=2, multiprocessors=1, healthy=True)
    fleet = Fleet(Limits(server_context_mib=0))
    fleet.set_node(Node("node", (gpu,), 1_000))
    candidate = Candidate(Configuration(1, 1, 50, 1, 1.0), "none", 1.0, 1.0, 0.0)
    mix = RequestMix.of({RequestClass(1_000, 50, 1): 1})
    node_rows = fleet.rows(["node"])
    place(fleet, [candidate], node_rows)
    placement = place(fleet, [candidate], node_rows, policy="defrag", mix_of=lambda _: mix)
    kernels.nearest_gpus(fleet.arrays, node_rows, 0, 50, 1, placement.gpu_rows, placement.scores)
