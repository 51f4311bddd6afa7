"""Profiles as arrays: one table per function and GPU model."""

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Self

import numpy as np

from scheduler.model.catalogue import Catalogue
from scheduler.model.documents import FunctionProfile, GpuProfile, GridPoint
from scheduler.model.plan import Configuration
from scheduler.search.arrays import Floats, Integers
from scheduler.search.frontier import Frontier, pareto
from scheduler.search.rules import Rules


@dataclass(frozen=True, eq=False)
class FunctionTable:
    """The n configurations of a function on one GPU model, by rising cost per request.

    Attributes:
        model: name of the GPU model that NVML reports.
        configurations: (n,) the same as objects.
        time_ms: (n,) planned time of one batch: the mean, or the 95th percentile.
        latency_ms: (n,) mean time of one batch.
        cost: (n,) dollars per request, by the mean time.
        batch, cpu, gpu_percent, memory_mib: (n,).
        tie: (n,) rank by (gpu_percent, cpu, batch): the order of equal configurations.
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
        """Create the table of one profile."""
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

    def only(self, point: GridPoint) -> Self | None:
        """Return the table of this configuration alone, or None if the profile does not have it."""
        matches = (
            (self.batch == point.batch)
            & (self.cpu == point.cpu)
            & (self.gpu_percent == point.gpu_percent)
        )
        if not matches.any():
            return None
        row = int(matches.argmax())
        columns = {f.name: getattr(self, f.name) for f in fields(self) if f.name != "model"}
        return replace(self, **{name: column[row : row + 1] for name, column in columns.items()})

    def nearest(self, point: GridPoint) -> GridPoint:
        """Return the configuration whose numbers differ least from these, as ratios."""
        log_ratios = (
            np.abs(np.log(self.batch / point.batch))
            + np.abs(np.log(self.cpu / point.cpu))
            + np.abs(np.log(self.gpu_percent / point.gpu_percent))
        )
        c = self.configurations[int(log_ratios.argmin())]
        return GridPoint(batch=c.batch, cpu=c.cpu, gpu_percent=c.gpu_percent)

    @cached_property
    def frontier(self) -> Frontier:
        """Frontier of the configurations, for plans in which this is a later stage."""
        return pareto(self.time_ms, self.cost)


def _tie(configuration: Configuration) -> tuple[int, int, int]:
    return configuration.gpu_percent, configuration.cpu, configuration.batch


class Tables:
    """Tables of a catalogue's profiles, created on first use: one per GPU model."""

    def __init__(
        self,
        catalogue: Catalogue,
        rules: Rules,
        tables: Mapping[str, tuple[FunctionProfile, tuple[FunctionTable, ...]]] | None = None,
    ) -> None:
        self._catalogue = catalogue
        self._rules = rules
        self._tables = dict(tables or {})

    def of(self, function: str) -> tuple[FunctionTable, ...]:
        """Return the tables of a function, or raise an UnknownDocumentError."""
        entry = self._tables.get(function)
        if entry is None:
            profile = self._catalogue.profile(function)
            entry = profile, tuple(FunctionTable.of(gpu, self._rules) for gpu in profile.spec.gpus)
            self._tables[function] = entry
        return entry[1]

    def replaced(self, catalogue: Catalogue) -> "Tables":
        """Return the tables of another catalogue, reusing those of unchanged profiles."""
        unchanged = {}
        for function, (profile, tables) in list(self._tables.items()):
            current = catalogue.profiles.get(function)
            if current is not None and (current is profile or current.spec == profile.spec):
                unchanged[function] = current, tables
        return Tables(catalogue, self._rules, unchanged)
