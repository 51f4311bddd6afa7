"""Least price of whole processes, and fewest whole nodes, that serve constant rates in time.

Each function runs one configuration, share and batch, in a constant number of whole processes. The
batches fill at once and take the mean time of the profile; nothing waits. So without a reserve both
are bounds for such schedules, whatever places and dispatches. They are none for schedules that
change the number of their processes, or run several configurations of one function.

With a reserve they are estimates. Square-root staffing adds a multiple of the square root of the
busy processes for random arrivals: a multiple of 2.33 leaves 1 % of the time in which more of them
would be busy, if arrivals are Poisson's and there were no limit of their number. A schedule that
lets requests wait may need fewer.

HiGHS solves the choice of the configurations as a mixed-integer program.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import ceil, inf, sqrt
from typing import NamedTuple

import numpy as np
from scipy.optimize import Bounds, LinearConstraint, milp
from scipy.sparse import coo_array

from scheduler.model.catalogue import Catalogue
from scheduler.model.documents import FunctionProfile, ProfiledConfiguration
from scheduler.model.plan import Prices

WorkflowKey = tuple[str, str]
_ROUNDING = 1e-9  # of whole numbers of processes, and of times


@dataclass(frozen=True, slots=True)
class NodeRoom:
    """Room of a node, all of whose GPUs are alike.

    Attributes:
        memory_mib: memory of one GPU for processes.
    """

    gpu_model: str
    gpus: int
    cpus: int
    memory_mib: int


class ProcessOption(NamedTuple):
    """A configuration of a function at its rate.

    Attributes:
        busy: mean number of processes that run.
        processes: whole number of processes, with the reserve.
    """

    gpu_model: str
    configuration: ProfiledConfiguration
    busy: float
    processes: int


def options_of(
    profile: FunctionProfile, rate_rps: float, reserve_ratio: float
) -> list[ProcessOption]:
    """Return the configurations of a function with the processes that its rate needs.

    Args:
        profile: profile of the function.
        rate_rps: requests per second of all stages that run it.
        reserve_ratio: processes over the busy ones, in their square root.
    """
    options = []
    for gpu in profile.spec.gpus:
        for c in gpu.configurations:
            busy = rate_rps * c.latency_ms / 1000.0 / c.batch
            processes = ceil(busy + reserve_ratio * sqrt(busy) - _ROUNDING)
            options.append(ProcessOption(gpu.model, c, busy, processes))
    return options


def least_processes_dollars(
    catalogue: Catalogue,
    rates_rps: Mapping[WorkflowKey, float],
    prices: Prices,
    *,
    reserve_ratio: float = 0.0,
) -> float:
    """Return the least price of the processes for one second; inf where nothing is in time.

    Args:
        catalogue: workflows and the profiles of their functions.
        rates_rps: requests per second of each workflow.
        prices: prices of vCPUs and GPUs.
        reserve_ratio: reserve, as in `options_of`; with 0 the result is a bound.
    """
    choice = _ConfigurationChoice(catalogue, rates_rps, reserve_ratio)

    def dollars(option: ProcessOption) -> float:
        c = option.configuration
        dollars = prices.request_cost_dollars(1000.0, c.cpu, c.gpu_percent, 1, option.gpu_model)
        return option.processes * dollars

    return choice.minimum([[dollars(o) for o in options] for options in choice.options], [])


def fewest_nodes(
    catalogue: Catalogue,
    rates_rps: Mapping[WorkflowKey, float],
    room: NodeRoom,
    *,
    reserve_ratio: float = 0.0,
    pooled: bool = False,
) -> float:
    """Return the fewest nodes whose memory, vCPUs and GPU share hold the processes; inf: none.

    They are held in total, not on each GPU, of nodes that all have the same ``room``. With
    ``pooled``, processes hold vCPUs and share only while they run, as in a pool. The other
    arguments are those of `least_processes_dollars`.
    """
    choice = _ConfigurationChoice(catalogue, rates_rps, reserve_ratio, room.gpu_model)
    needs = []
    for options in choice.options:
        held = [o.busy if pooled else o.processes for o in options]
        pairs = list(zip(options, held, strict=True))
        gpus = [x * o.configuration.gpu_percent / 100 / room.gpus for o, x in pairs]
        cpus = [x * o.configuration.cpu / room.cpus for o, x in pairs]
        total_mib = room.gpus * room.memory_mib
        memory = [o.processes * o.configuration.memory_mib / total_mib for o in options]
        needs.append((gpus, cpus, memory))
    nothing = [[0.0] * len(options) for options in choice.options]
    return choice.minimum(nothing, [[need[i] for need in needs] for i in range(3)])


class _ConfigurationChoice:
    """Mixed-integer program: an option for each function, such that all workflows are in time.

    Attributes:
        options: options of each function.
    """

    def __init__(
        self,
        catalogue: Catalogue,
        rates_rps: Mapping[WorkflowKey, float],
        reserve_ratio: float,
        gpu_model: str | None = None,
    ) -> None:
        self._workflows = [w for key, w in catalogue.workflows.items() if rates_rps.get(key)]
        rates: dict[str, float] = {}
        for workflow in self._workflows:
            for stage in workflow.spec.stages:
                rates[stage.function] = rates.get(stage.function, 0.0) + rates_rps[workflow.key]
        self._index = {function: i for i, function in enumerate(rates)}
        self.options = [
            [
                option
                for option in options_of(catalogue.profile(function), rate, reserve_ratio)
                if gpu_model in (None, option.gpu_model)
            ]
            for function, rate in rates.items()
        ]

    def minimum(
        self, costs: Sequence[Sequence[float]], needs: Sequence[Sequence[Sequence[float]]]
    ) -> float:
        """Return the least sum of the costs, plus the fewest nodes.

        Args:
            costs: cost of each option of each function.
            needs: number of nodes that an option takes, by resource, function and option.
        """
        if not all(self.options):
            return inf
        offsets = np.cumsum([0, *map(len, self.options)]).tolist()
        count = offsets[-1]
        stages = [(w, stage) for w in self._workflows for stage in w.spec.stages]
        end_of = {(w.key, stage.name): count + i for i, (w, stage) in enumerate(stages)}
        nodes = count + len(stages)  # the last column
        rows: list[tuple[dict[int, float], float, float]] = [
            (dict.fromkeys(range(begin, end), 1.0), 1.0, 1.0) for begin, end in pairwise(offsets)
        ]
        for workflow, stage in stages:
            f = self._index[stage.function]
            times = {
                offsets[f] + i: -option.configuration.latency_ms
                for i, option in enumerate(self.options[f])
            }
            end = end_of[workflow.key, stage.name]
            rows.append(({**times, end: 1.0}, 0.0, np.inf))
            for before in stage.after:
                start = end_of[workflow.key, before]
                rows.append(({**times, end: 1.0, start: -1.0}, 0.0, np.inf))
        for need in needs:
            needed = {
                offsets[f] + i: -part
                for f, parts in enumerate(need)
                for i, part in enumerate(parts)
            }
            rows.append(({**needed, nodes: 1.0}, 0.0, np.inf))
        latest_ms = [w.spec.slo.latency_ms * (1.0 + _ROUNDING) for w, _ in stages]
        solved = milp(
            np.array([*(x for parts in costs for x in parts), *[0.0] * len(stages), 1.0]),
            integrality=np.array([1] * count + [0] * len(stages) + [1]),
            bounds=Bounds(0.0, np.array([1.0] * count + latest_ms + [np.inf])),
            constraints=_constraint(rows, nodes + 1),
            options={"mip_rel_gap": 0.0},
        )
        return float(solved.fun) if solved.success else inf


def _constraint(
    rows: Sequence[tuple[Mapping[int, float], float, float]], columns: int
) -> LinearConstraint:
    data = [(i, j, x) for i, (row, _, _) in enumerate(rows) for j, x in row.items()]
    places = tuple(np.array([entry[k] for entry in data]) for k in (0, 1))
    values = np.array([entry[2] for entry in data])
    matrix = coo_array((values, places), shape=(len(rows), columns)).tocsr()
    return LinearConstraint(matrix, [low for _, low, _ in rows], [high for _, _, high in rows])
