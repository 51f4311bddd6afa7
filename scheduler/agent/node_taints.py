"""Taints of a node for autoscalers, which know sums of resources and no GPUs (ADR 53).

Free shares of several GPUs add up to room that no pod gets, and no sum has memory or clients. So a
node without an empty GPU is tainted softly: Karpenter counts no room there, and kube-scheduler goes
on placing pods by what is free.

A new node is Ready before it offers GPUs. Its group's template may give it a startup taint, which
ends when it does.
"""

import time
from collections.abc import Callable, Iterable, Sequence

from scheduler.agent.pods.node_pods import PodRequest
from scheduler.agent.taints import without
from scheduler.cluster.api import Raw
from scheduler.model.names import TAINT_EFFECT_SOFT, TAINT_NO_EMPTY_GPU, TAINT_STARTUP
from scheduler.model.node import Gpu

STEADY_S = 5.0
"""Time for which GPUs must stay as they are before the taint follows: pods of single requests come
and go faster, and each write wakes the pods that wait."""


class NodeTaints:
    """Desired taints of the node of an agent.

    Args:
        is_autoscaled: taint the node while it has no empty GPU; false: remove that taint.
        clock: monotonic clock, in seconds.
    """

    def __init__(
        self, *, is_autoscaled: bool = False, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._is_autoscaled = is_autoscaled
        self._clock = clock
        self._is_full: bool | None = None if is_autoscaled else False  # None: not known yet
        self._observed: tuple[bool, float] | None = None  # and since when, s

    def observe(self, gpus: Iterable[Gpu], requests: Iterable[PodRequest] | None) -> None:
        """Note the GPUs and the requests of the live pods; None: not all pods are known yet."""
        if not self._is_autoscaled:
            return
        healthy = {gpu.uuid for gpu in gpus if gpu.healthy}
        if not healthy:  # it offers nothing
            self._is_full, self._observed = False, None
            return
        if requests is None:
            return
        now_s = self._clock()
        is_full = healthy <= {request.gpu_uuid for request in requests}
        if self._observed is None or self._observed[0] != is_full:
            self._observed = is_full, now_s
        if now_s - self._observed[1] >= STEADY_S:
            self._is_full = is_full

    def desired(self, taints: Sequence[Raw], *, has_gpus: bool) -> list[Raw]:
        """Return the taints that a node with these should have; those of others stay.

        Args:
            taints: taints of the node.
            has_gpus: true if the node offers shares of GPUs.
        """
        desired = without(taints, TAINT_STARTUP) if has_gpus else list(taints)
        if self._is_full is None:
            return desired
        if not self._is_full:
            return without(desired, TAINT_NO_EMPTY_GPU)
        if all(taint["key"] != TAINT_NO_EMPTY_GPU for taint in desired):
            desired.append({"key": TAINT_NO_EMPTY_GPU, "effect": TAINT_EFFECT_SOFT})
        return desired
