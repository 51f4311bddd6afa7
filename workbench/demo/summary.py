"""Summary of a run, by the client's clock and counts, and by the pods of the API server."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import inf
from typing import Any, Literal, NamedTuple

from scheduler.model.grant import grant_of
from scheduler.model.names import LABEL_FUNCTION, POOL_MEMBER
from scheduler.model.plan import MS_PER_HOUR, Prices
from workbench.cluster.kubelet import is_ready
from workbench.demo.results import RunResults, percentile

LATE_RATIO = 0.05  # of the shortest SLO: a machine with more lateness did not keep up
HIT_RATIO = 0.99  # unless the requests were in time all the same
SLICES = "slices"
_S_PER_HOUR = 3600.0


class PodKind(NamedTuple):
    """Pods of a function that are alike, or slices of a pool.

    Attributes:
        function: name of the function; `SLICES`: holders of slices.
        cpu, gpu_percent: vCPUs and share of a GPU; 0 while they wait for a node.
        state: state of each of the pods.
    """

    function: str
    cpu: int
    gpu_percent: int
    state: Literal["waiting", "starting", "ready", "ending"]


class PodUsage:
    """Shares that pods hold over time, and their price; those of a pool hold the slices' alone.

    Attributes:
        dollars: price of the reservations so far, idle or not.
        reserved_s: time of one whole GPU that was reserved so far, in seconds.
        pods: current number of pods of each kind.
        started, ended: number of pods that have got a node, and of those that were deleted since.
    """

    def __init__(self, prices: Prices) -> None:
        self._prices = prices
        self._dollars_per_hour = 0.0
        self._reserved_gpus = 0.0
        self._since_s: float | None = None
        self.dollars = 0.0
        self.reserved_s = 0.0
        self.pods: Counter[PodKind] = Counter()
        self._placed: set[str] = set()  # UIDs
        self.started = self.ended = 0

    def update(self, pods: Iterable[Mapping[str, Any]], now_s: float) -> None:
        """Account for the time since the last change of pods, and reserve what these pods have."""
        if self._since_s is not None:
            elapsed_s = now_s - self._since_s
            self.dollars += self._dollars_per_hour * elapsed_s / _S_PER_HOUR
            self.reserved_s += self._reserved_gpus * elapsed_s
        self._since_s = now_s
        self._dollars_per_hour = self._reserved_gpus = 0.0
        self.pods.clear()
        placed = set()
        for pod in pods:
            function = pod["metadata"]["labels"].get(LABEL_FUNCTION, SLICES)
            if (grant := grant_of(pod)) is None:
                self.pods[PodKind(function, 0, 0, "waiting")] += 1
                continue
            placed.add(pod["metadata"]["uid"])
            self.pods[PodKind(function, grant.cpu, grant.gpu_percent, _state(pod))] += 1
            if grant.pool == POOL_MEMBER:
                continue
            self._reserved_gpus += grant.gpu_percent / 100
            self._dollars_per_hour += self._prices.request_cost_dollars(
                MS_PER_HOUR, grant.cpu, grant.gpu_percent, 1, str(grant.plan.get("gpu_model"))
            )
        self.started += len(placed - self._placed)
        self.ended += len(self._placed - placed)
        self._placed = placed


def _state(pod: Mapping[str, Any]) -> Literal["starting", "ready", "ending"]:
    if pod["metadata"].get("deletionTimestamp"):
        return "ending"
    return "ready" if is_ready(pod) else "starting"


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoSummary:
    """Summary of a whole run, or of one so far.

    Attributes:
        seconds: time from the first arrival until now, or until the last answer.
        batches: number of runs of model servers, without the first one of each pod.
        rows_per_batch: mean number of requests in them.
        gpus: number of all GPUs.
        pods, pods_started, pods_ended: numbers of pods, as in `PodUsage`.
        reserved_ratio, busy_ratio: part of all GPUs, over the time, that pods reserve, and that
            runs use.
        client_late_p99_ms: 99th percentile of the delays with which the client sent its requests.
        server_late_p99_ms: 99th percentile of the delays with which model servers ended their runs.
        core_wait_ratios: part of the time from the first arrival to the last answer in which the
            main threads of extender and gateway, which serve, were ready to run and waited for a
            core. None until then, and where the kernel does not count.
        limit_dollars: least cost of the answered requests in time; infinite if there is none.
    """

    seconds: float
    results: RunResults
    batches: int
    rows_per_batch: float
    gpus: int
    pods: Mapping[PodKind, int]
    pods_started: int
    pods_ended: int
    reserved_ratio: float
    busy_ratio: float
    dollars: float
    client_late_p99_ms: float
    server_late_p99_ms: float
    core_wait_ratios: Sequence[float | None] = (None, None)
    limit_dollars: float = inf

    @property
    def kept_up(self) -> bool:
        """Return false if the machine was too slow for the load: the hit rate then means nothing.

        Delays of client and model servers count as the product's, so a high rate stands in spite of
        them.
        """
        late_ms = max(self.client_late_p99_ms, self.server_late_p99_ms)
        hit_ratio = self.results.counted.total.hit_ratio
        return late_ms <= LATE_RATIO * self.results.counted.slo_min_ms or (
            hit_ratio is not None and hit_ratio >= HIT_RATIO
        )

    @property
    def dollars_per_thousand(self) -> float:
        """Price of all pods over the time, for 1,000 answered requests."""
        return 1000 * self.dollars / max(1, self.results.answered)

    @property
    def paid_limit_ratio(self) -> float | None:
        """Price of all pods over the least cost of the answered requests; None without a limit."""
        limit_dollars = self.limit_dollars
        return self.dollars / limit_dollars if 0.0 < limit_dollars < inf else None

    def as_json(self) -> dict[str, Any]:
        """Return the object of ``--json``."""
        extender_core_wait_ratio, gateway_core_wait_ratio = self.core_wait_ratios
        return {
            "seconds": self.seconds,
            "workflows": [workflow.as_json() for workflow in self.results.counted.workflows],
            "total": self.results.counted.total.as_json(),
            "warm_up": self.results.warm_up.total.as_json(),
            "kept_up": self.kept_up,
            "client_late_p99_ms": self.client_late_p99_ms,
            "server_late_p99_ms": self.server_late_p99_ms,
            "extender_core_wait_ratio": extender_core_wait_ratio,
            "gateway_core_wait_ratio": gateway_core_wait_ratio,
            "batches": self.batches,
            "rows_per_batch": self.rows_per_batch,
            "pods": [{**kind._asdict(), "pods": n} for kind, n in sorted(self.pods.items())],
            "pods_started": self.pods_started,
            "pods_ended": self.pods_ended,
            "gpu_held_ratio": self.reserved_ratio,
            "gpu_busy_ratio": self.busy_ratio,
            "dollars": self.dollars,
            "dollars_per_1000": self.dollars_per_thousand,
            "paid_over_bound": self.paid_limit_ratio,
        }


def summarise(
    results: RunResults,
    usage: PodUsage,
    runs: Mapping[str, float],
    *,
    gpus: int,
    seconds: float,
) -> DemoSummary:
    """Summarise a run, without waits for a core and the limit of the cost.

    Args:
        results: results of the requests.
        usage: usage of the pods.
        runs: report of the played model servers.
        gpus: number of all GPUs.
        seconds: time so far.
    """
    batches = round(runs["runs"] - runs["pods"])
    return DemoSummary(
        seconds=seconds,
        results=results,
        batches=batches,
        rows_per_batch=results.stage_rows / batches if batches else 0.0,
        gpus=gpus,
        pods=usage.pods,
        pods_started=usage.started,
        pods_ended=usage.ended,
        reserved_ratio=usage.reserved_s / seconds / gpus,
        busy_ratio=runs["busy_s"] / seconds / gpus,
        dollars=usage.dollars,
        client_late_p99_ms=percentile(results.counted.total.lateness_ms, 99) or 0.0,
        server_late_p99_ms=runs["late_p99_ms"],
    )
