"""Models of the planner's problem for CP-SAT and HiGHS, for workflows too large for brute force.

They share no code with ``scheduler.search``. Each stage takes one option and starts after its
predecessors; the last stage must end in time. Both solvers prove optimality, in whole numbers, so
that no tolerance of theirs affects the result.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol, Self

import numpy as np
from ortools.sat.python import cp_model
from scipy.optimize import Bounds, LinearConstraint, milp
from scipy.sparse import lil_array

from scheduler.model.catalogue import Catalogue
from scheduler.model.plan import Prices
from scheduler.search.planner import PlanRequest
from tests.search.naive import unfinished_stages


@dataclass(frozen=True)
class Problem:
    """The unfinished stages, the current one first, each after its predecessors.

    Attributes:
        before: direct predecessors of each stage.
        times, costs: (stages, options) times and costs, in units in which they are whole numbers.
        limit: limit of the time of all stages.
    """

    before: tuple[tuple[int, ...], ...]
    times: tuple[tuple[int, ...], ...]
    costs: tuple[tuple[int, ...], ...]
    limit: int

    @classmethod
    def of(
        cls,
        catalogue: Catalogue,
        request: PlanRequest,
        limit_ms: float,
        prices: Prices,
        *,
        units_per_ms: int,
        units_per_dollar: float,
    ) -> Self:
        """Model the unfinished stages of workflow "w"; every function has one GPU model."""
        workflow = catalogue.workflow("default", "w")
        stages = unfinished_stages(workflow.spec.stages, request)
        number = {s.name: v for v, s in enumerate(stages)}
        gpus = [catalogue.profile(s.function).spec.gpus[0] for s in stages]
        return cls(
            before=tuple(tuple(number[p] for p in s.after if p in number) for s in stages),
            times=tuple(
                tuple(round(c.latency_ms * units_per_ms) for c in gpu.configurations)
                for gpu in gpus
            ),
            costs=tuple(
                tuple(
                    round(
                        units_per_dollar
                        * prices.request_cost_dollars(c.latency_ms, c.cpu, c.gpu_percent, c.batch)
                    )
                    for c in gpu.configurations
                )
                for gpu in gpus
            ),
            limit=int(limit_ms * units_per_ms),
        )


class Solver(Protocol):
    """Solves one problem, repeatedly with fewer options of the current stage."""

    def minimum(self) -> tuple[int, int] | None:
        """Return the minimum cost and the current stage's option; None if none is in time."""

    def forbid(self, first: int) -> None:
        """Remove one option of the current stage."""


class CpSat:
    """Constraint programming, one worker."""

    def __init__(self, problem: Problem) -> None:
        self._model = model = cp_model.CpModel()
        weighted_sum = cp_model.LinearExpr.weighted_sum
        self._choice = [[model.new_bool_var("") for _ in times] for times in problem.times]
        ends: list[cp_model.IntVar] = []
        for before, times, choice in zip(problem.before, problem.times, self._choice, strict=True):
            model.add_exactly_one(choice)
            end = model.new_int_var(0, problem.limit, "")
            model.add(end >= weighted_sum(choice, times))
            for p in before:
                model.add(end >= ends[p] + weighted_sum(choice, times))
            ends.append(end)
        model.minimize(weighted_sum(_flat(self._choice), _flat(problem.costs)))
        self._solver = cp_model.CpSolver()
        self._solver.parameters.num_workers = 1

    def minimum(self) -> tuple[int, int] | None:
        status = self._solver.solve(self._model)
        if status == cp_model.INFEASIBLE:
            return None
        assert status == cp_model.OPTIMAL, self._solver.status_name()
        first = [self._solver.boolean_value(x) for x in self._choice[0]].index(True)
        return round(self._solver.objective_value), first

    def forbid(self, first: int) -> None:
        self._model.add(self._choice[0][first] == 0)


class Highs:
    """Mixed-integer programming: a variable per option, then the start of each stage."""

    def __init__(self, problem: Problem) -> None:
        count = sum(map(len, problem.times))
        columns = count + len(problem.times)
        option = np.split(np.arange(count), np.cumsum([len(t) for t in problem.times])[:-1])
        rows: list[dict[int, float]] = []
        lower: list[float] = []
        for v, before in enumerate(problem.before):
            rows.append(dict.fromkeys(option[v].tolist(), 1.0))
            lower.append(1.0)
            for p in before:
                durations = dict(zip(option[p].tolist(), problem.times[p], strict=True))
                rows.append(
                    {count + v: 1.0, count + p: -1.0} | {o: -t for o, t in durations.items()}
                )
                lower.append(0.0)
            durations = dict(zip(option[v].tolist(), problem.times[v], strict=True))
            rows.append({count + v: -1.0} | {o: -t for o, t in durations.items()})
            lower.append(
                -problem.limit - 0.5
            )  # times are whole, so half a unit is within the rounding
        matrix = lil_array((len(rows), columns))
        for at, row in enumerate(rows):
            for column, value in row.items():
                matrix[at, column] = value
        upper = np.where(np.array(lower) == 1.0, 1.0, np.inf)
        self._constraints = LinearConstraint(matrix.tocsr(), np.array(lower), upper)
        self._cost = np.zeros(columns)
        self._cost[:count] = _flat(problem.costs)
        self._integrality = np.arange(columns) < count
        self._upper = np.where(self._integrality, 1.0, np.inf)
        self._first = option[0]

    def minimum(self) -> tuple[int, int] | None:
        solution = milp(
            self._cost,
            constraints=self._constraints,
            integrality=self._integrality,
            bounds=Bounds(0.0, self._upper),
            options={"mip_rel_gap": 0.0},
        )
        if solution.x is None:
            return None
        assert solution.status == 0, solution.message
        return round(solution.fun), int(solution.x[self._first].argmax())

    def forbid(self, first: int) -> None:
        self._upper[first] = 0.0


def k_lowest(solver: Solver, k: int) -> list[int]:
    """Return the costs of the K cheapest completions with distinct options of the current stage."""
    costs: list[int] = []
    while len(costs) < k and (answer := solver.minimum()) is not None:
        cost, first = answer
        costs.append(cost)
        solver.forbid(first)
    return costs


def _flat(lists: Sequence[Sequence[Any]]) -> list[Any]:
    return [item for items in lists for item in items]
