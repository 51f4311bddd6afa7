"""Result of a run: constant-memory aggregates, frozen, and equal for equal seeds."""

from dataclasses import dataclass, field, fields, is_dataclass, replace
from typing import Any, NamedTuple, Self

from workbench.simulation.cost_split import CostSplit
from workbench.simulation.counts import Counts
from workbench.simulation.steady_state import OverTime, SteadyState, judged
from workbench.simulation.windows import RunWindows, WorkflowResult

_NOT_IN_JSON = frozenset({"windows", "planning_s", "setup_s"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Result(Counts):
    """Result of a run: the counts are those of the requests that arrived after the warm-up.

    Attributes:
        policy, seed: policy and seed of the run.
        arrived: number of requests of the whole run, including the warm-up.
        simulated_ms: virtual time of the last event.
        steady_state: length of the warm-up that was left out, and the verdict on what follows.
        over_time: outcomes and cost by window of arrival, over the whole run.
        windows: outcomes and cost from which another warm-up can be left out; not part of
            `as_json`.
        workflows: counts by workflow, in the order of the arrivals.
        idle_dollars: cost of what containers held while nothing ran in them: idle shares, starts,
            transfers. From the end of the warm-up to the last answer.
        bound_dollars: least cost of the same requests in time (`scheduler.search.cost_bound`); None
            without requests, or where those of a workflow cannot be in time.
        split: parts of what is paid; None without a bound, and on stations, whose nodes are paid
            whole.
        idle_joules: energy of all GPUs as if they were idle, in the same time.
        gpu_utilisation: ratio of all GPUs' share that was held, in each bucket of time.
        gpu_utilisation_bucket_ms: width of a bucket.
        runs: number of batches that ran.
        mean_batch_size: mean number of requests per run.
        cold_starts: number of containers that started for a waiting run, or for an autoscaler
            during the run.
        prewarmed: number of containers that started for a prediction.
        evictions: number of warm containers that ended because their memory was needed.
        forced: number of runs of the forced minimum configuration.
        placement_failures: number of attempts to place a queue that no node could hold.
        events: number of events, including arrivals.
        planning_calls: number of calls of the policy.
        planning_s, setup_s: wall time of all calls of the policy, and of its construction; not
            part of `as_json`, which is reproducible.
    """

    policy: str
    seed: int
    arrived: int
    simulated_ms: float
    steady_state: SteadyState
    over_time: OverTime
    windows: RunWindows = field(repr=False)
    workflows: tuple[WorkflowResult, ...]
    idle_dollars: float
    bound_dollars: float | None
    split: CostSplit | None
    idle_joules: float
    gpu_utilisation: tuple[float, ...]
    gpu_utilisation_bucket_ms: float
    runs: int
    mean_batch_size: float
    cold_starts: int
    prewarmed: int
    evictions: int
    forced: int
    placement_failures: int
    events: int
    planning_calls: int
    planning_s: float = field(compare=False)
    setup_s: float = field(compare=False)

    @property
    def paid_dollars(self) -> float:
        """Cost of all that was set aside: what containers held, whether or not anything ran."""
        return self.ran_dollars + self.idle_dollars

    @property
    def paid_bound_ratio(self) -> float | None:
        """Cost paid over the least cost of the same requests in time; None without a bound."""
        return self.paid_dollars / self.bound_dollars if self.bound_dollars else None

    @property
    def joules_per_request(self) -> float:
        """Energy of the whole cluster per request; 0 without requests."""
        joules = self.ran_joules + self.idle_joules
        return joules / self.requests if self.requests else 0.0

    @property
    def dollars_per_thousand(self) -> float:
        """Dollars paid per 1,000 requests; 0 without requests."""
        return 1000.0 * self.paid_dollars / self.requests if self.requests else 0.0

    @property
    def idle_dollars_per_thousand(self) -> float:
        """Dollars per 1,000 requests for what was held while nothing ran; 0 without requests."""
        return 1000.0 * self.idle_dollars / self.requests if self.requests else 0.0

    @property
    def mean_utilisation_ratio(self) -> float:
        """Ratio of all GPUs' share that was held, over the whole run."""
        if not self.gpu_utilisation or not self.simulated_ms:
            return 0.0
        over_ms = self.gpu_utilisation_bucket_ms * (len(self.gpu_utilisation) - 1)
        last_ms = self.simulated_ms - over_ms
        over = self.gpu_utilisation_bucket_ms * sum(self.gpu_utilisation[:-1])
        return (over + last_ms * self.gpu_utilisation[-1]) / self.simulated_ms

    @property
    def runs_per_s(self) -> float:
        """Batches begun a second of the virtual clock."""
        return 1000.0 * self.runs / self.simulated_ms if self.simulated_ms else 0.0

    def since(self, warmup_ms: float) -> Self:
        """Return the result without another warm-up, which an MSER-5 of several runs has found."""
        steady_state = replace(judged(self.over_time, warmup_ms), rule="MSER-5")
        return replace(self, steady_state=steady_state, **self.windows.since(warmup_ms))

    def as_json(self) -> dict[str, Any]:
        """Return all but the windows and the wall times: equal runs give equal bytes."""
        names = [item.name for item in fields(self) if item.name not in _NOT_IN_JSON]
        return {name: _as_json(getattr(self, name)) for name in names}


class RequestRecord(NamedTuple):
    """One request at its end, as `Observers.on_request` receives it."""

    number: int  # in order of arrival, from 0
    workflow: int  # into the arrivals' workflows
    arrival_ms: float
    end_ms: float
    slo_ms: float
    outcome: str  # hit, miss or dropped
    queue_ms: float  # the four phases: of its longest chain of stages
    start_ms: float
    transfer_ms: float
    execute_ms: float
    cost_dollars: float  # its part of every run that served it


class Span(NamedTuple):
    """Run of a container, as `Observers.on_span` receives it.

    The container holds its share from ``begin_ms``; it starts, its input arrives, and from
    ``execute_ms`` to ``end_ms`` it runs.
    """

    workflow: int
    stage: str
    function: str
    node: str
    gpu: str  # UUID
    container: int  # number
    begin_ms: float
    start_ms: float  # duration of the start
    transfer_ms: float
    execute_ms: float
    end_ms: float
    batch: int  # of the configuration
    requests: tuple[tuple[int, int], ...]  # number of each, and index of its stage
    cpu: int
    gpu_percent: int
    memory_mib: int
    cost_dollars: float

    @property
    def jobs(self) -> int:
        """Number of requests in the batch."""
        return len(self.requests)


def _as_json(value: Any) -> Any:
    if is_dataclass(value) and not isinstance(value, type):
        return {item.name: _as_json(getattr(value, item.name)) for item in fields(value)}
    if isinstance(value, tuple):
        return [_as_json(item) for item in value]
    return value
