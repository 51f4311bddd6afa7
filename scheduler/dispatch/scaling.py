"""Pods from demand: which to start and which to stop. No I/O; the owner does both.

The share of a function's pods is that of its size (`sizing`), for the workflows' rates. Their
number follows the rate, with a reserve, and the backlog:

- Up at once, to at most twice as many pods in a second. A workflow's rate is the largest of several
  windows: a short one shows a rise soon, as far as it is more than chance, and a long one has no
  short gap.
- Up also when rows wait that the pods cannot serve in time, and a pod that starts now could; and
  while rows wait that are late, as long as no pod is free or starts.
- A function with less than one request in a cold start gets its pod one cold start before the
  predicted next request.
- Down the least recently used pod that has been idle for the keep-alive, and none within a minute
  of a rise. Pods of a share that is no longer chosen go as soon as the others suffice.
"""

from collections import deque
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from math import ceil, inf, sqrt
from typing import NamedTuple

from scheduler.dispatch.dispatcher import Dispatcher
from scheduler.dispatch.pods import FunctionKey, Pod, PodState, Share
from scheduler.dispatch.requests import WorkflowKey
from scheduler.dispatch.sizing import PodPrices, Size, Sizing, WorkflowLoad, staffed_pods
from scheduler.dispatch.workflow_queues import FunctionState
from scheduler.model.documents import FunctionProfile

PERIOD_MS = 1_000.0  # between two calls of `Scaler.changes`
WINDOWS_MS = (30_000.0, 60_000.0)
SHORT_WINDOWS_MS = (2_000.0, 10_000.0)
CHANCE_DEVIATIONS = 2.0  # of a Poisson count: so far a short window may be above the rate by chance
DOUBLING_MS = 1_000.0  # in which pods at most double; those of an expected rate start at once
CALM_MS = 60_000.0  # after a rise, without a pod that goes
WAIT_RATIO = 0.05  # of a workflow's time, for waits and transfers
RISE_RATIO = 1.2  # of the rate over the one that pods were counted for: below, it is noise
RESIZE_RATIO = 2.0  # the same, in both directions, for another choice of shares
BACKOFF_MS = (1_000.0, 60_000.0)  # after a start that failed: first, and longest
REFUSED_MS = 60_000.0  # without a share of which not one pod could be started
BUSY_MIN_PODS = 0.01
RATE_MIN = 1e-3  # rows per ms, for the choice of shares; below one a second they stay as they are


@dataclass(frozen=True, slots=True, kw_only=True)
class PodLimits:
    """Limits of the pods of one function.

    Attributes:
        min_pods, max_pods: their number.
        keep_alive_ms: an idle pod stays so long after its last run.
    """

    min_pods: int = 0
    max_pods: int = 1_000
    keep_alive_ms: float = 600_000.0


class Start(NamedTuple):
    """A pod to start."""

    function: FunctionKey
    share: Share


class Changes(NamedTuple):
    """Pods to start and to stop.

    Starts for the function with the smallest reserve come first: where room is short, all
    functions have about the same.
    """

    starts: Sequence[Start]
    stops: Sequence[Pod]


class ShareChoice:
    """A choice of the shares of a namespace's functions that is due.

    Attributes:
        namespace: of the functions.
        profiles: of all functions.
        rows_per_ms: by function, for which the choice is made.
    """

    def __init__(
        self,
        namespace: str,
        loads: Sequence[WorkflowLoad],
        profiles: Mapping[str, FunctionProfile],
        prices: PodPrices,
        refused: AbstractSet[tuple[str, str, int, int]],
    ) -> None:
        self.namespace = namespace
        self.profiles = profiles
        self.rows_per_ms: dict[str, float] = {}
        self._loads = loads
        self._prices = prices
        self._refused = refused

    def sizes(self) -> dict[str, Size]:
        """Choose. It takes tenths of a second; any thread may do it."""
        sizing = Sizing(self._loads, self.profiles, self._prices, self._refused)
        self.rows_per_ms = sizing.rows_per_ms
        return sizing.chosen()


class _Rate:
    """Rate of a workflow's rows, from their count at each look."""

    def __init__(self, rows_per_ms: float) -> None:
        self._expected = rows_per_ms  # until a window has passed
        self._counts: deque[tuple[float, int]] = deque()

    def rows_per_ms(self, arrived: int, now_ms: float) -> float:
        counts = self._counts
        counts.append((now_ms, arrived))
        while now_ms - counts[0][0] > WINDOWS_MS[-1]:
            counts.popleft()
        age_ms = now_ms - counts[0][0]
        rate = self._expected if age_ms < WINDOWS_MS[-1] else 0.0
        for window_ms in WINDOWS_MS:
            if age_ms >= 0.9 * window_ms:
                rows, length_ms = self._last(window_ms)
                rate = max(rate, rows / length_ms)
        for window_ms in SHORT_WINDOWS_MS:
            rows, length_ms = self._last(window_ms)
            certain_rows = rows - CHANCE_DEVIATIONS * sqrt(rows)
            rate = max(rate, certain_rows / max(length_ms, SHORT_WINDOWS_MS[0]))
        return rate

    def _last(self, window_ms: float) -> tuple[int, float]:
        """Return the rows of the last window, and its length: shorter at the beginning."""
        now_ms, arrived = self._counts[-1]
        time_ms, count = next(c for c in self._counts if now_ms - c[0] <= window_ms)
        return arrived - count, now_ms - time_ms


class _PodTarget:
    """Pods that a function should have."""

    def __init__(self, size: Size, share: Share, rows_per_ms: float) -> None:
        self.share = share
        self.resize(size, rows_per_ms)
        self.raised_ms = -inf
        self.doubled_ms, self.doubled_from = -inf, 0
        self.expected_pods = 0
        self.lacks_room = False

    def resize(self, size: Size, rows_per_ms: float) -> None:
        self.configuration = size.configuration
        self.rows_per_ms = rows_per_ms  # for which pods are counted
        self.sized_for = rows_per_ms

    def pods_allowed(self, wanted: int, existing: int, now_ms: float) -> int:
        """Return the pods that may exist now: at most twice those of a second ago."""
        if now_ms - self.doubled_ms >= DOUBLING_MS:
            self.doubled_from, self.doubled_ms = existing, now_ms
        return min(wanted, max(2 * self.doubled_from, self.expected_pods, 1))

    def reserve_ratio(self, pods: int) -> float:
        """Return the reserve of so many pods, in the unit of `sizing.RESERVE`."""
        return (pods - self.busy_pods) / sqrt(max(self.busy_pods, BUSY_MIN_PODS))

    @property
    def busy_pods(self) -> float:
        return self.rows_per_ms * self.configuration.latency_ms / self.configuration.batch


class _Backoff:
    """Failed starts of one share.

    Attributes:
        retry_ms: no start before.
        refused_until_ms: another share is chosen until then.
    """

    def __init__(self) -> None:
        self.retry_ms = self.refused_until_ms = -inf
        self._wait_ms = BACKOFF_MS[0]

    def failed(self, now_ms: float) -> None:
        if now_ms >= self.retry_ms:
            self.retry_ms = now_ms + self._wait_ms
            self._wait_ms = min(2.0 * self._wait_ms, BACKOFF_MS[1])


class Scaler:
    """Scales the pods of a dispatcher's functions.

    Attributes:
        failures: starts that failed.
    """

    def __init__(self, dispatcher: Dispatcher, prices: PodPrices) -> None:
        self._dispatcher = dispatcher
        self._prices = prices
        self._limits: dict[FunctionKey, PodLimits] = {}
        self._rates: dict[WorkflowKey, _Rate] = {}
        self._expected: dict[WorkflowKey, float] = {}
        self._targets: dict[FunctionKey, _PodTarget] = {}
        self._backoffs: dict[Start, _Backoff] = {}
        self._documents: tuple[object, ...] = ()
        self.failures = 0

    def set_limits(self, function: FunctionKey, limits: PodLimits) -> None:
        """Set the limits of a function's pods."""
        self._limits[function] = limits

    def expect(self, workflow: WorkflowKey, rate_rps: float) -> None:
        """Set the rate of a workflow before its own is known."""
        self._expected[workflow] = rate_rps / 1000.0

    def start_failed(self, start: Start, now_ms: float) -> None:
        """Report a pod that found no room, or failed before it was ready.

        The next attempt waits, longer each time. Where the function has no pod of this share,
        another share is chosen meanwhile.
        """
        self.failures += 1
        backoff = self._backoffs.setdefault(start, _Backoff())
        backoff.failed(now_ms)
        target = self._targets.get(start.function)
        if target is None:
            return
        target.lacks_room = True
        function = self._dispatcher.functions[start.function]
        ready = (pod for pod in function.pool.usable() if pod.state is PodState.READY)
        if not any(pod.share == start.share for pod in ready):
            backoff.refused_until_ms = now_ms + REFUSED_MS
            self._documents = ()  # shares are chosen again

    def changes(self, now_ms: float) -> Changes:
        """Return the pods to start and to stop; call it every `PERIOD_MS`, or more often.

        An owner that must not wait for a choice of shares calls the three parts itself.
        """
        for choice in self.share_choices(now_ms):
            self.set_shares(choice, choice.sizes())
        return self.pod_changes(now_ms)

    def share_choices(self, now_ms: float) -> list[ShareChoice]:
        """Take notice of rates and documents; return the choices of shares that they require."""
        dispatcher = self._dispatcher
        rates = {
            key: self._rate(key).rows_per_ms(state.arrived_rows, now_ms)
            for key, state in dispatcher.workflows.items()
        }
        rows_per_ms: dict[FunctionKey, float] = {}
        for key, rate in rates.items():
            for queue in dispatcher.workflows[key].queues:
                rows_per_ms[queue.function] = rows_per_ms.get(queue.function, 0.0) + rate
        for key, target in self._targets.items():
            rate = rows_per_ms.get(key, 0.0)
            if rate > RISE_RATIO * target.rows_per_ms or rate * RISE_RATIO < target.rows_per_ms:
                target.rows_per_ms = rate
        known = [state.document for state in dispatcher.workflows.values()]
        documents = (*known, *dispatcher.profiles.values())
        if documents == self._documents and not any(
            self._is_missized(key, rate) for key, rate in rows_per_ms.items()
        ):
            return []
        self._documents = documents
        return [
            self._choice(namespace, rates, now_ms)
            for namespace in sorted({key[0] for key in rates})
        ]

    def set_shares(self, choice: ShareChoice, sizes: Mapping[str, Size]) -> None:
        """Set the shares that were chosen; pods follow with the next `pod_changes`."""
        for name, size in sizes.items():
            key = choice.namespace, name
            if key not in self._dispatcher.functions:
                continue  # it was removed meanwhile
            share = _share(choice.profiles[name], size)
            known, rows_per_ms = self._targets.get(key), choice.rows_per_ms[name]
            if known is not None and known.share == share:
                known.resize(size, rows_per_ms)
            else:
                self._targets[key] = target = _PodTarget(size, share, rows_per_ms)
                target.expected_pods = ceil(staffed_pods(target.busy_pods)) if not known else 0

    def pod_changes(self, now_ms: float) -> Changes:
        """Return the pods to start and to stop for the rates and shares that are known."""
        starts: list[tuple[float, Start]] = []
        stops: list[Pod] = []
        for key, target in self._targets.items():
            function = self._dispatcher.functions[key]
            limits = self._limits.get(key, PodLimits())
            pods = [pod for pod in function.pool.usable() if pod.share == target.share]
            wanted = max(self._wanted(function, target, now_ms), limits.min_pods)
            wanted = min(wanted, limits.max_pods)
            start = Start(key, target.share)
            backoff = self._backoffs.get(start)
            if wanted <= len(pods):
                self._backoffs.pop(start, None)
            elif backoff is None or now_ms >= backoff.retry_ms:
                count = target.pods_allowed(wanted, len(pods), now_ms)
                count = max(count, min(limits.min_pods, wanted))
                starts += [(target.reserve_ratio(i), start) for i in range(len(pods), count)]
                target.raised_ms = now_ms
            stops += self._stopped(function, target, wanted, limits, now_ms)
        starts.sort(key=lambda start: start[0])
        return Changes([start for _, start in starts], stops)

    # -- sizes ---------------------------------------------------------------------------------

    def _rate(self, key: WorkflowKey) -> _Rate:
        rate = self._rates.get(key)
        if rate is None:
            rate = self._rates[key] = _Rate(self._expected.get(key, 0.0))
        return rate

    def _is_missized(self, key: FunctionKey, rows_per_ms: float) -> bool:
        target = self._targets.get(key)
        if target is None:
            return True
        ratio = max(rows_per_ms, RATE_MIN) / max(target.sized_for, RATE_MIN)
        return not 1.0 / RESIZE_RATIO <= ratio <= RESIZE_RATIO

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
            loads.append(WorkflowLoad(document, max(rate, RATE_MIN), limit_ms))
        refused = {
            (start.function[1], *start.share[:3])
            for start, backoff in self._backoffs.items()
            if start.function[0] == namespace and now_ms < backoff.refused_until_ms
        }
        profiles = dict(self._dispatcher.profiles)
        return ShareChoice(namespace, loads, profiles, self._prices, refused)

    # -- numbers -------------------------------------------------------------------------------

    def _wanted(self, function: FunctionState, target: _PodTarget, now_ms: float) -> int:
        busy_pods, cold_ms = target.busy_pods, function.cold_start_ms
        wanted = ceil(staffed_pods(busy_pods))
        if target.rows_per_ms * cold_ms < 1.0:
            expected = any(q.forecast.is_due(cold_ms + PERIOD_MS, now_ms) for q in function.queues)
            wanted = 1 if wanted > 1 or expected else 0
        existing = len(function.pool.pods)
        if self._is_behind(function, target, now_ms):
            wanted = max(wanted, existing + 1)
        if existing and _late_rows_wait(function, target, now_ms):
            # The more, the longer the pods need for what waits, in starts of a pod.
            start_ms = max(cold_ms + target.configuration.latency_ms, PERIOD_MS)
            ratio = min(function.wait_ms(now_ms) / start_ms, 1.0)
            wanted = max(wanted, existing + ceil(existing * ratio))
        return wanted

    @staticmethod
    def _is_behind(function: FunctionState, target: _PodTarget, now_ms: float) -> bool:
        """Return true if rows wait that the pods cannot serve in time, and another pod could."""
        if function.rows and not function.pool.pods:
            return True
        last_jobs = (queue.jobs[-1] for queue in function.queues if queue.jobs)
        last_ms = max((job.deadline_ms for job in last_jobs), default=-inf)
        run_ms = target.configuration.latency_ms
        in_time = now_ms + function.cold_start_ms + run_ms <= last_ms
        return in_time and now_ms + function.wait_ms(now_ms) + run_ms > last_ms

    @staticmethod
    def _stopped(
        function: FunctionState, target: _PodTarget, wanted: int, limits: PodLimits, now_ms: float
    ) -> list[Pod]:
        ready = [pod for pod in function.pool.pods.values() if pod.state is PodState.READY]
        chosen = [pod for pod in ready if pod.share == target.share]
        idle = sorted((pod for pod in ready if not pod.runs), key=lambda pod: pod.idle_since_ms)
        stops = []
        if len(chosen) >= wanted or target.lacks_room:
            stops = [pod for pod in idle if pod.share != target.share]
            target.lacks_room = False
        if now_ms - target.raised_ms >= CALM_MS:
            surplus = max(len(chosen) - wanted, 0)
            of_share = (pod for pod in idle if pod.share == target.share)
            old = [pod for pod in of_share if now_ms - pod.idle_since_ms >= limits.keep_alive_ms]
            stops += old[:surplus]
        return stops


def _share(profile: FunctionProfile, size: Size) -> Share:
    """Return the share of a size, with memory for the largest batch that it can run."""
    point = size.configuration
    memory_mib = max(
        c.memory_mib
        for gpu in profile.spec.gpus
        for c in gpu.configurations
        if gpu.model == size.gpu_model and (c.cpu, c.gpu_percent) == (point.cpu, point.gpu_percent)
    )
    return Share(size.gpu_model, point.cpu, point.gpu_percent, memory_mib)


def _late_rows_wait(function: FunctionState, target: _PodTarget, now_ms: float) -> bool:
    """Return true if rows wait that cannot be in time, and no pod is free or starts."""
    pool = function.pool
    if pool.open or any(pod.state is PodState.STARTING for pod in pool.usable()):
        return False
    limit_ms = now_ms + target.configuration.latency_ms
    return any(
        queue.late.jobs or (queue.jobs and queue.deadline_ms < limit_ms)
        for queue in function.queues
    )
