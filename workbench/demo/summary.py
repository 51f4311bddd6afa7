"""Summary of a run, by the client's clock and counts."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from scheduler.model.names import LABEL_FUNCTION
from scheduler.model.plan import MS_PER_HOUR, Prices
from scheduler.model.pod import grant_of
from workbench.demo.results import Results, percentile

LATE_RATIO = 0.05  # of the shortest SLO: a machine with more lateness did not keep up
HIT_RATIO = 0.99  # unless the requests were in time all the same
_S_PER_HOUR = 3600.0


class PodUsage:
    """Shares that pods hold over time, and their price.

    Attributes:
        dollars: price of what was held so far, idle or not.
        held_s: time of one whole GPU that was held so far.
        pods: number of pods by function, vCPUs and share.
    """

    def __init__(self, prices: Prices) -> None:
        self._prices = prices
        self._dollars_per_hour = 0.0
        self._held_gpus = 0.0
        self._since_s: float | None = None
        self.dollars = 0.0
        self.held_s = 0.0
        self.pods: Counter[tuple[str, int, int]] = Counter()

    def update(self, pods: Iterable[Mapping[str, Any]], now_s: float) -> None:
        """Account for the time since the last update, and hold what these pods hold."""
        if self._since_s is not None:
            elapsed_s = now_s - self._since_s
            self.dollars += self._dollars_per_hour * elapsed_s / _S_PER_HOUR
            self.held_s += self._held_gpus * elapsed_s
        self._since_s = now_s
        self._dollars_per_hour = self._held_gpus = 0.0
        self.pods.clear()
        for pod in pods:
            if (grant := grant_of(pod)) is None:
                continue
            self._held_gpus += grant.gpu_percent / 100
            self._dollars_per_hour += self._prices.request_cost_dollars(
                MS_PER_HOUR, grant.cpu, grant.gpu_percent, 1, str(grant.plan.get("gpu_model"))
            )
            function = pod["metadata"]["labels"][LABEL_FUNCTION]
            self.pods[function, grant.cpu, grant.gpu_percent] += 1


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoSummary:
    """Summary of a whole run, or of one so far.

    Attributes:
        seconds: from the first arrival until now, or until the last answer.
        batches: runs of model servers.
        rows_per_batch: mean number of requests in them.
        gpus: number of all GPUs.
        held_ratio, busy_ratio: of all GPUs, over the time: held by pods, and used by runs.
        client_late_p99_ms: how late the client sent its requests.
        server_late_p99_ms: by how much runs of model servers took longer than they were to.
    """

    seconds: float
    results: Results
    batches: int
    rows_per_batch: float
    gpus: int
    pods: Mapping[tuple[str, int, int], int]
    held_ratio: float
    busy_ratio: float
    dollars: float
    client_late_p99_ms: float
    server_late_p99_ms: float

    @property
    def kept_up(self) -> bool:
        """False if the machine was too slow for the load: the hit rate then means nothing.

        Delays of client and model servers count as the product's, so a high rate stands in spite of
        them.
        """
        late_ms = max(self.client_late_p99_ms, self.server_late_p99_ms)
        hit_ratio = self.results.total.hit_ratio
        return late_ms <= LATE_RATIO * self.results.slo_min_ms or (
            hit_ratio is not None and hit_ratio >= HIT_RATIO
        )

    @property
    def dollars_per_thousand(self) -> float:
        """Price of all pods over the time, for 1,000 answered requests."""
        return 1000 * self.dollars / max(1, self.results.total.answered)

    def as_json(self) -> dict[str, Any]:
        """Return the object of ``--json``."""
        return {
            "seconds": self.seconds,
            "workflows": [workflow.as_json() for workflow in self.results.workflows],
            "total": self.results.total.as_json(),
            "kept_up": self.kept_up,
            "client_late_p99_ms": self.client_late_p99_ms,
            "server_late_p99_ms": self.server_late_p99_ms,
            "batches": self.batches,
            "rows_per_batch": self.rows_per_batch,
            "pods": [
                {"function": function, "cpu": cpu, "gpu_percent": percent, "pods": number}
                for (function, cpu, percent), number in sorted(self.pods.items())
            ],
            "gpu_held_ratio": self.held_ratio,
            "gpu_busy_ratio": self.busy_ratio,
            "dollars": self.dollars,
            "dollars_per_1000": self.dollars_per_thousand,
        }


def summarise(
    results: Results,
    usage: PodUsage,
    runs: Mapping[str, float],
    *,
    gpus: int,
    seconds: float,
) -> DemoSummary:
    """Summarise a run.

    Args:
        results: of its requests.
        usage: of its pods.
        runs: report of the played model servers.
        gpus: number of all GPUs.
        seconds: its time so far.
    """
    batches = round(runs["runs"])
    return DemoSummary(
        seconds=seconds,
        results=results,
        batches=batches,
        rows_per_batch=results.stage_rows / batches if batches else 0.0,
        gpus=gpus,
        pods=usage.pods,
        held_ratio=usage.held_s / seconds / gpus,
        busy_ratio=runs["busy_s"] / seconds / gpus,
        dollars=usage.dollars,
        client_late_p99_ms=percentile(results.total.lateness_ms, 99) or 0.0,
        server_late_p99_ms=runs["late_p99_ms"],
    )
