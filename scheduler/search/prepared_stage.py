"""A stage prepared for planning: its tables on a fleet, and the other stages of an instance."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from math import inf

from scheduler.model.documents import GridPoint
from scheduler.model.fleet_capacity import FleetCapacity
from scheduler.model.progress import InstanceProgress
from scheduler.search.chains.planning_window import PlanningWindow
from scheduler.search.errors import NoNodeError, PlanningError
from scheduler.search.margin import Margin, PathStage
from scheduler.search.other_stages import OtherStages
from scheduler.search.tables import FunctionTable, Tables


@dataclass(frozen=True, slots=True, eq=False)
class PreparedStage:
    """A stage ready for planning, with its tables on at least one GPU model.

    ``other_stages`` returns those that are planned together with it, within a time limit in ms.
    """

    name: str
    function: str
    profiled: tuple[FunctionTable, ...]  # whatever the fleet can hold
    tables: tuple[FunctionTable, ...]
    other_stages: Callable[[InstanceProgress, float], OtherStages]
    window: PlanningWindow
    slo_ms: float  # inf: a function without a workflow
    margin: Margin

    def only(self, point: GridPoint, fleet: FleetCapacity | None) -> "PreparedStage":
        """Return the stage with one configuration, on the GPU models that are profiled with it.

        Raises:
            PlanningError: no profile has this configuration.
            NoNodeError: no node of the fleet can hold it.
        """
        tables = _rows(self.tables, point)
        if tables:
            return replace(self, tables=tables)
        rows = _rows(self.profiled, point)
        row = next((row for row in rows if fleet and fleet.of_model(row.model)), None)
        if fleet is None or row is None:
            raise PlanningError(_no_such_configuration(self, point))
        refusal = fleet.refusal(row.model, row.configurations, "it")
        raise NoNodeError(
            f"no node can hold the configuration {point} of function {self.function}: {refusal}"
        )

    def slack_ms(self, requested_ms: float | None) -> float:
        """Return the requested slack, or by default the workflow's own from this stage on."""
        if requested_ms is not None:
            return requested_ms
        return (1.0 - self.window.before_ratio) * self.slo_ms

    def budget_ms(self, slack_ms: float | None) -> float | None:
        """Return the time for the planned stages; without a slack, the workflow's own."""
        return slack_ms if self.slo_ms == inf else self.window.budget_ms(self.slo_ms, slack_ms)


def _rows(tables: Sequence[FunctionTable], point: GridPoint) -> tuple[FunctionTable, ...]:
    return tuple(row for table in tables if (row := table.only(point)) is not None)


def _no_such_configuration(stage: PreparedStage, requested: GridPoint) -> str:
    nearest = " and ".join(f"{table.nearest(requested)} on {table.model}" for table in stage.tables)
    return (
        f"function {stage.function} has no configuration {requested} in its profile; the nearest "
        f"is {nearest}: request that, or profile it"
    )


def fleet_tables(
    stage: str, function: str, tables: Tables, fleet: FleetCapacity | None
) -> tuple[FunctionTable, ...]:
    """Return the function's tables with what a fleet can hold; raises if that is nothing."""
    function_tables = tables.of(function, fleet)
    if function_tables or fleet is None:
        return function_tables
    profiled = {table.model: table for table in tables.of(function)}
    model = next((model for model in fleet.models if model in profiled), None)
    if model is None:
        models = ", ".join(fleet.models)
        raise PlanningError(
            f"stage {stage}: function {function} is profiled on {', '.join(profiled)}, "
            + (f"not on {models}; profile it there" if models else "and the cluster has no GPU")
        )
    refusal = fleet.refusal(model, profiled[model].configurations)
    raise NoNodeError(f"stage {stage}: no node can hold function {function}: {refusal}")


def path_stage(weight: float, tables: Sequence[FunctionTable]) -> PathStage:
    """Return a stage of a path; it varies as on the GPU model with the most variation."""
    spread_ratio = max(table.spread_ratio for table in tables)
    planned_ratio = min(table.planned_ratio for table in tables)
    return PathStage(weight, spread_ratio, planned_ratio)
