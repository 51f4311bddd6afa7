"""Placement of the members of a pool: evenly over its slices.

A GPU without a process of the next stage stands idle beside a full one, so even spread counts more
than any other rule. A pool has a few hundred slices at most, and a member few candidates.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from scheduler.model.pools import PoolName
from scheduler.placement.arrays import Float64Array, Int64Array
from scheduler.placement.candidates import CandidateTable
from scheduler.placement.fleet import Fleet
from scheduler.placement.node_names import NodeNames
from scheduler.placement.placement import Placement
from scheduler.placement.reasons import NODE_NOT_KNOWN, Refusal, Refusals
from scheduler.placement.scores import SCORE_MAX


@dataclass(frozen=True, slots=True)
class GpuSlice:
    """Percent of one GPU, and vCPUs of its node, that a pool holds.

    Attributes:
        uid: UID of its holder.
        pool: pool whose holder it is.
        is_open: true if the holder is bound, as the cluster has shown, and not deleted.
        members: number of the members there that compete for it.
    """

    uid: str
    pool: PoolName
    node: str
    gpu_uuid: str
    percent: int
    cpu_milli: int
    is_open: bool
    members: int

    def problem(self, percent: int, cpu_milli: int) -> str:
        """Return why no batch with so much can run in it; empty if it can."""
        if not self.is_open:
            return "the slice ends, or its holder is not seen bound yet"
        if percent > self.percent or cpu_milli > self.cpu_milli:
            return (
                f"the slice has {self.percent} percent and {self.cpu_milli / 1000:g} vCPU, "
                f"{percent} percent and {cpu_milli / 1000:g} vCPU asked"
            )
        return ""


def place_member(  # noqa: PLR0913 - each by its name
    fleet: Fleet,
    table: CandidateTable,
    node_rows: Int64Array,
    *,
    node_start_ms: Float64Array | None,
    slices: Sequence[GpuSlice],
    home_key: str,
) -> Placement:
    """Place a member: the first candidate that fits in any slice is granted.

    On each node its GPU is the one with the fewest of the members that the slices count, then with
    the most free memory; nodes are scored by the same, 10 the best.
    """
    starts_ms = np.zeros(node_rows.shape[0]) if node_start_ms is None else node_start_ms
    index_of_row = {row: index for index, row in enumerate(node_rows.tolist()) if row >= 0}
    gpu_rows: Int64Array = np.full(node_rows.shape[0], -1, np.int64)
    scores: Int64Array = np.zeros(node_rows.shape[0], np.int64)
    for candidate in range(len(table.candidates)):
        best: dict[int, tuple[int, int, int]] = {}  # by index of the node
        for slice_ in slices:
            index = index_of_row.get(fleet.node_row.get(slice_.node, -1), -1)
            if index < 0 or starts_ms[index] > table.arrays.start_ms[candidate]:
                continue
            if _is_of_model(fleet, table, candidate, slice_) and not _problem(
                fleet, table, candidate, slice_
            ):
                gpu_row = fleet.gpu_row(slice_.node, slice_.gpu_uuid)
                key = slice_.members, -fleet.views.memory_mib[gpu_row], gpu_row
                best[index] = min(key, best.get(index, key))
        if best:
            order = sorted({key[:2] for key in best.values()})
            rank = {key: SCORE_MAX - position for position, key in enumerate(order)}
            for index, key in best.items():
                gpu_rows[index] = key[2]
                scores[index] = max(rank[key[:2]], 0)
            placement = Placement(
                fleet, table, node_rows, starts_ms, candidate, gpu_rows, scores, None, None,
                home_key,
            )  # fmt: skip
            return replace(placement, best=int(placement.best_first()[0]))
    return Placement(
        fleet, table, node_rows, starts_ms, None, gpu_rows, scores, None, None, home_key
    )


def member_refusals(
    placement: Placement, names: Sequence[str], slices: Sequence[GpuSlice]
) -> Refusals:
    """Return a refusal for each of the nodes on which a member does not fit.

    The numbers are those of the candidate that is granted elsewhere, or of the first one for the
    GPU. An eviction helps where memory, MPS clients or vCPUs lack, and never where a slice does.
    """
    by_node: dict[str, list[GpuSlice]] = {}
    for slice_ in slices:
        by_node.setdefault(slice_.node, []).append(slice_)
    refused = np.flatnonzero(placement.gpu_rows < 0)
    rows = placement.node_rows[refused]
    has_slice = np.isin(rows, placement.fleet.rows(list(by_node))) & (rows >= 0)
    node_names = NodeNames.of(names)
    with_slices = {
        names[i]: _refusal(placement, i, by_node[names[i]]) for i in refused[has_slice].tolist()
    }
    return Refusals(
        [
            (NODE_NOT_KNOWN, node_names.at(refused[rows < 0])),
            (_NO_SLICE, node_names.at(refused[(rows >= 0) & ~has_slice])),
            *Refusals.of(with_slices).groups,
        ]
    )


_NO_SLICE = Refusal("no slice of the pod's pool on this node", resolvable=False)


def _refusal(placement: Placement, index: int, slices: Sequence[GpuSlice]) -> Refusal:
    fleet, table = placement.fleet, placement.table
    chosen = placement.candidate_index
    candidates = range(len(table.candidates)) if chosen is None else [chosen]
    reasons = []
    for slice_ in slices:
        gpu = fleet.gpus[fleet.gpu_row(slice_.node, slice_.gpu_uuid)]
        where = f"GPU {slice_.gpu_uuid if gpu is None else gpu.index}"
        for candidate in candidates:
            if _is_of_model(fleet, table, candidate, slice_):
                start_ms = placement.node_start_ms[index]
                text = _problem(fleet, table, candidate, slice_) or (
                    f"a start takes {start_ms:,.0f} ms, longer than the plan has time for"
                )
                reasons.append(f"{where}: {text}")
                break
        else:
            reasons.append(f"{where}: unhealthy, or of a model that the plan has no candidate for")
    resolvable = any(" free, " in reason or "MPS clients" in reason for reason in reasons)
    return Refusal("; ".join(reasons), resolvable)


def _is_of_model(fleet: Fleet, table: CandidateTable, candidate: int, slice_: GpuSlice) -> bool:
    gpu_row = fleet.gpu_row(slice_.node, slice_.gpu_uuid)
    return gpu_row >= 0 and fleet.views.model[gpu_row] == table.arrays.model[candidate]


def _problem(fleet: Fleet, table: CandidateTable, candidate: int, slice_: GpuSlice) -> str:
    """Return what a candidate lacks in a slice of its GPU model, in numbers; empty: nothing."""
    configuration, views = table.candidates[candidate].configuration, fleet.views
    if problem := slice_.problem(configuration.gpu_percent, configuration.cpu * 1000):
        return problem
    gpu_row = fleet.gpu_row(slice_.node, slice_.gpu_uuid)
    cpu_milli = int(table.arrays.cpu_milli[candidate])
    free_milli = views.cpu_milli[fleet.node_row[slice_.node]]
    if free_milli < cpu_milli:
        return f"{max(free_milli, 0) / 1000:g} vCPU free, {cpu_milli / 1000:g} asked"
    memory_mib = configuration.memory_mib
    if (free_mib := views.memory_mib[gpu_row]) < memory_mib:
        return f"{max(free_mib, 0):,} MiB free, {memory_mib:,} asked"
    if views.clients[gpu_row] < 1:
        return f"all {fleet.limits.clients_max} MPS clients taken"
    return ""
