"""Placement of a pool's processes on its GPUs: even spread against any placement.

    python -m studies.plans.processes [--samples N] [--out FILE]

The result is written to ``docs/processes.md`` and printed. It depends on the number of samples
alone.
"""

from collections.abc import Mapping, Sequence
from itertools import product
from pathlib import Path
from statistics import fmean
from typing import NamedTuple

import numpy as np
import typer
from numpy.typing import NDArray
from scipy.optimize import linprog
from scipy.sparse import lil_array

from scheduler.dispatch.pods import FunctionKey, Share
from scheduler.dispatch.scaling.pool_sizes import CLIENTS_MAX, PoolFunction, PoolGpu, pool_size
from scheduler.dispatch.scaling.sizing import PodPrices, Sizing, WorkflowLoad
from scheduler.model.catalogue import Catalogue
from scheduler.model.documents import OBJECTIVE
from scheduler.search.planner import Planner
from studies.page import REPOSITORY, markdown_table, write_page
from workbench.profiles.generated import samples as sample_documents
from workbench.simulation.scenario import Scenario
from workbench.simulation.scenario_catalogue import shaped
from workbench.simulation.workloads.paper import GAPS_MS, SETTINGS

PAGE = REPOSITORY / "docs" / "processes.md"
STUDIED = ("strict-light", "strict-normal", "strict-heavy", "relaxed-heavy")
MEMORIES_GIB = (40, 24, 16)
WAIT_RATIO = 0.05  # of a workflow's time, that the scaler spares for waits and transfers

Counts = NDArray[np.int64]


class StudiedPool(NamedTuple):
    """Functions of a pool, and the processes that its scaler wants on all of its GPUs."""

    functions: Mapping[FunctionKey, PoolFunction]
    gpu: PoolGpu
    slices: int
    processes: Mapping[FunctionKey, int]


def pool_of(setting: str, memory_gib: int) -> StudiedPool:
    """Return the pool of a setting at its mean rates."""
    scenario = Scenario(slo_factor=SETTINGS[setting].slo_factor, memory_mib=memory_gib * 1024)
    documents = Catalogue.of(sample_documents())
    catalogue = shaped(documents, scenario, tuple(documents.workflows))
    planner = Planner(catalogue)
    gap_ms = sum(GAPS_MS[SETTINGS[setting].load]) / 2
    loads = []
    for key, workflow in catalogue.workflows.items():
        margin_ratio = planner.workflow(*key).whole_margin(scenario.fleet).ratio
        limit_ms = workflow.spec.slo.latency_ms * (1.0 - WAIT_RATIO) / (1.0 + margin_ratio)
        loads.append(WorkflowLoad(workflow, 1.0 / gap_ms / len(catalogue.workflows), limit_ms))
    memory_mib = scenario.memory_mib - scenario.limits.server_context_mib
    prices = PodPrices(
        scenario.rules.prices, float(scenario.cpus), {scenario.gpu_models[0]: memory_mib}
    )
    functions = {}
    for name, size in Sizing(loads, dict(catalogue.profiles), prices).choice().items():
        point = size.configuration
        share = Share(size.gpu_model, point.cpu, point.gpu_percent, point.memory_mib)
        functions["default", name] = PoolFunction(share, size.busy_pods, OBJECTIVE, 1.0)
    gpu = PoolGpu(memory_mib, scenario.cpus)
    pool = pool_size(functions, gpu)
    wanted = {key: round(count * pool.slices) for key, count in pool.processes.items()}
    return StudiedPool(functions, gpu, pool.slices, wanted)


def evenly(pool: StudiedPool, order: Sequence[FunctionKey]) -> Counts:
    """Return (functions, GPUs) processes, placed one after the other.

    Each goes to the GPU with the fewest of its function, then with the most free memory; one that
    no GPU has memory for is left out.
    """
    keys = list(pool.functions)
    counts = np.zeros((len(keys), pool.slices), np.int64)
    free_mib = np.full(pool.slices, pool.gpu.memory_mib)
    for key in order:
        row, memory_mib = keys.index(key), pool.functions[key].share.memory_mib
        fits = np.flatnonzero((free_mib >= memory_mib) & (counts.sum(axis=0) < CLIENTS_MAX))
        if len(fits):
            gpu = min(fits, key=lambda gpu: (counts[row, gpu], -free_mib[gpu]))
            counts[row, gpu] += 1
            free_mib[gpu] -= memory_mib
    return counts


def served_percent(pool: StudiedPool, counts: Counts, demands: NDArray[np.int64]) -> float:
    """Return the most percent of GPUs that can run at once, of rows that arrive (functions,).

    Each GPU runs no more than its percent, its vCPUs and its processes; parts of runs count.
    """
    shares = [function.share for function in pool.functions.values()]
    functions, gpus = counts.shape
    limits = lil_array((2 * gpus + functions, functions * gpus))
    for (f, share), gpu in product(enumerate(shares), range(gpus)):
        column = f * gpus + gpu
        limits[gpu, column], limits[gpus + gpu, column] = share.gpu_percent, share.cpu
        limits[2 * gpus + f, column] = 1
    solution = linprog(
        -np.repeat([float(share.gpu_percent) for share in shares], gpus),
        A_ub=limits.tocsr(),
        b_ub=np.concatenate([np.full(gpus, 100.0), np.full(gpus, pool.gpu.cpus), demands]),
        bounds=[(0, int(count)) for count in counts.ravel()],
    )
    return float(-solution.fun)


def most_percent(pool: StudiedPool, demands: NDArray[np.int64]) -> float:
    """Return the same for any placement of all processes: as if the GPUs were one."""
    counts = [pool.processes[key] for key in pool.functions]
    percent = np.array([f.share.gpu_percent for f in pool.functions.values()], np.float64)
    cpus = np.array([f.share.cpu for f in pool.functions.values()], np.float64)
    solution = linprog(
        -percent,
        A_ub=np.vstack([percent, cpus]),
        b_ub=[100.0 * pool.slices, pool.gpu.cpus * pool.slices],
        bounds=[(0, int(min(*pair))) for pair in zip(counts, demands, strict=True)],
    )
    return float(-solution.fun)


def row_of(setting: str, memory_gib: int, samples: int) -> list[str]:
    """Format one pool."""
    pool, rng = pool_of(setting, memory_gib), np.random.default_rng(0)
    order = [key for key, count in pool.processes.items() for _ in range(count)]
    shuffled = [order[i] for i in rng.permutation(len(order))]
    largest_first = sorted(order, key=lambda key: -pool.functions[key].share.memory_mib)
    placements = [evenly(pool, shuffled), evenly(pool, largest_first)]
    busy_pods = [function.busy_pods for function in pool.functions.values()]
    percent = np.array([f.share.gpu_percent for f in pool.functions.values()])
    ratios: list[list[float]] = [[], [], []]
    for _ in range(samples):
        demands = rng.poisson(busy_pods)
        served = [served_percent(pool, counts, demands) for counts in placements]
        for ratio, part in zip(ratios, [*served, most_percent(pool, demands)], strict=True):
            ratio.append(part / float(percent @ demands))
    placed = [f"{int(counts.sum())}" for counts in placements]
    cells = [f"{100 * fmean(ratio):.2f}" for ratio in ratios]
    return [setting, f"{memory_gib}", f"{pool.slices}", f"{len(order)}", *placed, *cells]


def page(samples: int) -> str:
    """Format the whole page in Markdown."""
    rows = [row_of(*case, samples) for case in product(STUDIED, MEMORIES_GIB)]
    head = ["setting", "GiB of a GPU", "GPUs", "processes wanted"]
    head += ["placed, any order", "placed, largest first"]
    head += ["served, %", "served, largest first, %", "any placement at most, %"]
    return f"""\
# Placement of a pool's processes

<!-- Generated by `python -m studies.plans.processes`; change it there. -->

A process of a pool goes to the GPU with the fewest processes of its function, then with the most
free memory. A search could ask which functions should have how many processes on which GPU, so that
no GPU has percent and vCPUs free while rows wait whose processes are all elsewhere or busy. This
page bounds what such a search could gain.

The pool is the one that the scaler wants at the mean rates of a setting of the ESG paper. The rows
that could run at once are drawn from Poisson distributions with the busy pods as means, {samples}
times. *Served* is the part of their work that can run at once, by a linear program (HiGHS): each
GPU runs no more than its percent, its vCPUs and its processes. *Any placement* runs the processes
that the scaler wants as if all GPUs were one: no placement of them serves more. Profiles are
generated, not measured.

{markdown_table(head, rows, numeric=True)}

Where memory holds what the scaler wants, even spread serves all that any placement could. Where it
does not, a few processes find no GPU with enough memory left, and the loss is the difference of the
columns *served* and *any placement at most*: the most that a search could gain. The largest first
is worse. So the product has the even rule, and no search.
"""


def main(samples: int = 100, out: Path = PAGE) -> None:
    """Compare all pools, write the page and print it."""
    write_page(out, page(samples))


if __name__ == "__main__":
    typer.run(main)
