"""Candidates as placement reads them, built once for each answer of a policy."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from scheduler.model.plan import MS_PER_HOUR, Candidate, Configuration, Prices
from scheduler.placement.candidates import CandidateTable
from scheduler.placement.fleet import Fleet

_ANSWERS_MAX = 65_536  # limits the memory under a policy that builds every answer again


class ContainerGrant:
    """Resources of a container: a configuration on one GPU model; one object for equal ones.

    Attributes:
        share: GPU model, vCPUs and percent, which are fixed when a container starts.
    """

    __slots__ = (
        "batch",
        "configuration",
        "cpu_milli",
        "dollars_per_ms",
        "gpu_model",
        "latency_ms",
        "memory_mib",
        "percent",
        "share",
    )

    def __init__(self, configuration: Configuration, gpu_model: str, prices: Prices) -> None:
        self.configuration = configuration
        self.gpu_model = gpu_model
        self.batch = configuration.batch
        self.cpu_milli = configuration.cpu * 1000
        self.percent = configuration.gpu_percent
        self.memory_mib = configuration.memory_mib
        self.latency_ms = configuration.latency_ms
        self.share = (gpu_model, configuration.cpu, configuration.gpu_percent)
        self.dollars_per_ms = (
            prices.request_cost_dollars(
                MS_PER_HOUR, configuration.cpu, configuration.gpu_percent, 1, gpu_model
            )
            / MS_PER_HOUR
        )


class ShareOffers(NamedTuple):
    """Candidates for containers of one share: these containers are warm for all of them.

    Attributes:
        indices: positions among all candidates, ascending.
        grant: grant of the first candidate in `indices`.
    """

    indices: tuple[int, ...]
    grant: ContainerGrant
    table: CandidateTable


class GrantOffers:
    """Candidates of a policy, best first, with their grants."""

    __slots__ = ("_fleet", "_shares", "candidates", "grants", "table")

    def __init__(
        self, fleet: Fleet, candidates: tuple[Candidate, ...], grants: tuple[ContainerGrant, ...]
    ) -> None:
        self.candidates = candidates
        self.grants = grants
        self.table = CandidateTable(fleet, candidates)
        self._fleet = fleet
        self._shares: tuple[ShareOffers, ...] | None = None

    @property
    def shares(self) -> tuple[ShareOffers, ...]:
        """Candidates by share, in the order of the first one of each."""
        if self._shares is None:
            by_share: dict[tuple[str, int, int], list[int]] = {}
            for index, grant in enumerate(self.grants):
                by_share.setdefault(grant.share, []).append(index)
            self._shares = tuple(map(self._of_share, by_share.values()))
        return self._shares

    def _of_share(self, indices: Sequence[int]) -> ShareOffers:
        candidates = [self.candidates[index] for index in indices]
        table = CandidateTable(self._fleet, candidates)
        return ShareOffers(tuple(indices), self.grants[indices[0]], table)


class GrantCache:
    """Offers and grants of one run."""

    def __init__(self, fleet: Fleet, prices: Prices) -> None:
        self._fleet = fleet
        self._prices = prices
        self._grants: dict[tuple[Configuration, str], ContainerGrant] = {}
        self._by_answer: dict[int, GrantOffers] = {}

    def grant(self, configuration: Configuration, gpu_model: str) -> ContainerGrant:
        """Return the grant of a configuration."""
        grant = self._grants.get((configuration, gpu_model))
        if grant is None:
            grant = ContainerGrant(configuration, gpu_model, self._prices)
            self._grants[configuration, gpu_model] = grant
        return grant

    def of(self, candidates: Sequence[Candidate]) -> GrantOffers:
        """Return the offers of an answer, built once while the policy returns the same object."""
        offers = self._by_answer.get(id(candidates))
        if offers is not None and offers.candidates is candidates:
            return offers
        if len(self._by_answer) >= _ANSWERS_MAX:
            self._by_answer.clear()
        offers = self.offers(candidates)
        if offers.candidates is candidates:  # a tuple: it stays what it is
            self._by_answer[id(candidates)] = offers
        return offers

    def offers(self, candidates: Iterable[Candidate]) -> GrantOffers:
        """Build offers."""
        listed = tuple(candidates)
        grants = tuple(self.grant(c.configuration, c.gpu_model) for c in listed)
        return GrantOffers(self._fleet, listed, grants)
