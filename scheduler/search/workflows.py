"""Workflows prepared for planning: tables and frontiers per stage and fleet.

Everything is created on first use and reused as long as its documents do not change. Fleets that
can hold the same configurations share it.
"""

from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from math import inf

import numpy as np

from scheduler.model.catalogue import Catalogue, UnknownDocumentError
from scheduler.model.document_fields import Metadata
from scheduler.model.documents import Slo, Stage, Workflow, WorkflowSpec
from scheduler.model.fleet_capacity import FleetCapacity
from scheduler.model.progress import InstanceProgress
from scheduler.search.chains.budget import normalised_lengths
from scheduler.search.chains.planning_window import PlanningWindow
from scheduler.search.chains.slo_split import split
from scheduler.search.dag import members, numbered
from scheduler.search.errors import PlanningError
from scheduler.search.frontiers.frontier import Frontier, pareto
from scheduler.search.margin import Margin
from scheduler.search.other_stages import OtherStages, RemainingStages, later_stages
from scheduler.search.prepared_stage import PreparedStage, fleet_tables, path_stage
from scheduler.search.rules import Rules
from scheduler.search.tables import FunctionTable, Tables
from scheduler.search.unfinished import UnfinishedStages

FLEETS_MAX = 8  # fleets with cached data, for each workflow


@dataclass(frozen=True, slots=True, eq=False)
class _PreparedFleet:
    """Data of one workflow for the fleets that can hold the same configurations."""

    tables: tuple[tuple[FunctionTable, ...], ...]  # by stage
    remaining: RemainingStages
    stages: dict[str, PreparedStage] = field(default_factory=dict)


class PreparedWorkflow:
    """One workflow, or a function alone, over the tables of one catalogue."""

    def __init__(self, workflow: Workflow, tables: Tables, rules: Rules) -> None:
        self.workflow = workflow
        self._tables = tables
        self._rules = rules
        self._names, self._dag = numbered(workflow)
        functions = {stage.name: stage.function for stage in workflow.spec.stages}
        self._functions = tuple(functions[name] for name in self._names)
        self._fleets: dict[FleetCapacity | None, _PreparedFleet] = {}
        self._complete: set[FleetCapacity | None] = set()

    def is_prepared(self, fleet: FleetCapacity | None) -> bool:
        """Return true if `prepare` has been called for this fleet."""
        return fleet in self._complete

    def prepare(self, fleet: FleetCapacity | None) -> None:
        """Prepare all stages that can be planned for this fleet; any thread may call this."""
        for name in self._names:
            with suppress(UnknownDocumentError, PlanningError):  # each plan reports it again
                self.stage(name, fleet)
        self._complete.add(fleet)

    def stage(
        self, name: str, fleet: FleetCapacity | None = None, other_cpu_milli: int = 0
    ) -> PreparedStage:
        """Prepare a stage for a fleet; None: with everything that was profiled.

        The other containers of its pod take ``other_cpu_milli`` thousandths of a vCPU.

        Raises:
            UnknownDocumentError: the stage, or the profile of a stage ahead, does not exist.
            PlanningError: a stage ahead is profiled on none of the fleet's GPU models.
            NoNodeError: no node can hold any configuration of the stage, or of a stage ahead.
        """
        v = self.number(name)
        stages = self._prepared(fleet).stages
        stage = stages.get(name)
        if stage is None:
            function, window = self._functions[v], self._windows[v]
            slo_ms = self.workflow.spec.slo.latency_ms
            profiled, tables = self._tables.of(function), self.tables(v, fleet)
            for w in members(self._dag.following[v]):
                self.tables(w, fleet)
            other_stages = self._other_stages(v, fleet)
            margin = self._margin(v, fleet)
            stage = PreparedStage(
                name, function, profiled, tables, other_stages, window, slo_ms, margin
            )
            stages[name] = stage
        if fleet is None or not other_cpu_milli:
            return stage
        tables = fleet_tables(name, stage.function, self._tables, fleet.beside(other_cpu_milli))
        return replace(stage, tables=tables)

    def _prepared(self, fleet: FleetCapacity | None) -> _PreparedFleet:
        prepared = self._fleets.get(fleet)
        if prepared is None:
            tables = tuple(self._tables.of(function, fleet) for function in self._functions)
            cached = list(self._fleets.items())
            prepared = next((p for _, p in cached if p.tables == tables), None)
            if prepared is None:
                frontier = partial(self._frontier, fleet)
                prepared = _PreparedFleet(tables, RemainingStages(self._dag, frontier))
            if len(cached) >= FLEETS_MAX:
                oldest = cached[0][0]
                self._fleets.pop(oldest, None)
                self._complete.discard(oldest)
            self._fleets[fleet] = prepared
        return prepared

    def _other_stages(
        self, v: int, fleet: FleetCapacity | None
    ) -> Callable[[InstanceProgress, float], OtherStages]:
        """Return the function that finds the stages planned together with a stage.

        It raises a NoNodeError if no node can hold a sibling that has not begun.
        """
        if self._rules.policy == "esg":
            ahead = [self._frontier(fleet, w) for w in members(self._windows[v].ahead)]
            group = later_stages(ahead)
            return lambda _progress, _limit_ms: group
        prepared = self._prepared(fleet)
        remaining = prepared.remaining
        too_large = sum(1 << w for w, tables in enumerate(prepared.tables) if not tables)
        whole = remaining.others(v, UnfinishedStages.of(self._dag, v), inf)
        if (self._dag.related(v) | 1 << v).bit_count() == len(self._names):  # no siblings
            return lambda _progress, _limit_ms: whole

        def other_stages(progress: InstanceProgress, limit_ms: float) -> OtherStages:
            unfinished = self._unfinished(v, progress)
            for w in members(too_large & unfinished.mask & ~unfinished.running):
                self.tables(w, fleet)
            return remaining.others(v, unfinished, limit_ms)

        return other_stages

    def _unfinished(self, v: int, progress: InstanceProgress) -> UnfinishedStages:
        numbers = {name: w for w, name in enumerate(self._names)}
        ended = sum(1 << numbers[name] for name in progress.ended if name in numbers)
        running_ms = progress.running_ms.items()
        return UnfinishedStages.of(
            self._dag,
            v,
            ended,
            {numbers[name]: ms for name, ms in running_ms if name in numbers},
            is_known=progress.is_known,
        )

    def _frontier(self, fleet: FleetCapacity | None, v: int) -> Frontier:
        """Return the frontier of one stage on a fleet.

        A sibling that no node can hold may have begun. In recorded completions it is as profiled.
        """
        tables = self._prepared(fleet).tables[v] or self._tables.of(self._functions[v])
        if len(tables) == 1:
            return tables[0].frontier
        return pareto(
            np.concatenate([table.time_ms for table in tables]),
            np.concatenate([table.cost for table in tables]),
        )

    def number(self, name: str) -> int:
        """Return the topological number of a stage, or raise an UnknownDocumentError."""
        if name not in self._names:
            raise UnknownDocumentError(
                f"workflow {'/'.join(self.workflow.key)} has no stage {name!r} (stages are "
                f"{', '.join(s.name for s in self.workflow.spec.stages)}); correct the name"
            )
        return self._names.index(name)

    def name(self, v: int) -> str:
        """Return the name of a stage."""
        return self._names[v]

    def function(self, v: int) -> str:
        """Return the function of a stage."""
        return self._functions[v]

    def tables(self, v: int, fleet: FleetCapacity | None) -> tuple[FunctionTable, ...]:
        """Return the tables of a stage's function with what a fleet can hold; raises as `stage`."""
        tables = self._prepared(fleet).tables[v]
        return tables or fleet_tables(self._names[v], self._functions[v], self._tables, fleet)

    def before(self, v: int) -> list[int]:
        """Return the direct predecessors of a stage."""
        return list(members(self._dag.before[v]))

    def unfinished(self, v: int) -> list[int]:
        """Return a stage and all others that need not have ended, in topological order."""
        return list(members(UnfinishedStages.of(self._dag, v).mask))

    def budgets_ms(self) -> dict[str, tuple[float, float]]:
        """Return the part of the SLO of each stage: start and end, ms from the arrival."""
        slo_ms = self.workflow.spec.slo.latency_ms
        shares = split(self._dag, self._lengths)
        return {
            name: (slo_ms * before, slo_ms * (before + own))
            for name, before, own in zip(
                self._names, shares.before_ratio, shares.own_ratio, strict=True
            )
        }

    def fastest_ms(self, fleet: FleetCapacity | None = None) -> float:
        """Return the end-to-end time with every stage at its fastest, on the best GPU model."""
        fastest = [
            min(float(table.frontier.time_ms[0]) for table in self.tables(v, fleet))
            for v in range(len(self._names))
        ]
        return max(self._dag.longest_after(fastest))

    def whole_margin(self, fleet: FleetCapacity | None = None) -> Margin:
        """Return the margin at the arrival of a request, by the longest path of the workflow."""
        remaining = self._dag.longest_after(self._lengths)
        return self._margin(remaining.index(max(remaining)), fleet)

    def _margin(self, v: int, fleet: FleetCapacity | None) -> Margin:
        remaining = self._dag.longest_after(self._lengths)
        path = [v]
        while following := list(members(self._dag.following[path[-1]])):
            path.append(max(following, key=lambda w: remaining[w]))
        unfinished = UnfinishedStages.of(self._dag, v).mask
        # Plans stretch a stage that has longer siblings into the time that these take.
        longest = max(remaining[w] for w in members(unfinished))
        lengths = [self._lengths[w] for w in path]
        lengths[0] += longest - remaining[v]
        stages = [
            path_stage(length / longest, self.tables(w, fleet))
            for w, length in zip(path, lengths, strict=True)
        ]
        paths = self._dag.paths(unfinished)
        return Margin(stages, self.workflow.spec.slo.objective, paths)

    @cached_property
    def _lengths(self) -> list[float]:
        lengths = normalised_lengths([self._tables.of(f) for f in self._functions])
        return [float(length) for length in lengths]

    @cached_property
    def _windows(self) -> tuple[PlanningWindow, ...]:
        if self._rules.policy == "exact":
            return PlanningWindow.over_all(self._dag, self._lengths)
        return PlanningWindow.over_groups(self._dag, self._lengths, self._rules.group_size)


def _alone(function: str) -> Workflow:
    """Return a workflow of one function without an SLO."""
    stage = Stage.model_construct(name=function, function=function)
    slo = Slo.model_construct(latency_ms=inf)
    spec = WorkflowSpec.model_construct(slo=slo, stages=(stage,))
    return Workflow.model_construct(metadata=Metadata.model_construct(name=function), spec=spec)


class Workflows:
    """All workflows of a catalogue, prepared stage by stage."""

    def __init__(self, catalogue: Catalogue, rules: Rules) -> None:
        self._catalogue = catalogue
        self._tables = Tables(catalogue, rules)
        self._rules = rules
        self._functions: dict[str, PreparedWorkflow] = {}
        self._workflows: dict[tuple[str, str], PreparedWorkflow] = {}

    def discard(self, workflows: Iterable[tuple[str, str]], functions: Iterable[str]) -> None:
        """Discard what was prepared from documents that changed since.

        Args:
            workflows: changed workflows, and those with a stage of one of ``functions``.
            functions: functions whose profiled configurations changed.
        """
        functions = list(functions)
        self._tables.discard(functions)
        for function in functions:
            self._functions.pop(function, None)
        for key in workflows:
            self._workflows.pop(key, None)

    def function(self, name: str) -> PreparedWorkflow:
        """Return a function alone as a workflow, or raise an UnknownDocumentError."""
        prepared = self._functions.get(name)
        if prepared is None:
            self._catalogue.profile(name)
            prepared = PreparedWorkflow(_alone(name), self._tables.only([name]), self._rules)
            self._functions[name] = prepared
        return prepared

    def workflow(self, namespace: str, name: str) -> PreparedWorkflow:
        """Return a prepared workflow, or raise an UnknownDocumentError."""
        prepared = self._workflows.get((namespace, name))
        if prepared is None:
            workflow = self._catalogue.workflow(namespace, name)
            tables = self._tables.only(stage.function for stage in workflow.spec.stages)
            prepared = PreparedWorkflow(workflow, tables, self._rules)
            self._workflows[namespace, name] = prepared
        return prepared
