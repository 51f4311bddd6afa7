"""Slices of pools from demand: which to start and which to stop."""

from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from functools import partial
from math import inf
from typing import NamedTuple

from scheduler.dispatch.dispatcher import Dispatcher
from scheduler.dispatch.pods import FunctionKey, PodState, Share
from scheduler.dispatch.scaling.pod_counts import backlog_pods, met_ratio, objective_ratio
from scheduler.dispatch.scaling.pod_stops import has_place
from scheduler.dispatch.scaling.pod_targets import (
    BUSY_MIN_PODS,
    SURPLUS_MS,
    CountLimits,
    PodTarget,
)
from scheduler.dispatch.scaling.pool_sizes import (
    WHOLE_PERCENT,
    PoolFunction,
    PoolGpu,
    PoolSize,
    pool_size,
    reserved_text,
)
from scheduler.dispatch.scaling.sizing import PodPrices
from scheduler.dispatch.scaling.start_backoffs import REFUSED_MS, StartBackoff
from scheduler.dispatch.slices import Slice, SliceStart

REFUSED_RATIO = 0.75  # of a slice that found no room: the next one is no larger
GROWTH_RATIO = 2.0  # of the needed slice over the largest: from here on the next one is whole
OVERSIZE_PERCENT = 20  # of a slice over the one that would do, for a replacement

PoolKey = tuple[str, str]  # namespace, GPU model


class SliceChanges(NamedTuple):
    """Slices to start and to stop."""

    starts: list[SliceStart]
    stops: list[Slice]


class _Pool:
    """The slices of one namespace on GPUs of one model."""

    def __init__(self, pause_ms: tuple[float, float]) -> None:
        self.counts = CountLimits()
        self.backoff = StartBackoff(*pause_ms)
        self.pause_ms = pause_ms
        self.shares: tuple[Share, ...] = ()
        self.reserved_text = ""
        self.percent_max = WHOLE_PERCENT
        self.refused_until_ms = -inf
        self.percent_largest = 0  # of the slices that it has
        self.oversized_ms = inf  # since when a smaller slice would do
        self.is_complete = False  # all slices that it needs are there


class PoolScaler:
    """Scales the slices of a dispatcher's pools, and counts the processes in them.

    Args:
        dispatcher: dispatcher whose functions and slices decide.
        pause_ms: pause after a start that failed: the first one, and the longest.
        slices_min: whole GPUs of a pool at any load.

    Attributes:
        replaced: slices that end when the pods in others are ready; theirs count no more.
    """

    def __init__(
        self, dispatcher: Dispatcher, pause_ms: tuple[float, float], slices_min: int
    ) -> None:
        self._dispatcher = dispatcher
        self._slices_min = slices_min
        self._pause_ms = pause_ms
        self._pools: dict[PoolKey, _Pool] = {}
        self._wanted: dict[FunctionKey, int] = {}
        self.replaced: set[Slice] = set()

    def notes(self, namespace: str) -> str:
        """Tell why pods of a namespace hold their shares; empty: they run in slices."""
        return "; ".join(
            pool.reserved_text
            for key, pool in self._pools.items()
            if key[0] == namespace and pool.reserved_text
        )

    def slice_failed(self, start: SliceStart, now_ms: float) -> None:
        """Report a slice that found no room; the next attempt waits, and is smaller."""
        pool = self._pool((start.namespace, start.gpu_model))
        pool.backoff.failed(now_ms)
        if pool.percent_largest > start.percent:  # it was to take the place of a larger one
            return
        pool.percent_max = int(REFUSED_RATIO * start.percent)
        pool.refused_until_ms = now_ms + REFUSED_MS

    def slice_proved(self, start: SliceStart) -> None:
        """Report that a slice has its room, so that earlier failures count no more."""
        pool = self._pool((start.namespace, start.gpu_model))
        pool.backoff = StartBackoff(*self._pause_ms)

    def has_slice(self, function: FunctionKey, share: Share) -> bool:
        """Return true if a slice of the function's pool is large enough for a share."""
        return any(
            (gpu_slice.namespace, gpu_slice.gpu_model) == (function[0], share.gpu_model)
            and gpu_slice.percent >= share.gpu_percent
            and gpu_slice.cpus >= share.cpu
            and not gpu_slice.is_closed
            for gpu_slice in self._dispatcher.slices
        )

    def is_complete(self, pool_key: PoolKey) -> bool:
        """Return true if a pool has all slices that it needs."""
        return self._pool(pool_key).is_complete

    def wanted_pods(self, function: FunctionKey) -> int:
        """Return the processes of a function, for the slices that are open."""
        return self._wanted.get(function, 0)

    def changes(
        self,
        targets: Mapping[FunctionKey, PodTarget],
        needed: AbstractSet[FunctionKey],
        prices: PodPrices,
        headroom_ratio: float,
        now_ms: float,
    ) -> SliceChanges:
        """Return the slices to start and to stop; decide which targets are pooled.

        Args:
            targets: target of each function whose pods shall run in slices.
            needed: functions that have a process at any rate.
            prices: prices of pods, and the size of the nodes.
            headroom_ratio: additional reserve.
            now_ms: the clock.
        """
        functions: dict[PoolKey, dict[FunctionKey, PodTarget]] = {}
        for key, target in targets.items():
            functions.setdefault((key[0], target.share.gpu_model), {})[key] = target
        self._wanted.clear()
        replaced, self.replaced = self.replaced, set()
        changes = SliceChanges([], [])
        all_live = [gpu_slice for gpu_slice in self._dispatcher.slices if not gpu_slice.is_closed]
        for pool_key in dict.fromkeys((*functions, *self._pools)):
            pool = self._pool(pool_key)
            live = [s for s in all_live if (s.namespace, s.gpu_model) == pool_key]
            slices = sum(s.is_open and s not in replaced for s in live)
            pool.percent_largest = max((gpu_slice.percent for gpu_slice in live), default=0)
            listed = functions.get(pool_key, {})
            size = self._size(pool_key, listed, needed, prices, headroom_ratio, slices, now_ms)
            for key, processes in size.processes.items():
                # The last process of a function without load ends by its keep-alive.
                if slices and (key in needed or listed[key].busy_pods):
                    self._wanted[key] = max(round(processes * slices), int(key in needed))
            self._change(changes, pool_key, pool, size, live, now_ms)
        return changes

    def _pool(self, key: PoolKey) -> _Pool:
        pool = self._pools.get(key)
        if pool is None:
            pool = self._pools[key] = _Pool(self._pause_ms)
        return pool

    def _size(  # noqa: PLR0913, PLR0917 - of one pool
        self,
        pool_key: PoolKey,
        targets: Mapping[FunctionKey, PodTarget],
        needed: AbstractSet[FunctionKey],
        prices: PodPrices,
        headroom_ratio: float,
        slices: int,
        now_ms: float,
    ) -> PoolSize:
        """Return the size of a pool; nothing where its pods hold their shares."""
        pool = self._pools[pool_key]
        functions = {}
        for key, target in targets.items():
            state = self._dispatcher.functions[key]
            busy_pods = target.busy_pods + backlog_pods(state, target, now_ms)
            if key in needed or any(map(has_place, state.pool.usable())):
                busy_pods = max(busy_pods, BUSY_MIN_PODS)
            functions[key] = PoolFunction(
                target.share, busy_pods, objective_ratio(state), met_ratio(state)
            )
        gpu = PoolGpu(
            prices.gpu_memory_mib.get(pool_key[1], inf),
            inf if prices.cpus_per_gpu is None else prices.cpus_per_gpu,
        )
        shares = tuple(function.share for function in functions.values())
        if shares != pool.shares:  # not at each rate: pods would change between both modes
            pool.shares = shares
            busy = [
                f._replace(busy_pods=max(f.busy_pods, BUSY_MIN_PODS)) for f in functions.values()
            ]
            # Whole GPUs that are held at any load are paid, and reserved pods would not hold them.
            pool.reserved_text = "" if self._slices_min else reserved_text(busy, gpu)
        for target in targets.values():
            target.pooled = not pool.reserved_text
        if pool.reserved_text or not functions:
            return PoolSize(0, 0, 0, {})
        if now_ms >= pool.refused_until_ms:
            pool.percent_max = WHOLE_PERCENT
        further_ratio = max(self._dispatcher.functions[key].reserve_ratio for key in functions)
        sized = partial(
            pool_size,
            functions,
            gpu,
            headroom_ratio=headroom_ratio + further_ratio,
            percent_max=pool.percent_max,
            slices_max=max(slices, 1) if now_ms < pool.refused_until_ms else inf,
        )
        size = sized(slices_min=self._slices_min)
        grows = 0 < GROWTH_RATIO * pool.percent_largest <= size.percent
        if not grows or pool.percent_max < WHOLE_PERCENT:  # there is no room for a whole GPU
            return size
        # Each larger slice is another GPU with processes of its own. Nobody knows yet where the
        # growth ends, and a smaller slice takes the place of a whole GPU that proves too large.
        return sized(slices_min=max(self._slices_min, 1))

    def _change(  # noqa: PLR0913, PLR0917 - of one pool
        self,
        changes: SliceChanges,
        key: PoolKey,
        pool: _Pool,
        size: PoolSize,
        live: list[Slice],
        now_ms: float,
    ) -> None:
        fitting = [gpu_slice for gpu_slice in live if gpu_slice.percent >= size.percent]
        pool.is_complete = len(fitting) >= size.slices
        smaller = [gpu_slice for gpu_slice in live if gpu_slice.percent < size.percent]
        counts = pool.counts
        if not counts.expected:
            counts.expected = size.slices
        # Larger slices come beside the smaller ones, which end after them.
        wanted = size.slices + len(smaller)
        missing = counts.allowed(wanted, len(live), now_ms) - len(live)
        if missing > 0 and now_ms >= pool.backoff.retry_ms:
            changes.starts.extend([SliceStart(*key, size.percent, size.cpus)] * missing)
        is_whole = len(fitting) >= size.slices and all(gpu_slice.is_open for gpu_slice in fitting)
        if is_whole and self._is_oversized(pool, size, fitting, now_ms):
            changes.starts.append(SliceStart(*key, size.percent, size.cpus))
        # The largest first: a slice of another size has taken its place.
        by_use = sorted(fitting, key=lambda slice_: (-slice_.percent, slice_.used_percent))
        surplus = by_use[: counts.surplus(size.slices, len(fitting), now_ms)]
        ends = [*surplus, *smaller] if is_whole else surplus
        remaining = [slice_ for slice_ in fitting if slice_ not in surplus]
        served = [slice_ for slice_ in ends if self._is_served_by(remaining, slice_)]
        changes.stops.extend(served)
        self.replaced.update(slice_ for slice_ in ends if slice_ not in served)

    def _is_served_by(self, others: Sequence[Slice], ended: Slice) -> bool:
        """Return true if each function of a slice has a ready pod in another, or there is none."""
        pods = list(self._dispatcher.pods)
        ready = {p.function for p in pods if p.state is PodState.READY and p.slice in others}
        return not others or all(p.function in ready for p in pods if p.slice is ended)

    @staticmethod
    def _is_oversized(pool: _Pool, size: PoolSize, fitting: Sequence[Slice], now_ms: float) -> bool:
        """Return true if a smaller slice would have done in place of the only one for a while."""
        is_only = size.slices == 1 and len(fitting) == 1
        is_oversized = is_only and fitting[0].percent - size.percent >= OVERSIZE_PERCENT
        if not is_oversized or pool.oversized_ms == inf:
            pool.oversized_ms = now_ms
        return now_ms - pool.oversized_ms >= SURPLUS_MS and now_ms >= pool.backoff.retry_ms
