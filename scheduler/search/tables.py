"""Profiles as arrays: one table per function and GPU model."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields, replace
from functools import cached_property
from itertools import compress
from math import sqrt
from typing import Self
from weakref import WeakValueDictionary

import numpy as np
from numpy.typing import NDArray

from scheduler.model.catalogue import Catalogue
from scheduler.model.documents import FunctionProfile, GpuProfile, GridPoint
from scheduler.model.fleet_capacity import FleetCapacity
from scheduler.model.plan import Configuration
from scheduler.search.frontiers.arrays import Floats, Integers, Records
from scheduler.search.frontiers.frontier import Frontier, pareto
from scheduler.search.frontiers.frontier_arrays import STAGE_ROW
from scheduler.search.margin import log_normal_spread_ratio
from scheduler.search.rules import Rules

_FLEETS_MAX = 64  # fleets for which the tables of one profile are cached


@dataclass(frozen=True, eq=False)
class FunctionTable:
    """The n configurations of a function on one GPU model, by rising cost per request.

    Attributes:
        model: name of the GPU model that NVML reports.
        configurations: (n,) the configurations themselves.
        time_ms: (n,) planned time of one batch: the mean, or the 95th percentile.
        latency_ms: (n,) mean time of one batch.
        cost: (n,) dollars per request, by the mean time.
        batch, cpu, gpu_percent, memory_mib: (n,) of the configurations.
        tie: (n,) rank by (gpu_percent, cpu, batch): the order of equal configurations.
        deviation_ratio: (n,) standard deviation / mean of the time of one batch.
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
    deviation_ratio: Floats

    @cached_property
    def rows(self) -> Records:
        """The configurations, for kernels: (n,) of STAGE_ROW."""
        rows = np.empty(len(self.cost), STAGE_ROW)
        for name in STAGE_ROW.fields or ():
            rows[name] = getattr(self, name)
        return rows

    @classmethod
    def of(cls, profile: GpuProfile, rules: Rules, unmeasured_p95_ratio: float | None) -> Self:
        """Create the table of one profile.

        Args:
            profile: profile of a function on one GPU model.
            rules: prices, and the times to plan with.
            unmeasured_p95_ratio: p95 / mean of configurations without a measured p95; None: the
                function has no measured one.
        """
        rows = []
        for point in profile.configurations:
            c = Configuration(
                point.batch, point.cpu, point.gpu_percent, point.memory_mib, point.latency_ms
            )
            p95_ratio = unmeasured_p95_ratio
            if point.p95_ms is not None:
                p95_ratio = point.p95_ms / point.latency_ms
            time_ms, deviation_ratio = point.latency_ms, rules.spread_ratio
            if p95_ratio is not None:
                deviation_ratio = log_normal_spread_ratio(p95_ratio)
                if rules.latency == "p95":
                    time_ms = point.p95_ms or point.latency_ms * p95_ratio
            cost = rules.prices.request_cost_dollars(
                c.latency_ms, c.cpu, c.gpu_percent, c.batch, profile.model
            )
            rows.append((cost, time_ms, _tie(c), c, deviation_ratio))
        rows.sort(key=lambda row: row[:3])
        ordered = tuple(row[3] for row in rows)
        tie = np.empty(len(ordered), np.int64)
        tie[sorted(range(len(ordered)), key=lambda i: _tie(ordered[i]))] = np.arange(len(ordered))
        return cls(
            model=profile.model,
            configurations=ordered,
            time_ms=np.array([row[1] for row in rows], np.float64),
            latency_ms=np.array([c.latency_ms for c in ordered], np.float64),
            cost=np.array([cost for cost, *_ in rows], np.float64),
            batch=np.array([c.batch for c in ordered], np.int64),
            cpu=np.array([c.cpu for c in ordered], np.int64),
            gpu_percent=np.array([c.gpu_percent for c in ordered], np.int64),
            memory_mib=np.array([c.memory_mib for c in ordered], np.int64),
            tie=tie,
            deviation_ratio=np.array([row[4] for row in rows], np.float64),
        )

    def only(self, point: GridPoint) -> Self | None:
        """Return the table of this configuration alone, or None if the profile does not have it."""
        matches = (
            (self.batch == point.batch)
            & (self.cpu == point.cpu)
            & (self.gpu_percent == point.gpu_percent)
        )
        return self.marked(matches) if matches.any() else None

    def held_by(self, fleet: FleetCapacity) -> NDArray[np.bool_]:
        """Mark the configurations that some node of a fleet can hold."""
        fits = np.zeros(len(self.configurations), np.bool_)
        for size in fleet.of_model(self.model):
            cpu_milli = size.cpu_milli - fleet.other_cpu_milli
            fits |= (self.cpu * 1000 <= cpu_milli) & (self.memory_mib <= size.memory_mib)
        return fits & (self.gpu_percent <= fleet.percent_max)

    def marked(self, rows: NDArray[np.bool_]) -> Self:
        """Return the table of the marked configurations."""
        columns = {f.name: getattr(self, f.name) for f in fields(self) if f.name != "model"}
        configurations = tuple(compress(columns.pop("configurations"), rows.tolist()))
        arrays = {name: column[rows] for name, column in columns.items()}
        return replace(self, configurations=configurations, **arrays)

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
    def spread_ratio(self) -> float:
        """Root mean square of the deviations, over the configurations that plans use."""
        return sqrt(float((self.deviation_ratio[self._undominated] ** 2).mean()))

    @cached_property
    def planned_ratio(self) -> float:
        """Planned time / mean time, the mean over the same configurations."""
        return float((self.time_ms / self.latency_ms)[self._undominated].mean())

    @property
    def _undominated(self) -> NDArray[np.bool_]:
        """Mark the configurations that are faster than every cheaper one, or as fast."""
        return self.time_ms <= np.minimum.accumulate(self.time_ms)

    @cached_property
    def frontier(self) -> Frontier:
        """Frontier of the configurations, for plans in which this is a later stage."""
        return pareto(self.time_ms, self.cost)


def _tie(configuration: Configuration) -> tuple[int, int, int]:
    return configuration.gpu_percent, configuration.cpu, configuration.batch


def max_p95_ratio(profile: FunctionProfile) -> float | None:
    """Return the largest measured p95 / mean of a function; None without a measurement.

    It stands for the configurations whose p95 was not measured: they must not look faster, or less
    variable, than the measured ones.
    """
    ratios = (
        c.p95_ms / c.latency_ms
        for gpu in profile.spec.gpus
        for c in gpu.configurations
        if c.p95_ms is not None
    )
    return max(ratios, default=None)


class ProfileTables:
    """Tables of one profile, created on first use: one per GPU model.

    Fleets that can hold the same configurations share the tables of these.
    """

    def __init__(self, profile: FunctionProfile, rules: Rules) -> None:
        self.profile = profile
        self._rules = rules
        self._by_fleet: dict[FleetCapacity, tuple[FunctionTable, ...]] = {}
        self._parts: WeakValueDictionary[tuple[str, bytes], FunctionTable] = WeakValueDictionary()

    @cached_property
    def tables(self) -> tuple[FunctionTable, ...]:
        """One table per GPU model, in the order of the profile."""
        ratio = max_p95_ratio(self.profile)
        return tuple(FunctionTable.of(gpu, self._rules, ratio) for gpu in self.profile.spec.gpus)

    def held_by(self, fleet: FleetCapacity) -> tuple[FunctionTable, ...]:
        """Return what a fleet can hold; no table for a GPU model of which that is nothing."""
        tables = self._by_fleet.get(fleet)
        if tables is None:
            parts = (self._part(table, table.held_by(fleet)) for table in self.tables)
            tables = tuple(part for part in parts if part is not None)
            if len(self._by_fleet) >= _FLEETS_MAX:
                self._by_fleet.clear()
            self._by_fleet[fleet] = tables
        return tables

    def _part(self, table: FunctionTable, rows: NDArray[np.bool_]) -> FunctionTable | None:
        if rows.all():
            return table
        if not rows.any():
            return None
        key = table.model, rows.tobytes()
        part = self._parts.get(key)
        if part is None:
            part = self._parts[key] = table.marked(rows)
        return part


class Tables:
    """Tables of a catalogue's profiles."""

    def __init__(
        self,
        catalogue: Catalogue,
        rules: Rules,
        profiles: Mapping[str, ProfileTables] | None = None,
    ) -> None:
        self._catalogue = catalogue
        self._rules = rules
        self._profiles = dict(profiles or {})

    def of(self, function: str, fleet: FleetCapacity | None = None) -> tuple[FunctionTable, ...]:
        """Return the tables of a function, as far as a fleet can hold it; None: all that is there.

        Raises an UnknownDocumentError.
        """
        profile = self._of_profile(function)
        return profile.tables if fleet is None else profile.held_by(fleet)

    def discard(self, functions: Iterable[str]) -> None:
        """Discard the tables of functions whose profiles changed."""
        for function in functions:
            self._profiles.pop(function, None)

    def only(self, functions: Iterable[str]) -> "Tables":
        """Return the tables of these functions, which later changes of profiles do not affect."""
        profiled = self._catalogue.profiles.keys() & functions
        tables = {function: self._of_profile(function) for function in profiled}
        profiles = {function: entry.profile for function, entry in tables.items()}
        return Tables(Catalogue(profiles=profiles), self._rules, tables)

    def _of_profile(self, function: str) -> ProfileTables:
        entry = self._profiles.get(function)
        if entry is None:
            entry = ProfileTables(self._catalogue.profile(function), self._rules)
            self._profiles[function] = entry
        return entry
