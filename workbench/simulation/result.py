"""What a run came to: memory-flat aggregates, frozen, and the same for the same seed."""

from dataclasses import dataclass, field, fields, is_dataclass
from math import log
from typing import Any, NamedTuple

BIN_RATIO = 0.005  # width of a bin of latency over SLO, up to 10 SLOs
EVEN_BINS = 2_000  # of that width
BINS_GROW = 1.005  # beyond, each is so much wider than the one before
BINS = EVEN_BINS + 2_400  # up to 1.6 million SLOs; the last one has all beyond


def bin_of(ratio: float) -> int:
    """The bin of a latency over SLO."""
    place = int(ratio / BIN_RATIO)
    if place < EVEN_BINS:
        return place
    beyond = int(log(ratio / (EVEN_BINS * BIN_RATIO)) / log(BINS_GROW))
    return min(EVEN_BINS + max(beyond, 0), BINS - 1)


def bin_end(place: int) -> float:
    """Where a bin ends, and the next one begins, in SLOs."""
    if place < EVEN_BINS:
        return (place + 1) * BIN_RATIO
    return EVEN_BINS * BIN_RATIO * BINS_GROW ** (place + 1 - EVEN_BINS)


@dataclass(frozen=True, slots=True)
class Latency:
    """Latency over SLO of the requests that ended in a result, as a histogram.

    Attributes:
        counts: requests in each bin, see `bin_of`.
        mean, longest: of latency over SLO.
    """

    counts: tuple[int, ...]
    mean: float
    longest: float

    def quantile(self, ratio: float) -> float:
        """Latency over SLO that so many of the requests keep, to half a bin; 0 without requests."""
        wanted = ratio * sum(self.counts)
        seen = 0
        for i, count in enumerate(self.counts):
            seen += count
            if count and seen >= wanted:
                if i == BINS - 1:
                    return self.longest
                begin = bin_end(i - 1) if i else 0.0
                return min((begin + bin_end(i)) / 2, self.longest)
        return 0.0


@dataclass(frozen=True, slots=True)
class Phases:
    """Where time went on the requests' longest chains of stages, ms in total."""

    queue_ms: float
    start_ms: float  # cold starts, and the rest of starts under way
    transfer_ms: float
    execute_ms: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Counts:
    """How requests ended, and what they cost.

    Attributes:
        requests: that arrived; each is a hit, a miss or dropped.
        hits, misses: that ended within their SLO, or after it.
        dropped: given up, or still without room when nothing was left to happen.
        cost: dollars: the sum over all runs of run time times what they held.
        latency: over SLO, of hits and misses.
        missed: where the time of the misses went.
    """

    requests: int
    hits: int
    misses: int
    dropped: int
    cost: float
    latency: Latency
    missed: Phases

    @property
    def hit_ratio(self) -> float:
        """Hits over requests; 0 without requests."""
        return self.hits / self.requests if self.requests else 0.0

    @property
    def cost_per_1000(self) -> float:
        """Dollars per 1,000 requests; 0 without requests."""
        return 1000.0 * self.cost / self.requests if self.requests else 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkflowResult(Counts):
    """Of one workflow."""

    namespace: str
    name: str
    slo_ms: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Result(Counts):
    """Of a whole run.

    Attributes:
        policy, seed: of the run.
        simulated_ms: the virtual clock at the last event.
        workflows: the same by workflow, in the order of the arrivals.
        reserved_cost: dollars for what containers held while nothing ran in them: starts,
            transfers, and kept containers that were idle. Not in ``cost``.
        gpu_fill: the part of all GPUs' share that was held, in each bucket of time.
        gpu_fill_bucket_ms: the width of a bucket.
        runs: batches that ran.
        batch_mean: requests per run.
        cold_starts: runs that waited for a container started for them.
        prewarmed: containers started for a prediction.
        evictions: warm containers ended for want of memory.
        forced: runs of the forced minimum configuration.
        misses_of_room: looks at a queue that found no room.
        events: popped from the queue of events.
        planning_calls: how often the policy was asked.
        planning_s: wall time in the policy; not part of `as_json`, which is reproducible.
    """

    policy: str
    seed: int
    simulated_ms: float
    workflows: tuple[WorkflowResult, ...]
    reserved_cost: float
    gpu_fill: tuple[float, ...]
    gpu_fill_bucket_ms: float
    runs: int
    batch_mean: float
    cold_starts: int
    prewarmed: int
    evictions: int
    forced: int
    misses_of_room: int
    events: int
    planning_calls: int
    planning_s: float = field(compare=False)

    @property
    def reserved_per_1000(self) -> float:
        """Dollars per 1,000 requests for what was held while nothing ran; 0 without requests."""
        return 1000.0 * self.reserved_cost / self.requests if self.requests else 0.0

    @property
    def gpu_fill_mean(self) -> float:
        """The part of all GPUs' share that was held, over the whole run."""
        if not self.gpu_fill or not self.simulated_ms:
            return 0.0
        over_ms = self.gpu_fill_bucket_ms * (len(self.gpu_fill) - 1)
        last_ms = self.simulated_ms - over_ms
        over = self.gpu_fill_bucket_ms * sum(self.gpu_fill[:-1])
        return (over + last_ms * self.gpu_fill[-1]) / self.simulated_ms

    @property
    def runs_per_s(self) -> float:
        """Batches begun a second of the virtual clock."""
        return 1000.0 * self.runs / self.simulated_ms if self.simulated_ms else 0.0

    def as_json(self) -> dict[str, Any]:
        """All of it but wall times: equal runs give equal bytes."""
        shown = _as_json(self)
        del shown["planning_s"]
        return dict(shown)


class RequestRecord(NamedTuple):
    """One request at its end, as `simulate` hands it to ``on_request``."""

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
    cost: float  # dollars: its part of every run that served it


class Span(NamedTuple):
    """A container's run, as `simulate` hands it to ``on_span`` when it begins.

    From ``begin_ms`` on the container holds its share; it starts, its input arrives, and from
    ``execute_ms`` to ``end_ms`` it runs.
    """

    workflow: int
    stage: str
    function: str
    node: str
    gpu: str  # UUID
    container: int  # number
    begin_ms: float
    start_ms: float  # of the whole: how long the start takes
    transfer_ms: float
    execute_ms: float
    end_ms: float
    batch: int  # of the configuration
    jobs: int
    cpu: int
    gpu_percent: int
    memory_mib: int
    cost: float  # dollars


def _as_json(value: Any) -> Any:
    if is_dataclass(value) and not isinstance(value, type):
        return {each.name: _as_json(getattr(value, each.name)) for each in fields(value)}
    if isinstance(value, tuple):
        return [_as_json(each) for each in value]
    return value
