"""Workflows prepared for questions: per stage and GPU model, its table and what follows it.

Everything is made when first asked for and kept as long as the documents it came from.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from scheduler.model.catalogue import Catalogue, UnknownDocumentError
from scheduler.model.documents import Workflow
from scheduler.search.budget import budget_ratios, normalised_lengths
from scheduler.search.dag import members, numbered
from scheduler.search.errors import PlanningError
from scheduler.search.frontier import NOTHING
from scheduler.search.tables import FunctionTable, Tables
from scheduler.search.tail import Tail, TailBuilder


@dataclass(frozen=True, slots=True, eq=False)
class Option:
    """The stage at hand on one GPU model: its configurations, and all that follows."""

    table: FunctionTable
    tail: Tail


@dataclass(frozen=True, slots=True, eq=False)
class PreparedStage:
    """A stage ready to be planned; at least one GPU model has profiles of all stages left."""

    name: str
    function: str
    options: tuple[Option, ...]
    workflow: "PreparedWorkflow | None"

    def budget_ms(self) -> float | None:
        """The workflow's own budget from this stage on; None for a function without a workflow."""
        return None if self.workflow is None else self.workflow.budget_ms(self.name)


class PreparedWorkflow:
    """One workflow over the tables of one catalogue."""

    def __init__(self, workflow: Workflow, tables: Tables, expansions_max: int) -> None:
        self.workflow = workflow
        self._tables = tables
        self._expansions_max = expansions_max
        self._names, self._dag = numbered(workflow)
        functions = {stage.name: stage.function for stage in workflow.spec.stages}
        self._functions = tuple(functions[name] for name in self._names)
        self._stages: dict[str, PreparedStage] = {}
        self._builders: dict[str, TailBuilder] = {}
        self._ratios: list[float] | None = None

    def still_holds(self, workflow: Workflow, tables: Tables) -> bool:
        """Whether nothing that this was made of has changed."""
        if workflow is not self.workflow and workflow.spec != self.workflow.spec:
            return False
        try:
            return all(tables.of(f) is self._tables.of(f) for f in set(self._functions))
        except UnknownDocumentError:
            return False

    def stage(self, name: str) -> PreparedStage:
        """The stage of that name, prepared.

        Raises:
            UnknownDocumentError: there is no such stage, or no profile of a stage left.
            PlanningError: no GPU model has profiles of all the stages left.
        """
        made = self._stages.get(name)
        if made is None:
            if name not in self._names:
                raise UnknownDocumentError(
                    f"workflow {'/'.join(self.workflow.key)} has no stage {name!r} (stages are "
                    f"{', '.join(s.name for s in self.workflow.spec.stages)}); mend the pod's label"
                )
            v = self._names.index(name)
            options = tuple(
                Option(by_stage[v], self._builder(model, by_stage).tail(v))
                for model, by_stage in self._by_model([v, *members(self._dag.following[v])]).items()
            )
            made = PreparedStage(name, self._functions[v], options, self)
            self._stages[name] = made
        return made

    def budget_ms(self, name: str) -> float:
        """The SLO's part for a stage and all that follows it."""
        if self._ratios is None:
            models = self._by_model(range(len(self._names)))
            lengths = normalised_lengths(
                [[tables[v] for v in range(len(self._names))] for tables in models.values()]
            )
            self._ratios = budget_ratios(self._dag, lengths.tolist())
        return self.workflow.spec.slo.latency_ms * self._ratios[self._names.index(name)]

    def fastest_ms(self) -> float:
        """The least end-to-end time, every stage at its fastest, on the best GPU model."""
        stages = range(len(self._names))
        return min(
            max(self._dag.longest_after([float(tables[v].frontier.time_ms[0]) for v in stages]))
            for tables in self._by_model(stages).values()
        )

    def _by_model(self, stages: Iterable[int]) -> dict[str, dict[int, FunctionTable]]:
        """For each GPU model that all these stages are profiled on, their tables."""
        stages = list(stages)
        by_stage = {v: {t.model: t for t in self._tables.of(self._functions[v])} for v in stages}
        common = [
            m for m in by_stage[stages[0]] if all(m in models for models in by_stage.values())
        ]
        if not common:
            profiled = "; ".join(
                f"{self._functions[v]} on {', '.join(models)}" for v, models in by_stage.items()
            )
            raise PlanningError(
                f"workflow {'/'.join(self.workflow.key)}: no GPU model has profiles of all stages "
                f"left (profiled: {profiled}); profile them on one model"
            )
        return {m: {v: models[m] for v, models in by_stage.items()} for m in common}

    def _builder(self, model: str, by_stage: dict[int, FunctionTable]) -> TailBuilder:
        builder = self._builders.get(model)
        if builder is None:
            builder = self._builders[model] = TailBuilder(self._dag, self._expansions_max)
        for v, table in by_stage.items():
            builder.set_stage(v, table.frontier)
        return builder


class Workflows:
    """All workflows of a catalogue, prepared one stage at a time."""

    def __init__(
        self,
        catalogue: Catalogue,
        tables: Tables,
        expansions_max: int,
        prepared: Mapping[tuple[str, str], PreparedWorkflow] | None = None,
    ) -> None:
        self._catalogue = catalogue
        self._tables = tables
        self._expansions_max = expansions_max
        self._functions: dict[str, PreparedStage] = {}
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
        return Workflows(catalogue, tables, self._expansions_max, kept)

    def function(self, name: str) -> PreparedStage:
        """A function by itself: one stage that nothing follows, without an SLO."""
        made = self._functions.get(name)
        if made is None:
            tail = Tail(NOTHING, None, 0.0)
            options = tuple(Option(table, tail) for table in self._tables.of(name))
            made = self._functions[name] = PreparedStage(name, name, options, None)
        return made

    def workflow(self, namespace: str, name: str) -> PreparedWorkflow:
        """The workflow, or an UnknownDocumentError."""
        made = self._workflows.get((namespace, name))
        if made is None:
            workflow = self._catalogue.workflow(namespace, name)
            made = PreparedWorkflow(workflow, self._tables, self._expansions_max)
            self._workflows[namespace, name] = made
        return made
