"""The planner's question put to CP-SAT and to HiGHS, for workflows too large for brute force.

It shares no code with ``scheduler.search``: each stage takes one option, starts after those before
it have ended, and the last must end in time. Both solvers are asked until nothing better can be
there, in whole numbers, so that no tolerance of theirs decides.
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
from tests.search.naive import stages_left


@dataclass(frozen=True)
class Problem:
    """The stages left, the stage at hand first, each after those before it.

    Attributes:
        before: for each stage, those right before it.
        times, costs: for each stage, of its options, in units in which they are whole numbers.
        limit: of the time for all stages.
    """

    before: tuple[tuple[int, ...], ...]
    times: tuple[tuple[int, ...], ...]
    costs: tuple[tuple[int, ...], ...]
    limit: int

    @classmethod
    def of(
        cls,
        catalogue: Catalogue,
        stage: str,
        limit_ms: float,
        prices: Prices,
        *,
        per_ms: int,
        per_dollar: float,
    ) -> Self:
        """All stages from this one on of workflow "w"; every function on one GPU model."""
        workflow = catalogue.workflow("default", "w")
        stages = stages_left(workflow.spec.stages, stage)
        number = {each.name: v for v, each in enumerate(stages)}
        gpus = [catalogue.profile(each.function).spec.gpus[0] for each in stages]
        return cls(
            before=tuple(tuple(number[p] for p in s.after if p in number) for s in stages),
            times=tuple(
                tuple(round(c.latency_ms * per_ms) for c in gpu.configurations) for gpu in gpus
            ),
            costs=tuple(
                tuple(
                    round(
                        per_dollar
                        * prices.request_cost_dollars(c.latency_ms, c.cpu, c.gpu_percent, c.batch)
                    )
                    for c in gpu.configurations
                )
                for gpu in gpus
            ),
            limit=int(limit_ms * per_ms),
        )


class Solver(Protocol):
    """Answers one problem, again and again with fewer options of the stage at hand."""

    def least(self) -> tuple[int, int] | None:
        """The least cost and the option of the stage at hand; None where nothing is in time."""

    def forbid(self, first: int) -> None:
        """Take one option of the stage at hand away."""


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

    def least(self) -> tuple[int, int] | None:
        status = self._solver.solve(self._model)
        if status == cp_model.INFEASIBLE:
            return None
        assert status == cp_model.OPTIMAL, self._solver.status_name()
        first = [self._solver.boolean_value(x) for x in self._choice[0]].index(True)
        return round(self._solver.objective_value), first

    def forbid(self, first: int) -> None:
        self._model.add(self._choice[0][first] == 0)


class Highs:
    """Mixed-integer programming: a variable an option, then the start of each stage."""

    def __init__(self, problem: Problem) -> None:
        count = sum(map(len, problem.times))
        columns = count + len(problem.times)
        option = np.split(np.arange(count), np.cumsum([len(t) for t in problem.times])[:-1])
        rows: list[dict[int, float]] = []
        least: list[float] = []
        for v, before in enumerate(problem.before):
            rows.append(dict.fromkeys(option[v].tolist(), 1.0))
            least.append(1.0)
            for p in before:
                taken = dict(zip(option[p].tolist(), problem.times[p], strict=True))
                rows.append({count + v: 1.0, count + p: -1.0} | {o: -t for o, t in taken.items()})
                least.append(0.0)
            taken = dict(zip(option[v].tolist(), problem.times[v], strict=True))
            rows.append({count + v: -1.0} | {o: -t for o, t in taken.items()})
            least.append(-problem.limit - 0.5)  # times are whole: half of one is no time
        matrix = lil_array((len(rows), columns))
        for at, row in enumerate(rows):
            for column, value in row.items():
                matrix[at, column] = value
        most = np.where(np.array(least) == 1.0, 1.0, np.inf)
        self._constraints = LinearConstraint(matrix.tocsr(), np.array(least), most)
        self._cost = np.zeros(columns)
        self._cost[:count] = _flat(problem.costs)
        self._integrality = np.arange(columns) < count
        self._most = np.where(self._integrality, 1.0, np.inf)
        self._first = option[0]

    def least(self) -> tuple[int, int] | None:
        found = milp(
            self._cost,
            constraints=self._constraints,
            integrality=self._integrality,
            bounds=Bounds(0.0, self._most),
            options={"mip_rel_gap": 0.0},
        )
        if found.x is None:
            return None
        assert found.status == 0, found.message
        return round(found.fun), int(found.x[self._first].argmax())

    def forbid(self, first: int) -> None:
        self._most[first] = 0.0


def k_least(solver: Solver, k: int) -> list[int]:
    """The costs of the K cheapest completions that differ in the option of the stage at hand."""
    costs: list[int] = []
    while len(costs) < k and (answer := solver.least()) is not None:
        cost, first = answer
        costs.append(cost)
        solver.forbid(first)
    return costs


def _flat(lists: Sequence[Sequence[Any]]) -> list[Any]:
    return [item for items in lists for item in items]
