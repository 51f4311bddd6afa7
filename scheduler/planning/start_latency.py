"""Start latency of a stage on each node: its cold start and the transfer of its input.

Each counts only where a setting enables it, and only as far as it is known: on which nodes the
function ran lately, and on which its predecessors did. The planner takes a few distinct latencies,
not one for each node.
"""

from dataclasses import dataclass

import numpy as np

from scheduler.model.pod import FunctionPod
from scheduler.placement.arrays import Float64Array, Int64Array
from scheduler.planning.state import State

DISTINCT_MAX = 4  # each costs a search of its own


@dataclass(frozen=True, slots=True)
class StartLatencies:
    """Start latencies in whole ms, rounded up: of each node, and all distinct ones, ascending.

    ``node_ms`` is None where no start takes any time.
    """

    node_ms: Float64Array | None
    distinct_ms: tuple[float, ...]

    def at_ms(self, index: int) -> float:
        """Start latency of the node at that index of the call, ms."""
        return 0.0 if self.node_ms is None else float(self.node_ms[index])


_NONE = StartLatencies(None, (0.0,))


def start_latencies(state: State, pod: FunctionPod, node_rows: Int64Array) -> StartLatencies:
    """Compute the start latencies of the pod's stage on these rows of nodes, -1 for unknown ones.

    They are 0 for a pod that serves at a rate: it starts once, not for each of its requests; and
    for one that states its share. Where there are more than `DISTINCT_MAX` latencies, those between
    are rounded up to one of them.
    """
    if pod.rate_rps is not None or pod.states_share:
        return _NONE
    cold_start_ms = _cold_start_ms(state, pod)
    output_ms = _transfers_ms(state, pod)
    if not cold_start_ms and not output_ms:
        return _NONE
    fleet = state.ledger.fleet
    row_ms = np.where(state.warm_rows(pod).is_warm, 0.0, cold_start_ms)
    others_ms = np.full(len(row_ms), sum(output_ms.values()))
    # On a node that ran a predecessor, the output that lies there already needs no transfer.
    for node in output_ms.keys() & fleet.node_row.keys():
        others_ms[fleet.node_row[node]] = sum(
            ms for source, ms in output_ms.items() if source != node
        )
    node_ms = np.ceil(row_ms + others_ms)[node_rows]
    distinct_ms = np.unique(node_ms)
    if not len(distinct_ms):
        return _NONE
    if len(distinct_ms) > DISTINCT_MAX:
        indices = np.linspace(0, len(distinct_ms) - 1, DISTINCT_MAX).astype(int)
        distinct_ms = distinct_ms[indices]
        node_ms = distinct_ms[np.searchsorted(distinct_ms, node_ms)]
    return StartLatencies(node_ms, tuple(distinct_ms.tolist()))


def _cold_start_ms(state: State, pod: FunctionPod) -> float:
    if not state.settings.cold_start:
        return 0.0
    profile = state.documents.catalogue.profiles.get(state.documents.function_of(pod))
    return 0.0 if profile is None else profile.spec.slow_start_ms


def _transfers_ms(state: State, pod: FunctionPod) -> dict[str, float]:
    """Transfer times of the predecessors' output, by the node where they ran.

    The output of one request counts: each request of a batch brings its own, but the batch size is
    known only after planning.
    """
    mib_per_s = state.settings.network_mib_per_s
    if mib_per_s is None:
        return {}
    stage_nodes = state.history.stage_nodes(pod)
    profiles = state.documents.catalogue.profiles
    output_ms: dict[str, float] = {}
    for stage in state.documents.predecessors(pod):
        node, profile = stage_nodes.get(stage.name), profiles.get(stage.function)
        if node is not None and profile is not None and profile.spec.output_mib:
            ms = 1000.0 * profile.spec.output_mib / mib_per_s
            output_ms[node] = output_ms.get(node, 0.0) + ms
    return output_ms
