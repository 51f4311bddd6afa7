"""A function's profile on one GPU model as arrays, made once per profile and rules."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Self

import numpy as np

from scheduler.model.catalogue import Catalogue
from scheduler.model.documents import FunctionProfile, GpuProfile
from scheduler.model.plan import Configuration
from scheduler.search.arrays import Floats, Integers
from scheduler.search.frontier import Frontier, pareto
from scheduler.search.rules import Rules


@dataclass(frozen=True, eq=False)
class FunctionTable:
    """The n configurations of a function on one GPU model, by rising cost per request.

    Attributes:
        model: NVML's name of the GPU.
        configurations: (n,) as answers show them.
        time_ms: (n,) that one batch is planned to take: the mean, or the 95th percentile.
        latency_ms: (n,) that it takes in the mean.
        cost: (n,) dollars per request, by the mean.
        batch, cpu, gpu_percent, memory_mib: (n,).
        tie: (n,) rank by (gpu_percent, cpu, batch): the order among equals.
    """

    model: str
    configurations: tuple[Configuration, ...]
    time_ms: Floats
    latency_ms: Floats
    cost: Floats
    batch: Integers
    cpu: Integers
    gpu_percent: Integers
    memory_mib: Integers
    tie: Integers

    @classmethod
    def of(cls, profile: GpuProfile, rules: Rules) -> Self:
        """The table of one profile."""
        rows = []
        for point in profile.configurations:
            c = Configuration(
                point.batch, point.cpu, point.gpu_percent, point.memory_mib, point.latency_ms
            )
            time_ms = point.latency_ms
            if rules.latency == "p95" and point.p95_ms is not None:
                time_ms = point.p95_ms
            cost = rules.prices.request_cost_dollars(
                c.latency_ms, c.cpu, c.gpu_percent, c.batch, profile.model
            )
            rows.append((cost, time_ms, _tie(c), c))
        rows.sort(key=lambda row: row[:3])
        ordered = tuple(c for *_, c in rows)
        tie = np.empty(len(ordered), np.int64)
        tie[sorted(range(len(ordered)), key=lambda i: _tie(ordered[i]))] = np.arange(len(ordered))
        return cls(
            model=profile.model,
            configurations=ordered,
            time_ms=np.array([time_ms for _, time_ms, *_ in rows], np.float64),
            latency_ms=np.array([c.latency_ms for c in ordered], np.float64),
            cost=np.array([cost for cost, *_ in rows], np.float64),
            batch=np.array([c.batch for c in ordered], np.int64),
            cpu=np.array([c.cpu for c in ordered], np.int64),
            gpu_percent=np.array([c.gpu_percent for c in ordered], np.int64),
            memory_mib=np.array([c.memory_mib for c in ordered], np.int64),
            tie=tie,
        )

    @cached_property
    def frontier(self) -> Frontier:
        """What is worth running at a later stage: the configurations no other one beats."""
        return pareto(self.time_ms, self.cost)


def _tie(configuration: Configuration) -> tuple[int, int, int]:
    return configuration.gpu_percent, configuration.cpu, configuration.batch


class Tables:
    """The tables of a catalogue's profiles, made when first asked for: one a GPU model."""

    def __init__(
        self,
        catalogue: Catalogue,
        rules: Rules,
        made: Mapping[str, tuple[FunctionProfile, tuple[FunctionTable, ...]]] | None = None,
    ) -> None:
        self._catalogue = catalogue
        self._rules = rules
        self._made = dict(made or {})

    def of(self, function: str) -> tuple[FunctionTable, ...]:
        """The function's tables, or an UnknownDocumentError."""
        made = self._made.get(function)
        if made is None:
            profile = self._catalogue.profile(function)
            made = profile, tuple(FunctionTable.of(gpu, self._rules) for gpu in profile.spec.gpus)
            self._made[function] = made
        return made[1]

    def replaced(self, catalogue: Catalogue) -> "Tables":
        """Those of another catalogue; the tables of profiles that did not change are kept."""
        kept = {}
        for function, (profile, tables) in list(self._made.items()):
            now = catalogue.profiles.get(function)
            if now is not None and (now is profile or now.spec == profile.spec):
                kept[function] = now, tables
        return Tables(catalogue, self._rules, kept)
