"""Division of what a run pays: its least cost, and what was paid beyond it."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields


@dataclass(frozen=True, slots=True, kw_only=True)
class CostSplit:
    """Parts of the cost of a run, in dollars; all but the last add up to what was paid.

    Each run of a stage is compared with the configuration that the least cost of its workflow has
    there.

    Attributes:
        limit: least cost of the requests in time (`scheduler.search.cost_bound`).
        unserved: stages of dropped requests that never ran; not above 0.
        batching: least cost of the number of jobs in each run over the best batch, where a
            millisecond is worth what it saves in the limit. Not below 0.
        planning: configurations other than these, for example faster ones as a margin for noise;
            negative where they are slower, and cheaper.
        noise: run times other than the profile's: noise, neighbours, runs that failures ended.
        starts: cost of containers while they started.
        idle: cost of containers while nothing ran in them, transfers of inputs included.
        fragmentation: the rest of the nodes on which anything was held. It is paid where nodes are
            rented; the cost of a policy does not contain it.
    """

    limit: float
    unserved: float
    batching: float
    planning: float
    noise: float
    starts: float
    idle: float
    fragmentation: float

    @property
    def paid(self) -> float:
        """Cost of all that was set aside."""
        return self.rented - self.fragmentation

    @property
    def rented(self) -> float:
        """Cost of the whole nodes on which anything was held."""
        return sum(size for _, size in self.parts())

    def parts(self) -> Iterator[tuple[str, float]]:
        """Yield name and size of each part."""
        return ((name, getattr(self, name)) for name in PARTS)

    def per(self, requests: float) -> "CostSplit":
        """Return the parts for each of so many requests."""
        return CostSplit(**{name: size / requests for name, size in self.parts()})

    def of_limit(self) -> "CostSplit":
        """Return the parts over the limit, which becomes 1."""
        return self.per(self.limit)


PARTS = tuple(item.name for item in fields(CostSplit))


def mean_split(splits: Sequence[CostSplit]) -> CostSplit:
    """Return the mean of each part."""
    return CostSplit(
        **{name: sum(getattr(s, name) for s in splits) / len(splits) for name in PARTS}
    )
