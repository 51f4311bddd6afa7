"""Pods to end: those of another share, those without a slice, and those that nothing needs."""

from collections import Counter
from collections.abc import Iterable, Sequence
from operator import itemgetter

from scheduler.dispatch.pods import Pod, PodState, Share
from scheduler.dispatch.scaling.pod_targets import PodTarget
from scheduler.dispatch.workflow_queues import FunctionState


def stopped_pods(  # noqa: PLR0913 - each by its name
    function: FunctionState,
    target: PodTarget,
    wanted: int,
    keep_alive_ms: float,
    now_ms: float,
    *,
    is_crowded: bool,
) -> list[Pod]:
    """Return the idle pods to end; ``is_crowded``: a pod of the pool did not start."""
    all_ready = [pod for pod in function.pool.pods.values() if pod.state is PodState.READY]
    ready = [pod for pod in all_ready if has_place(pod)]
    matching = [pod for pod in ready if target.matches(pod)]
    idle = sorted((pod for pod in ready if not pod.runs), key=lambda pod: pod.idle_since_ms)
    stops = [pod for pod in idle if not target.matches(pod)]
    if len(matching) < wanted:
        stops = _room_for(target.share, target.failed_starts, stops)
    # In a slice a pod of another share takes no percent from the others, and may serve a burst.
    if stops and (len(matching) >= wanted or all(pod.pooled for pod in stops)):
        stops = stops[:1] if target.may_replace(now_ms) else []
    target.failed_starts = 0
    surplus = target.surplus(wanted, len(matching), now_ms)
    if is_crowded and wanted:  # none is wanted while no slice is open
        surplus = max(len(matching) - wanted, 0)
    of_share = _crowded_first(pod for pod in idle if target.matches(pod))
    ends = of_share[:surplus]
    if len(ends) == len(matching) and ends:  # also the last one
        is_kept = now_ms - ends[-1].idle_since_ms < keep_alive_ms
        ends = ends[: len(ends) - is_kept]
    stops += ends
    stops += [pod for pod in all_ready if not (pod.runs or has_place(pod))]
    return stops


def unused_pods(function: FunctionState, keep_alive_ms: float, now_ms: float) -> list[Pod]:
    """Return the idle pods of a function without a workflow."""
    return [
        pod
        for pod in function.pool.pods.values()
        if pod.state is PodState.READY
        and not pod.runs
        and now_ms - pod.idle_since_ms >= keep_alive_ms
    ]


def has_place(pod: Pod) -> bool:
    """Return true unless a pod is pooled and its slice has ended."""
    if not pod.pooled or not pod.gpu:  # it has none yet
        return True
    return pod.slice is not None and not pod.slice.is_closed


def _crowded_first(pods: Iterable[Pod]) -> list[Pod]:
    """Order pods of equal shares such that the GPUs with most of them lose theirs first."""
    on_gpu: Counter[str] = Counter()
    ranked = []
    for pod in pods:
        on_gpu[pod.gpu] += pod.pooled
        ranked.append((-on_gpu[pod.gpu], pod))
    return [pod for _, pod in sorted(ranked, key=itemgetter(0))]


def _room_for(share: Share, starts: int, pods: Sequence[Pod]) -> list[Pod]:
    """Return the first pods that together hold the resources of so many starts of a share."""
    needed = [starts * amount for amount in share[1:]]
    freed: list[Pod] = []
    for pod in pods:
        if all(amount <= 0 for amount in needed):
            break
        freed.append(pod)
        needed = [amount - released for amount, released in zip(needed, pod.share[1:], strict=True)]
    return freed
