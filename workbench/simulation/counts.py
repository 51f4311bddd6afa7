"""Outcomes of requests: sums and histograms in constant memory."""

from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from math import log
from typing import Any, Protocol

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


class EndedJob(Protocol):
    """Last job of a request, with the phases of its longest chain of stages."""

    queue_ms: float
    start_ms: float
    transfer_ms: float
    execute_ms: float


@dataclass(slots=True)
class Tally:
    """Outcomes of the requests of one workflow that arrived in one window."""

    hits: int = 0
    misses: int = 0
    dropped: int = 0
    ran_dollars: float = 0.0
    ran_joules: float = 0.0
    limit_dollars: float = 0.0  # the three below: of the stages that ran, see `CostSplit`
    batching_dollars: float = 0.0
    planning_dollars: float = 0.0
    counts: dict[int, int] = field(default_factory=dict)  # by bin of latency over SLO
    ratio_sum: float = 0.0
    max_ratio: float = 0.0
    queue_ms: float = 0.0
    start_ms: float = 0.0
    transfer_ms: float = 0.0
    execute_ms: float = 0.0

    @property
    def requests(self) -> int:
        """Number of requests that have ended."""
        return self.hits + self.misses + self.dropped

    def end(self, job: EndedJob, ratio: float) -> bool:
        """Count a request that ended with this job; return true if it met its SLO.

        Args:
            job: last job of the request.
            ratio: latency over SLO.
        """
        place = bin_of(ratio)
        self.counts[place] = self.counts.get(place, 0) + 1
        self.ratio_sum += ratio
        self.max_ratio = max(self.max_ratio, ratio)
        if ratio <= 1.0:
            self.hits += 1
            return True
        self.misses += 1
        self.queue_ms += job.queue_ms
        self.start_ms += job.start_ms
        self.transfer_ms += job.transfer_ms
        self.execute_ms += job.execute_ms
        return False

    def add(self, tally: "Tally") -> None:
        """Add the outcomes of another tally."""
        self.max_ratio = max(self.max_ratio, tally.max_ratio)
        for place, count in tally.counts.items():
            self.counts[place] = self.counts.get(place, 0) + count
        for name in _SUMS:
            setattr(self, name, getattr(self, name) + getattr(tally, name))


_SUMS = tuple(item.name for item in fields(Tally) if item.name not in {"counts", "max_ratio"})


def counts(tallies: Sequence[Tally]) -> dict[str, Any]:
    """Return the fields of `Counts` over several tallies."""
    total = Tally()
    for tally in tallies:
        total.add(tally)
    ended = total.hits + total.misses
    return {
        "requests": total.requests,
        "hits": total.hits,
        "misses": total.misses,
        "dropped": total.dropped,
        "ran_dollars": total.ran_dollars,
        "ran_joules": total.ran_joules,
        "latency": Latency(
            tuple(total.counts.get(place, 0) for place in range(BINS)),
            total.ratio_sum / ended if ended else 0.0,
            total.max_ratio,
        ),
        "missed": Phases(total.queue_ms, total.start_ms, total.transfer_ms, total.execute_ms),
    }
