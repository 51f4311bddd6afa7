"""A function's profile on one GPU model as arrays, made once per profile and prices."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Self

import numpy as np

from scheduler.model.catalogue import Catalogue
from scheduler.model.documents import FunctionProfile, GpuProfile
from scheduler.model.plan import Configuration, Prices
from scheduler.search.arrays import Floats, Integers
from scheduler.search.frontier import Frontier, pareto


@dataclass(frozen=True, eq=False)
class FunctionTable:
    """The n configurations of a function on one GPU model, by rising cost per request.

    Attributes:
        model: NVML's name of the GPU.
        configurations: (n,) as answers show them.
        latency_ms, cost: (n,) of one batch; dollars per request.
        batch, cpu, gpu_percent, memory_mib: (n,).
        tie: (n,) rank by (gpu_percent, cpu, batch): the order among equals.
    """

    model: str
    configurations: tuple[Configuration, ...]
    latency_ms: Floats
    cost: Floats
    batch: Integers
    cpu: Integers
    gpu_percent: Integers
    memory_mib: Integers
    tie: Integers

    @classmethod
    def of(cls, profile: GpuProfile, prices: Prices) -> Self:
        """The table of one profile."""
        configurations = [
            Configuration(c.batch, c.cpu, c.gpu_percent, c.memory_mib, c.latency_ms)
            for c in profile.configurations
        ]
        priced = [
            (prices.per_request(c.latency_ms, c.cpu, c.gpu_percent, c.batch), c)
            for c in configurations
        ]
        priced.sort(key=lambda pc: (pc[0], pc[1].latency_ms, *_tie(pc[1])))
        ordered = tuple(c for _, c in priced)
        tie = np.empty(len(ordered), np.int64)
        tie[sorted(range(len(ordered)), key=lambda i: _tie(ordered[i]))] = np.arange(len(ordered))
        return cls(
            model=profile.model,
            configurations=ordered,
            latency_ms=np.array([c.latency_ms for c in ordered], np.float64),
            cost=np.array([cost for cost, _ in priced], np.float64),
            batch=np.array([c.batch for c in ordered], np.int64),
            cpu=np.array([c.cpu for c in ordered], np.int64),
            gpu_percent=np.array([c.gpu_percent for c in ordered], np.int64),
            memory_mib=np.array([c.memory_mib for c in ordered], np.int64),
            tie=tie,
        )

    @cached_property
    def frontier(self) -> Frontier:
        """What is worth running at a later stage: the configurations no other one beats."""
        return pareto(self.latency_ms, self.cost)


def _tie(configuration: Configuration) -> tuple[int, int, int]:
    return configuration.gpu_percent, configuration.cpu, configuration.batch


class Tables:
    """The tables of a catalogue's profiles, made when first asked for: one a GPU model."""

    def __init__(
        self,
        catalogue: Catalogue,
        prices: Prices,
        made: Mapping[str, tuple[FunctionProfile, tuple[FunctionTable, ...]]] | None = None,
    ) -> None:
        self._catalogue = catalogue
        self._prices = prices
        self._made = dict(made or {})

    def of(self, function: str) -> tuple[FunctionTable, ...]:
        """The function's tables, or an UnknownDocumentError."""
        made = self._made.get(function)
        if made is None:
            profile = self._catalogue.profile(function)
            made = profile, tuple(FunctionTable.of(gpu, self._prices) for gpu in profile.spec.gpus)
            self._made[function] = made
        return made[1]

    def replaced(self, catalogue: Catalogue) -> "Tables":
        """Those of another catalogue; the tables of profiles that did not change are kept."""
        kept = {}
        for function, (profile, tables) in list(self._made.items()):
            now = catalogue.profiles.get(function)
            if now is not None and (now is profile or now.spec == profile.spec):
                kept[function] = now, tables
        return Tables(catalogue, self._prices, kept)
