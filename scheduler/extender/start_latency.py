"""How long a stage takes to start on each node: its cold start, and the way of its input.

Both count only where a setting says so, and only as far as is known: where the function ran lately,
and where the stages before it did. A plan is asked for a few lengths of a start, not for each node.
"""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from scheduler.extender.state import State
from scheduler.model.pod import FunctionPod
from scheduler.placement.arrays import Float64Array

DISTINCT_MAX = 4  # each is a search of its own


@dataclass(frozen=True, slots=True)
class StartLatencies:
    """Starts in whole ms, rounded up: on each node asked about, and all that occur, rising.

    ``node_ms`` is None where no start takes any time.
    """

    node_ms: Float64Array | None
    distinct_ms: tuple[float, ...]

    def at(self, place: int) -> float:
        """The start on the node at that place of the question, ms."""
        return 0.0 if self.node_ms is None else float(self.node_ms[place])


_AT_ONCE = StartLatencies(None, (0.0,))


def starts(state: State, pod: FunctionPod, names: Iterable[str]) -> StartLatencies:
    """How long the pod's stage takes to start on nodes of these names.

    A pod that serves at a rate takes no time: it starts once, and not for each of its requests.
    Where there are more than `DISTINCT_MAX` lengths, those between are rounded up to one of them.
    """
    if pod.rate is not None:
        return _AT_ONCE
    cold_ms = _cold_start_ms(state, pod)
    sent_ms = _transfers_ms(state, pod)
    if not cold_ms and not sent_ms:
        return _AT_ONCE
    warm = state.tracker.warm_nodes(pod.namespace, state.function_of(pod))
    everything_ms = sum(sent_ms.values())
    beside_ms = {
        node: sum(ms for other, ms in sent_ms.items() if other != node) for node in sent_ms
    }
    node_ms = np.ceil(
        [(0.0 if name in warm else cold_ms) + beside_ms.get(name, everything_ms) for name in names]
    )
    distinct_ms = np.unique(node_ms)
    if not len(distinct_ms):
        return _AT_ONCE
    if len(distinct_ms) > DISTINCT_MAX:
        kept = np.linspace(0, len(distinct_ms) - 1, DISTINCT_MAX).astype(int)
        distinct_ms = distinct_ms[kept]
        node_ms = distinct_ms[np.searchsorted(distinct_ms, node_ms)]
    return StartLatencies(node_ms, tuple(distinct_ms.tolist()))


def _cold_start_ms(state: State, pod: FunctionPod) -> float:
    """On a node that is not warm; 0 where it is not counted."""
    if not state.settings.cold_start:
        return 0.0
    profile = state.catalogue.profiles.get(state.function_of(pod))
    return 0.0 if profile is None else profile.spec.cold_start_ms


def _transfers_ms(state: State, pod: FunctionPod) -> dict[str, float]:
    """By node where stages right before ran: how long their output takes to any other node.

    It is the output for one request: each of a batch brings its own, but how large the batch will
    be is known only after the plan.
    """
    mib_per_s = state.settings.network_mib_per_s
    if mib_per_s is None:
        return {}
    ran_on = state.tracker.stage_nodes(pod)
    sent_ms: dict[str, float] = {}
    for stage in state.stages_before(pod):
        node, profile = ran_on.get(stage.name), state.catalogue.profiles.get(stage.function)
        if node is not None and profile is not None and profile.spec.output_mib:
            ms = 1000.0 * profile.spec.output_mib / mib_per_s
            sent_ms[node] = sent_ms.get(node, 0.0) + ms
    return sent_ms
