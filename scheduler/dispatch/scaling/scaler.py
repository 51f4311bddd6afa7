"""Pods from demand: which to start and which to stop. No I/O; the owner does both.

The share of a function's pods is that of its size (`sizing`), for the workflows' rates, the run
times that are observed, and the margins that these need. Their number follows the rate, with a
reserve by the objective (`staffing`), and the backlog:

- Up at once, to at most twice as many pods in a second.
- With a larger reserve while the hit rate of a workflow is below its aim; at as many more misses as
  the objective allows also when rows wait that the pods cannot serve in time and a pod that starts
  now could; and when rows have become late within the time of a start, as long as no pod is free or
  starts.
- With a further reserve, of half as much again each time, where all that are needed are there and
  more requests are late than the objective allows (`hit_rate.FurtherReserve`).
- A function with less than one request in a cold start gets its pod one cold start before the time
  at which requests tend to come again after the last one (`keep_alive`).
- Down by half of the pods that nothing has needed for half a minute, the least recently used first;
  the last pod of a function once it has been idle for its keep-alive. Pods of a share that is no
  longer chosen go once the others suffice, one of a function in a second: where they were needed
  after all, few are missing. Where a start finds no room, as many of them go as hold
  its resources; in a pool, all that nothing needs of any function: they hold the memory.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from scheduler.dispatch.dispatcher import Dispatcher
from scheduler.dispatch.pods import FunctionKey, Pod, PodStart, PodState, Share
from scheduler.dispatch.requests import WorkflowKey
from scheduler.dispatch.scaling.arrival_rates import ArrivalRate
from scheduler.dispatch.scaling.keep_alive import KeepAlive
from scheduler.dispatch.scaling.pod_counts import PERIOD_MS, staffed_count, wanted_pods
from scheduler.dispatch.scaling.pod_stops import has_place, stopped_pods, unused_pods
from scheduler.dispatch.scaling.pod_targets import PodTarget
from scheduler.dispatch.scaling.pool_scaler import PoolScaler, SliceChanges
from scheduler.dispatch.scaling.pool_sizes import MEMORY_PARTS
from scheduler.dispatch.scaling.share_choice import ShareChoice
from scheduler.dispatch.scaling.sizing import PodPrices, PodSize, WorkflowLoad
from scheduler.dispatch.scaling.start_backoffs import StartBackoffs
from scheduler.dispatch.slices import Slice, SliceStart
from scheduler.dispatch.workflow_queues import FunctionState

WAIT_RATIO = 0.05  # of a workflow's time, for waits and transfers
RISE_RATIO = 1.2  # of the rate over the one that pods were counted for: below, it is noise
RESIZE_RATIO = 2.0  # the same, in both directions, for another choice of shares
RATE_MIN = 1e-3  # rows per ms, for the choice of shares; below one a second they stay as they are


@dataclass(frozen=True, slots=True, kw_only=True)
class PodLimits:
    """Limits of the pods of one function.

    Attributes:
        min_pods, max_pods: limits of the number of pods.
        keep_alive_ms: the last pod stays idle so long after its last run, and none returns before
            the next request. Default: learned from the times between requests.
        pooled: true if pods run in slices of their pool.
    """

    min_pods: int = 0
    max_pods: int = 1_000
    keep_alive_ms: float | None = None
    pooled: bool = False


_NO_LIMITS = PodLimits()


class PodChanges(NamedTuple):
    """Pods to start and to stop.

    Attributes:
        starts: pods to start, the function with the smallest reserve first: where room is short,
            all functions have about the same.
        stops: idle pods.
        satisfied: functions that have as many pods of their share as they need.
        slice_starts, slice_stops: slices to add, before the pods, and to end, after them.
    """

    starts: Sequence[PodStart]
    stops: Sequence[Pod]
    satisfied: Sequence[PodStart] = ()
    slice_starts: Sequence[SliceStart] = ()
    slice_stops: Sequence[Slice] = ()


class Scaler:
    """Scales the pods of a dispatcher's functions, which its owner creates and ends.

    `scheduler.gateway.pod_demand` counts pods where an autoscaler outside does that: they have one
    share, which somebody else chose.

    Args:
        dispatcher: dispatcher whose requests and pods decide.
        prices: prices of pods.
        headroom_ratio: additional reserve, as a ratio of the one that the objectives need.
        pause_ms: pause after a start that failed: the first one, and the longest.
        slices_min: Whole GPUs that a pool holds at any load.

    Attributes:
        backoffs: pauses after starts of pods that failed.
        failures: number of starts that failed, of pods and slices.
    """

    def __init__(
        self,
        dispatcher: Dispatcher,
        prices: PodPrices,
        *,
        headroom_ratio: float = 0.0,
        pause_ms: tuple[float, float] = (1_000.0, 60_000.0),
        slices_min: int = 0,
    ) -> None:
        self._dispatcher = dispatcher
        self._prices = prices
        self._headroom_ratio = headroom_ratio
        self.backoffs = StartBackoffs(pause_ms)
        self._limits: dict[FunctionKey, PodLimits] = {}
        self._rates: dict[WorkflowKey, ArrivalRate] = {}
        self._expected: dict[WorkflowKey, float] = {}
        self._targets: dict[FunctionKey, PodTarget] = {}
        self._rows_per_ms: dict[FunctionKey, float] = {}
        self._keep_alives: defaultdict[FunctionKey, KeepAlive] = defaultdict(KeepAlive)
        self._documents: dict[str, list[object]] = {}  # by namespace, of the last choice
        self._pools = PoolScaler(dispatcher, pause_ms, slices_min)
        self.failures = 0

    def set_prices(self, prices: PodPrices) -> None:
        """Set the prices of pods; shares are chosen again."""
        self._prices = prices
        self._documents.clear()

    def set_limits(self, function: FunctionKey, limits: PodLimits) -> None:
        """Set the limits of a function's pods."""
        if limits.pooled != self._limits.get(function, _NO_LIMITS).pooled:
            self._documents.pop(function[0], None)  # shares are chosen again, with another memory
        self._limits[function] = limits

    def remove_function(self, function: FunctionKey) -> None:
        """Forget the limits and the share of a function whose server was removed."""
        self._limits.pop(function, None)
        self._targets.pop(function, None)

    def expect(self, workflow: WorkflowKey, rate_rps: float) -> None:
        """Set the rate of a workflow before its own is known."""
        self._expected[workflow] = rate_rps / 1000.0

    def start_failed(self, start: PodStart, now_ms: float, *, found_room: bool = False) -> None:
        """Report a pod that found no room, or failed before it was ready.

        The next attempt with this share waits, longer each time until `StartBackoffs.proved`.
        Others make room for it, unless this one ``found_room``. Where the function has no pod of
        the share, another one is chosen meanwhile; not where a large enough slice is full: its
        memory is.
        """
        self.failures += 1
        target = self._targets.get(start.function)
        refused = False
        if target is not None:
            target.failed_starts += not found_room
            pods = list(self._dispatcher.functions[start.function].pool.usable())
            has_slice = start.pooled and self._pools.has_slice(start.function, start.share)
            ready = (pod.share for pod in pods if pod.state is PodState.READY)
            refused = (found_room or not (pods and has_slice)) and start.share not in ready
        if refused:
            self._documents.pop(start.function[0], None)  # shares are chosen again
        self.backoffs.failed(start, now_ms, refused=refused)

    def slice_failed(self, start: SliceStart, now_ms: float) -> None:
        """Report a slice that found no room; the next attempt waits, and is smaller."""
        self.failures += 1
        self._pools.slice_failed(start, now_ms)

    def slice_proved(self, start: SliceStart) -> None:
        """Report that a slice has its room, so that earlier failures count no more."""
        self._pools.slice_proved(start)

    def pool_notes(self, namespace: str) -> str:
        """Tell why pods of a namespace hold their shares though they may be pooled."""
        return self._pools.notes(namespace)

    def pods_wanted(self, function: FunctionKey) -> int:
        """Return the pods that a function needs, whatever its maximum; 0 before a decision."""
        target = self._targets.get(function)
        return 0 if target is None else target.wanted_pods

    def changes(self, now_ms: float) -> PodChanges:
        """Return the pods to start and to stop; call it every `PERIOD_MS`, or more often.

        An owner that must not wait for a choice of shares calls the three parts itself.
        """
        for choice in self.share_choices(now_ms):
            self.set_shares(choice, choice.sizes())
        return self.pod_changes(now_ms)

    def share_choices(self, now_ms: float) -> list[ShareChoice]:
        """Update rates and documents; return the namespaces' choices of shares that are due."""
        dispatcher = self._dispatcher
        rates = {
            key: self._rate(key).rows_per_ms(state.arrived_rows, now_ms)
            for key, state in dispatcher.workflows.items()
        }
        for workflow in dispatcher.workflows.values():
            has_pods = all(self._has_pods(queue.function) for queue in workflow.queues)
            workflow.reserve.look(now_ms, has_pods=has_pods)
        for function in dispatcher.functions.values():
            arrived = sum(queue.workflow.arrived_rows for queue in function.queues)
            function.dispersion.record(arrived, now_ms)
            self._keep_alives[function.key].record(arrived, function.cold_start_ms, now_ms)
        sizing_rates = {key: max(rate, RATE_MIN) for key, rate in rates.items()}
        self._rows_per_ms = self._function_rates(rates)
        for key, target in self._targets.items():
            rate = self._rows_per_ms.get(key, 0.0)
            if rate > RISE_RATIO * target.rows_per_ms or rate * RISE_RATIO < target.rows_per_ms:
                target.rows_per_ms = rate
        documents: defaultdict[str, list[object]] = defaultdict(list)
        for (namespace, _), state in dispatcher.workflows.items():
            profiles = (dispatcher.profiles[queue.function.key[1]] for queue in state.queues)
            documents[namespace] += (state.document, *profiles)
        due = {name for name, used in documents.items() if used != self._documents.get(name)}
        for key, rate in self._function_rates(sizing_rates).items():
            if self._is_missized(dispatcher.functions[key], rate):
                due.add(key[0])
        self._documents = documents
        return [self._choice(namespace, sizing_rates, now_ms) for namespace in sorted(due)]

    def set_shares(self, choice: ShareChoice, sizes: Mapping[str, PodSize]) -> None:
        """Set the shares that were chosen; pods follow with the next `pod_changes`."""
        for name, size in sizes.items():
            key = choice.namespace, name
            parts = MEMORY_PARTS if self._limits.get(key, _NO_LIMITS).pooled else 1
            memory_mib = choice.prices.pod_memory_mib(choice.profiles[name], size, parts)
            point = size.configuration
            share = Share(size.gpu_model, point.cpu, point.gpu_percent, memory_mib)
            target = self._targets.get(key)
            counts = {
                "rows_per_ms": self._rows_per_ms.get(key, 0.0),
                "sized_rows_per_ms": choice.rows_per_ms[name],
                "time_ratio": choice.time_ratios[name],
            }
            if target is not None and target.share == share:
                target.resize(size, **counts)
                continue
            is_first = target is None
            self._targets[key] = target = PodTarget(size, share, **counts)
            if is_first:
                function = self._dispatcher.functions[key]
                target.expected = staffed_count(function, target.busy_pods, self._headroom_ratio)

    def choice_failed(self, choice: ShareChoice) -> None:
        """Have a choice repeated by the next `share_choices`; the shares stay meanwhile."""
        self._documents.pop(choice.namespace, None)

    def pod_changes(self, now_ms: float) -> PodChanges:
        """Return the pods to start and to stop for the rates and shares that are known."""
        starts: list[tuple[float, PodStart]] = []
        stops: list[Pod] = []
        satisfied: list[PodStart] = []
        slices = self._slice_changes(now_ms)
        crowded = {
            (key[0], target.share.gpu_model)
            for key, target in self._targets.items()
            if target.pooled and target.failed_starts
        }
        for key, target in self._targets.items():
            function = self._dispatcher.functions[key]
            limits = self._limits.get(key, _NO_LIMITS)
            pods = [p for p in function.pool.usable() if target.matches(p) and has_place(p)]
            pods = [p for p in pods if p.slice not in self._pools.replaced]
            min_pods = self._min_pods(key)
            target.wanted_pods = max(self._wanted(key, target, now_ms), min_pods)
            wanted = min(target.wanted_pods, limits.max_pods)
            start = PodStart(key, target.share, target.pooled)
            is_starting = any(pod.state is PodState.STARTING for pod in pods)
            target.is_satisfied = target.wanted_pods <= len(pods) and not is_starting
            if wanted <= len(pods):
                satisfied.append(start)
            elif not self.backoffs.is_paused(start, now_ms):
                # Of pooled pods the slices limit the number, and without one there is none.
                count = wanted if self._pools.wanted_pods(key) else 0
                if not target.pooled:
                    count = target.allowed(wanted, len(pods), now_ms)
                    count = max(count, min(min_pods, wanted))
                starts += [(target.reserve_ratio(i), start) for i in range(len(pods), count)]
            keep_ms = self._keep_ms(key)
            is_crowded = target.pooled and (key[0], target.share.gpu_model) in crowded
            stops += stopped_pods(function, target, wanted, keep_ms, now_ms, is_crowded=is_crowded)
        for key, function in self._dispatcher.functions.items():
            if key not in self._targets and not function.queues:  # no share was ever chosen for it
                stops += unused_pods(function, self._keep_ms(key), now_ms)
        starts.sort(key=lambda start: start[0])
        return PodChanges([start for _, start in starts], stops, satisfied, *slices)

    def _slice_changes(self, now_ms: float) -> SliceChanges:
        targets = {
            key: target
            for key, target in self._targets.items()
            if self._limits.get(key, _NO_LIMITS).pooled
        }
        needed = {key for key, target in targets.items() if self._needs_place(key, target, now_ms)}
        return self._pools.changes(targets, needed, self._prices, self._headroom_ratio, now_ms)

    def _needs_place(self, key: FunctionKey, target: PodTarget, now_ms: float) -> bool:
        """Return true if a function wants a pod, whatever its rate."""
        return max(self._wanted_alone(key, target, now_ms), self._min_pods(key)) > 0

    def _has_pods(self, function: FunctionState) -> bool:
        """Return true if a function has its pods, and its pool the slices for them."""
        target = self._targets.get(function.key)
        if target is None or not target.is_satisfied:
            return False
        pool_key = function.key[0], target.share.gpu_model
        return not target.pooled or self._pools.is_complete(pool_key)

    def _min_pods(self, key: FunctionKey) -> int:
        """Return the pods of a function at any load; 0 if no workflow has a stage of it."""
        is_used = bool(self._dispatcher.functions[key].queues)
        return self._limits.get(key, _NO_LIMITS).min_pods if is_used else 0

    def _keep_ms(self, key: FunctionKey) -> float:
        keep_ms = self._limits.get(key, _NO_LIMITS).keep_alive_ms
        return self._keep_alives[key].rule.keep_ms if keep_ms is None else keep_ms

    def _wanted(self, key: FunctionKey, target: PodTarget, now_ms: float) -> int:
        if target.pooled:
            return self._pools.wanted_pods(key)
        return self._wanted_alone(key, target, now_ms)

    def _wanted_alone(self, key: FunctionKey, target: PodTarget, now_ms: float) -> int:
        function = self._dispatcher.functions[key]
        is_learned = self._limits.get(key, _NO_LIMITS).keep_alive_ms is None
        before_ms = function.slow_start_ms + PERIOD_MS
        expected = is_learned and self._keep_alives[key].is_due(before_ms, now_ms)
        return wanted_pods(function, target, now_ms, self._headroom_ratio, expected=expected)

    # -- sizes ---------------------------------------------------------------------------------

    def _rate(self, key: WorkflowKey) -> ArrivalRate:
        rate = self._rates.get(key)
        if rate is None:
            rate = self._rates[key] = ArrivalRate(self._expected.get(key, 0.0))
        return rate

    def _function_rates(self, rates: Mapping[WorkflowKey, float]) -> dict[FunctionKey, float]:
        rows_per_ms: dict[FunctionKey, float] = {}
        for key, rate in rates.items():
            for queue in self._dispatcher.workflows[key].queues:
                function = queue.function.key
                rows_per_ms[function] = rows_per_ms.get(function, 0.0) + rate
        return rows_per_ms

    def _is_missized(self, function: FunctionState, sizing_rows_per_ms: float) -> bool:
        target = self._targets.get(function.key)
        if target is None:
            return True
        rate_ratio = sizing_rows_per_ms / target.sized_rows_per_ms
        time_ratio = self._time_ratio(function) / target.time_ratio
        return not (
            1.0 / RESIZE_RATIO <= rate_ratio <= RESIZE_RATIO
            and 1.0 / RISE_RATIO <= time_ratio <= RISE_RATIO
        )

    def _time_ratio(self, function: FunctionState) -> float:
        """Return the time that plans reserve for a run, with the margin, over the profile's."""
        keys = {queue.workflow.key for queue in function.queues}
        margins = map(self._dispatcher.margin_ratio, keys)
        return function.pool.correction.ratio * (1.0 + max(margins, default=0.0))

    def _choice(
        self, namespace: str, rates: Mapping[WorkflowKey, float], now_ms: float
    ) -> ShareChoice:
        loads = []
        for key, rate in rates.items():
            if key[0] != namespace:
                continue
            document = self._dispatcher.workflows[key].document
            spared = (1.0 - WAIT_RATIO) / (1.0 + self._dispatcher.margin_ratio(key))
            limit_ms = document.spec.slo.latency_ms * spared
            loads.append(WorkflowLoad(document, rate, limit_ms))
        refused = {
            (start.function[1], *start.share[:3])
            for start in self.backoffs.refused(namespace, now_ms)
        }
        functions = {
            key[1]: function
            for key, function in self._dispatcher.functions.items()
            if key[0] == namespace
        }
        return ShareChoice(
            namespace,
            loads,
            dict(self._dispatcher.profiles),
            {name: function.pool.correction for name, function in functions.items()},
            {name: self._time_ratio(function) for name, function in functions.items()},
            self._prices,
            refused,
        )
