"""Workflows prepared for questions: per stage and GPU models, its tables and what follows it.

Everything is made when first asked for and kept as long as the documents it came from.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import inf

import numpy as np

from scheduler.model.catalogue import Catalogue, UnknownDocumentError
from scheduler.model.documents import Workflow
from scheduler.search.budget import normalised_lengths
from scheduler.search.dag import members, numbered
from scheduler.search.downstream import Tail, TailBuilder
from scheduler.search.errors import PlanningError
from scheduler.search.frontier import NOTHING, Frontier, pareto
from scheduler.search.planning_window import Horizon
from scheduler.search.rules import Rules
from scheduler.search.splitting import split
from scheduler.search.tables import FunctionTable, Tables

Models = frozenset[str] | None  # of GPUs; None: whatever is profiled


@dataclass(frozen=True, slots=True, eq=False)
class Option:
    """The stage at hand on one GPU model: its configurations, and what is planned after it."""

    table: FunctionTable
    tail: Tail


@dataclass(frozen=True, slots=True, eq=False)
class PreparedStage:
    """A stage ready to be planned, on at least one GPU model."""

    name: str
    function: str
    options: tuple[Option, ...]
    horizon: Horizon | None  # None: a function without a workflow
    slo_ms: float

    @property
    def tail(self) -> Tail:
        """What is planned after it, whatever the GPU model."""
        return self.options[0].tail

    def slack_ms(self, given_ms: float | None) -> float:
        """The time left: as given, or the workflow's own from this stage on."""
        if given_ms is not None:
            return given_ms
        return inf if self.horizon is None else (1.0 - self.horizon.before_ratio) * self.slo_ms

    def budget_ms(self, slack_ms: float | None) -> float | None:
        """Time for the stages planned; without a slack, the workflow's own from this stage on."""
        return slack_ms if self.horizon is None else self.horizon.budget_ms(self.slo_ms, slack_ms)


class PreparedWorkflow:
    """One workflow over the tables of one catalogue."""

    def __init__(self, workflow: Workflow, tables: Tables, rules: Rules) -> None:
        self.workflow = workflow
        self._tables = tables
        self._rules = rules
        self._names, self._dag = numbered(workflow)
        functions = {stage.name: stage.function for stage in workflow.spec.stages}
        self._functions = tuple(functions[name] for name in self._names)
        self._stages: dict[tuple[str, Models], PreparedStage] = {}
        self._builders: dict[Models, TailBuilder] = {}

    def still_holds(self, workflow: Workflow, tables: Tables) -> bool:
        """Whether nothing that this was made of has changed."""
        if workflow is not self.workflow and workflow.spec != self.workflow.spec:
            return False
        try:
            return all(tables.of(f) is self._tables.of(f) for f in set(self._functions))
        except UnknownDocumentError:
            return False

    def stage(self, name: str, models: Models = None) -> PreparedStage:
        """The stage of that name, prepared for a cluster with these GPU models.

        Raises:
            UnknownDocumentError: there is no such stage, or no profile of a stage ahead.
            PlanningError: a stage ahead is profiled on none of the models.
        """
        made = self._stages.get((name, models))
        if made is None:
            v = self.number(name)
            horizon = self._horizons[v]
            builder = self.builder(models)
            for w in members(horizon.ahead):
                builder.set_stage(w, union(self.tables(w, models)))
            join = builder.tail if self._rules.policy == "exact" else builder.unjoined
            tail = join(v, horizon.ahead)
            options = tuple(Option(table, tail) for table in self.tables(v, models))
            slo_ms = self.workflow.spec.slo.latency_ms
            made = PreparedStage(name, self._functions[v], options, horizon, slo_ms)
            self._stages[name, models] = made
        return made

    def number(self, name: str) -> int:
        """The stage's place in topological order, or an UnknownDocumentError."""
        if name not in self._names:
            raise UnknownDocumentError(
                f"workflow {'/'.join(self.workflow.key)} has no stage {name!r} (stages are "
                f"{', '.join(s.name for s in self.workflow.spec.stages)}); correct the pod's label"
            )
        return self._names.index(name)

    def name(self, v: int) -> str:
        """The name of a stage by its number."""
        return self._names[v]

    def function(self, v: int) -> str:
        """What a stage runs."""
        return self._functions[v]

    def tables(self, v: int, models: Models) -> tuple[FunctionTable, ...]:
        """A stage's function on each of the GPU models that it is profiled on."""
        return on_models(self._names[v], self._functions[v], self._tables, models)

    def builder(self, models: Models) -> TailBuilder:
        """What knows the frontiers on these GPU models."""
        builder = self._builders.get(models)
        if builder is None:
            builder = TailBuilder(self._dag, self._rules.expansions_max)
            self._builders[models] = builder
        return builder

    def before(self, v: int) -> list[int]:
        """The stages right before a stage."""
        return list(members(self._dag.before[v]))

    def left_from(self, v: int) -> list[int]:
        """A stage and all that follow it, in topological order."""
        return [v, *members(self._dag.following[v])]

    def budgets_ms(self) -> dict[str, tuple[float, float]]:
        """For each stage its part of the SLO: from when to when, ms from the arrival."""
        slo_ms = self.workflow.spec.slo.latency_ms
        shares = split(self._dag, self._lengths)
        return {
            name: (slo_ms * before, slo_ms * (before + own))
            for name, before, own in zip(
                self._names, shares.before_ratio, shares.own_ratio, strict=True
            )
        }

    def fastest_ms(self) -> float:
        """The least end-to-end time, every stage at its fastest, on the best GPU model."""
        fastest = [
            min(float(table.frontier.time_ms[0]) for table in self.tables(v, None))
            for v in range(len(self._names))
        ]
        return max(self._dag.longest_after(fastest))

    @cached_property
    def _lengths(self) -> list[float]:
        lengths = normalised_lengths([self._tables.of(f) for f in self._functions])
        return [float(length) for length in lengths]

    @cached_property
    def _horizons(self) -> tuple[Horizon, ...]:
        if self._rules.policy == "exact":
            return Horizon.over_all(self._dag, self._lengths)
        return Horizon.over_groups(self._dag, self._lengths, self._rules.group_size)


def on_models(
    stage: str, function: str, tables: Tables, models: Models
) -> tuple[FunctionTable, ...]:
    """The function's tables on these GPU models, or a PlanningError where there is none."""
    profiled = tables.of(function)
    found = tuple(t for t in profiled if models is None or t.model in models)
    if not found:
        raise PlanningError(
            f"stage {stage}: function {function} is profiled on "
            f"{', '.join(table.model for table in profiled)}, and the cluster has "
            f"{', '.join(sorted(models or ())) or 'no GPU'}; profile it on a model it has"
        )
    return found


def union(tables: Sequence[FunctionTable]) -> Frontier:
    """What is worth running on any of these GPU models."""
    if len(tables) == 1:
        return tables[0].frontier
    return pareto(
        np.concatenate([table.time_ms for table in tables]),
        np.concatenate([table.cost for table in tables]),
    )


class Workflows:
    """All workflows of a catalogue, prepared one stage at a time."""

    def __init__(
        self,
        catalogue: Catalogue,
        tables: Tables,
        rules: Rules,
        prepared: Mapping[tuple[str, str], PreparedWorkflow] | None = None,
    ) -> None:
        self._catalogue = catalogue
        self._tables = tables
        self._rules = rules
        self._functions: dict[tuple[str, Models], PreparedStage] = {}
        self._workflows = dict(prepared or {})

    def replaced(self, catalogue: Catalogue) -> "Workflows":
        """Those of another catalogue; what was prepared from unchanged documents is kept."""
        tables = self._tables.replaced(catalogue)
        kept = {
            key: prepared
            for key, prepared in list(self._workflows.items())
            if (workflow := catalogue.workflows.get(key)) is not None
            and prepared.still_holds(workflow, tables)
        }
        return Workflows(catalogue, tables, self._rules, kept)

    def function(self, name: str, models: Models) -> PreparedStage:
        """A function by itself: one stage that nothing follows, without an SLO."""
        made = self._functions.get((name, models))
        if made is None:
            tail = Tail(NOTHING)
            tables = on_models(name, name, self._tables, models)
            options = tuple(Option(table, tail) for table in tables)
            made = PreparedStage(name, name, options, None, inf)
            self._functions[name, models] = made
        return made

    def workflow(self, namespace: str, name: str) -> PreparedWorkflow:
        """The workflow, or an UnknownDocumentError."""
        made = self._workflows.get((namespace, name))
        if made is None:
            workflow = self._catalogue.workflow(namespace, name)
            made = PreparedWorkflow(workflow, self._tables, self._rules)
            self._workflows[namespace, name] = made
        return made
