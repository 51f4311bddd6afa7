"""Reservation of leases for jobs with deadlines: earliest leases first, or an integer program."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import Bounds, LinearConstraint, milp
from scipy.sparse import coo_array

_BINARY_LIMIT = 0.5  # a binary variable of the solver is 1 above


@dataclass(frozen=True, slots=True)
class LeaseRequest:
    """Leases that a job needs to meet one of its deadlines.

    Attributes:
        gpus: number of GPUs in each lease.
        needed: number of leases.
        options: leases and value of each deadline: the number of leases before it from the first
            on, and what it is worth.
    """

    name: str
    gpus: int
    needed: int
    options: tuple[tuple[int, float], ...]

    @property
    def reachable(self) -> tuple[tuple[int, float], ...]:
        """Options with enough leases."""
        return tuple(option for option in self.options if option[0] >= self.needed)


@dataclass(slots=True)
class LeasePlan:
    """Reserved leases of each admitted job.

    Attributes:
        variables_max: size of the largest integer program that is solved.
        nodes_max: node limit of its search, so that the answer does not depend on the machine's
            speed.
        accepted: index of the deadline that each job has a guarantee for.
        leases: numbers of the reserved leases, by job.
    """

    variables_max: int
    nodes_max: int
    accepted: dict[str, int] = field(default_factory=dict)
    leases: dict[str, frozenset[int]] = field(default_factory=dict)

    def reserved(self, lease: int) -> frozenset[str]:
        """Return the jobs that hold a reservation of this lease."""
        return frozenset(name for name, leases in self.leases.items() if lease in leases)

    def update(self, first: int, requests: Sequence[LeaseRequest], capacity: int) -> None:
        """Shorten the reservations of admitted jobs to what they need, and admit others.

        Args:
            first: number of the first lease that can be reserved.
            requests: requests of all jobs with deadlines that have not ended.
            capacity: number of GPUs.
        """
        admitted = {r.name: self._guaranteed(r) for r in requests if r.name in self.accepted}
        current = {
            name: frozenset(
                sorted(lease - first for lease in self.leases[name] if lease >= first)[
                    : request.needed
                ]
            )
            for name, request in admitted.items()
        }
        new = [r for r in requests if r.name not in admitted and r.reachable and r.gpus <= capacity]
        deadlines, reservations = reserve_earliest(admitted, current, new, capacity)
        if len(deadlines) < len(new):
            all_requests = [*admitted.values(), *new]
            if variable_count(all_requests) <= self.variables_max:
                solved = solve(all_requests, len(admitted), capacity, self.nodes_max)
                if solved is not None and _value(solved[0], new) > _value(deadlines, new):
                    deadlines, reservations = solved
        self.accepted |= deadlines
        self.leases = {
            name: frozenset(first + lease for lease in leases)
            for name, leases in reservations.items()
        }

    def _guaranteed(self, request: LeaseRequest) -> LeaseRequest:
        """Return the request with the guaranteed deadline alone."""
        leases, value = request.options[self.accepted[request.name]]
        return replace(request, options=((leases, value),))


def rounded_gpus(gpus: int) -> int:
    """Return the next power of two: jobs of such sizes leave no gaps on nodes of such sizes."""
    return 1 << (gpus - 1).bit_length()


def reserve_earliest(
    admitted: dict[str, LeaseRequest],
    current: dict[str, frozenset[int]],
    new: Sequence[LeaseRequest],
    capacity: int,
) -> tuple[dict[str, int], dict[str, frozenset[int]]]:
    """Add new jobs to a plan, each in the earliest leases with room, for its best deadline.

    Returns:
        Deadline of each job that is admitted, and the leases of all.
    """
    horizon = max((r.options[-1][0] for r in (*admitted.values(), *new)), default=0)
    free = np.full(max(horizon, 1), capacity)
    for name, leases in current.items():
        free[sorted(leases)] -= admitted[name].gpus
    deadlines: dict[str, int] = {}
    reservations = dict(current)
    for request in new:
        for option in sorted(request.reachable, key=lambda option: -option[1]):
            earliest = np.flatnonzero(free[: option[0]] >= request.gpus)[: request.needed]
            if len(earliest) == request.needed:
                free[earliest] -= request.gpus
                deadlines[request.name] = request.options.index(option)
                reservations[request.name] = frozenset(earliest.tolist())
                break
    return deadlines, reservations


def variable_count(requests: Sequence[LeaseRequest]) -> int:
    """Return the size of the integer program."""
    return sum(len(r.options) + max(leases for leases, _ in r.options) for r in requests)


def solve(
    requests: Sequence[LeaseRequest], admitted_count: int, capacity: int, nodes_max: int
) -> tuple[dict[str, int], dict[str, frozenset[int]]] | None:
    """Admit the jobs of the largest total value; the first ``admitted_count`` are already.

    Returns:
        Deadline of each new job that is admitted, and the leases of all; None: no solution in time.
    """
    rows: list[tuple[list[int], list[float], float, float]] = []  # columns, factors, bounds
    values: list[float] = []
    lower: list[float] = []
    admits: list[list[int]] = []
    uses: list[list[int]] = []
    by_lease: dict[int, tuple[list[int], list[float]]] = {}
    for number, request in enumerate(requests):
        admit = list(range(len(values), len(values) + len(request.options)))
        values += [value for _, value in request.options]
        lower += [1.0 if number < admitted_count else 0.0] * len(admit)
        horizon = max(leases for leases, _ in request.options)
        use = list(range(len(values), len(values) + horizon))
        values += [0.0] * horizon
        lower += [0.0] * horizon
        needed = [-float(request.needed)] * len(admit)
        rows.append((admit, [1.0] * len(admit), 0.0, 1.0))
        rows.append((use + admit, [1.0] * horizon + needed, 0.0, 0.0))
        for column, (leases, _) in zip(admit, request.options, strict=True):
            columns = [*use[:leases], column]
            rows.append((columns, [1.0] * leases + needed[:1], 0.0, np.inf))
        for lease, column in enumerate(use):
            columns, gpus = by_lease.setdefault(lease, ([], []))
            columns.append(column)
            gpus.append(float(request.gpus))
        admits.append(admit)
        uses.append(use)
    rows += [(columns, gpus, 0.0, float(capacity)) for columns, gpus in by_lease.values()]
    answer = milp(
        -np.array(values),
        integrality=np.ones(len(values)),
        bounds=Bounds(np.array(lower), 1.0),
        constraints=_constraint(rows, len(values)),
        options={"node_limit": nodes_max},
    )
    if answer.x is None:
        return None
    picked: NDArray[np.bool_] = answer.x > _BINARY_LIMIT
    deadlines = {}
    reservations = {}
    for number, request in enumerate(requests):
        option = next((i for i, column in enumerate(admits[number]) if picked[column]), None)
        if option is not None:
            numbers = frozenset(i for i, column in enumerate(uses[number]) if picked[column])
            reservations[request.name] = numbers
            if number >= admitted_count:
                deadlines[request.name] = option
    return deadlines, reservations


def _constraint(
    rows: Sequence[tuple[list[int], list[float], float, float]], width: int
) -> LinearConstraint:
    columns, factors, low, high = zip(*rows, strict=True)
    lengths = [len(row) for row in columns]
    matrix = coo_array(
        (
            np.concatenate(factors),
            (np.repeat(np.arange(len(rows)), lengths), np.concatenate(columns)),
        ),
        shape=(len(rows), width),
    )
    return LinearConstraint(matrix.tocsr(), low, high)


def _value(deadlines: dict[str, int], requests: Sequence[LeaseRequest]) -> float:
    by_name = {request.name: request for request in requests}
    return sum(by_name[name].options[option][1] for name, option in deadlines.items())
