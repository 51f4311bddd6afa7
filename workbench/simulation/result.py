"""Result of a run: constant-memory aggregates, frozen, and equal for equal seeds."""

from dataclasses import dataclass, field, fields, is_dataclass
from math import log
from typing import Any, NamedTuple

from workbench.simulation.steady_state import OverTime, SteadyState

BIN_RATIO = 0.005  # width of a bin of latency over SLO, up to 10 SLOs
EVEN_BINS = 2_000  # of that width
BINS_GROW = 1.005  # beyond, each is so much wider than the one before
BINS = EVEN_BINS + 2_400  # up to 1.6 million SLOs; the last one has all beyond


def bin_of(ratio: float) -> int:
    """Return the bin of a latency over SLO."""
    place = int(ratio / BIN_RATIO)
    if place < EVEN_BINS:
        return place
    beyond = int(log(ratio / (EVEN_BINS * BIN_RATIO)) / log(BINS_GROW))
    return min(EVEN_BINS + max(beyond, 0), BINS - 1)


def bin_end_ratio(place: int) -> float:
    """Upper edge of a bin, in SLOs."""
    if place < EVEN_BINS:
        return (place + 1) * BIN_RATIO
    return EVEN_BINS * BIN_RATIO * BINS_GROW ** (place + 1 - EVEN_BINS)


@dataclass(frozen=True, slots=True)
class Latency:
    """Latency over SLO of the requests that ended in a result, as a histogram.

    Attributes:
        counts: number of requests in each bin of `bin_of`.
        mean, max_ratio: mean and maximum of latency over SLO.
    """

    counts: tuple[int, ...]
    mean: float
    max_ratio: float

    def quantile(self, ratio: float) -> float:
        """Return a quantile of latency over SLO, to half a bin; 0 without requests."""
        rank_count = ratio * sum(self.counts)
        seen = 0
        for i, count in enumerate(self.counts):
            seen += count
            if count and seen >= rank_count:
                if i == BINS - 1:
                    return self.max_ratio
                begin = bin_end_ratio(i - 1) if i else 0.0
                return min((begin + bin_end_ratio(i)) / 2, self.max_ratio)
        return 0.0


@dataclass(frozen=True, slots=True)
class Phases:
    """Phases of the requests' longest chains of stages, ms in total."""

    queue_ms: float
    start_ms: float  # cold starts, and the rest of starts under way
    transfer_ms: float
    execute_ms: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Counts:
    """Outcomes of requests, and their cost.

    Attributes:
        requests: number of requests that arrived; each is a hit, a miss or dropped.
        hits, misses: number of requests that ended within their SLO, or after it.
        dropped: number of requests that were given up, or still queued when no event could help.
        ran_dollars: cost of the requests' parts of the runs: run time times the configuration's
            price.
        ran_joules: energy of the runs above that of the idle cluster, by the scenario's `power`.
        latency: latency over SLO of hits and misses.
        missed: phases of the misses.
    """

    requests: int
    hits: int
    misses: int
    dropped: int
    ran_dollars: float
    ran_joules: float
    latency: Latency
    missed: Phases

    @property
    def hit_ratio(self) -> float:
        """Hits over requests; 0 without requests."""
        return self.hits / self.requests if self.requests else 0.0

    @property
    def ran_dollars_per_thousand(self) -> float:
        """Dollars per 1,000 requests for what ran; 0 without requests."""
        return 1000.0 * self.ran_dollars / self.requests if self.requests else 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkflowResult(Counts):
    """Result of one workflow."""

    namespace: str
    name: str
    slo_ms: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Result(Counts):
    """Result of a run: the counts are those of the requests that arrived after the warm-up.

    Attributes:
        policy, seed: policy and seed of the run.
        arrived: number of requests of the whole run, including the warm-up.
        simulated_ms: virtual time of the last event.
        steady_state: length of the warm-up that was left out, and the verdict on what follows.
        over_time: outcomes and cost by window of arrival, over the whole run.
        workflows: counts by workflow, in the order of the arrivals.
        idle_dollars: cost of what containers held while nothing ran in them: idle shares, starts,
            transfers. From the end of the warm-up to the last answer.
        bound_dollars: least cost of the same requests in time (`scheduler.search.cost_bound`); None
            without requests, or where those of a workflow cannot be in time.
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
    workflows: tuple[WorkflowResult, ...]
    idle_dollars: float
    bound_dollars: float | None
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

    def as_json(self) -> dict[str, Any]:
        """Return all but the wall times: equal runs give equal bytes."""
        values: dict[str, Any] = _as_json(self)
        del values["planning_s"], values["setup_s"]
        return values


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
    """Run of a container, as `Observers.on_span` receives it when the run begins.

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
    jobs: int
    cpu: int
    gpu_percent: int
    memory_mib: int
    cost_dollars: float


def _as_json(value: Any) -> Any:
    if is_dataclass(value) and not isinstance(value, type):
        return {item.name: _as_json(getattr(value, item.name)) for item in fields(value)}
    if isinstance(value, tuple):
        return [_as_json(item) for item in value]
    return value
