"""Limits of the cost, and where the money goes, under the paper's settings and measured profiles.

    python -m studies.plans.limit [--requests R] [--seeds N] [--data DIR] [--jobs J]

Policy `warm` with reserved and with pooled pods, and INFless, serve the nine settings of the ESG
paper; with ``--data`` also workflows of models that others measured. What they pay is divided into
its parts, and stands beside B0 and the limits of `studies.limits`. Tables and waterfalls are
written to their part of ``docs/limit.md`` and its folder.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple

import numpy as np
import typer

from scheduler.model.catalogue import Catalogue
from scheduler.search.cost_bound import mean_bound_dollars, request_bounds_dollars
from studies.limits.clairvoyant import trace_bound_dollars
from studies.limits.keep_alive import by_share, kept_ready_ms, least_ready_ms
from studies.limits.whole_processes import NodeRoom, fewest_nodes, least_processes_dollars
from studies.page import REPOSITORY, made_by, markdown_table, update_document
from studies.plans.steps import measured
from studies.plans.warm import NODES, documents, scenario_of
from workbench.reports.points import Waterfall
from workbench.series.process_pool import process_pool
from workbench.simulation.cost_split import PARTS, CostSplit, mean_split
from workbench.simulation.engine import simulate
from workbench.simulation.loop import Observers
from workbench.simulation.result import Span
from workbench.simulation.scenario import Scenario
from workbench.simulation.scenario_catalogue import shaped
from workbench.simulation.workload import Arrivals
from workbench.simulation.workloads.paper import GAPS_MS, SETTINGS, Paper
from workbench.simulation.workloads.poisson import Poisson

DOCUMENT = REPOSITORY / "docs" / "limit.md"
MEASURED_PREFIX = "measured-"  # of marks
RESERVE_RATIO = 2.33  # more processes would be busy 1 % of the time
KINDS: Mapping[str, tuple[str, Mapping[str, Any]]] = {  # policy, changes of the scenario
    "reserved": ("warm", {}),
    "pooled": ("warm", {"pool": True}),
    "INFless": ("infless", {}),
}
MEASURED_ROOM = 4  # times the nodes that `studies.plans.steps` has for the load
HELD = ("reserved", "INFless")  # kinds whose idle pods are paid
FIGURES = {"": "limit.png", MEASURED_PREFIX: "limit-measured.png"}


@dataclass(frozen=True, slots=True)
class LimitGround:
    """Workflows under a load.

    Attributes:
        catalogue: workflows with the SLO of the setting, and profiles that the cluster can grant.
        rate_rps: requests per second of all workflows together; each has the same.
        workload: arrivals by seed.
    """

    catalogue: Catalogue
    scenario: Scenario
    rate_rps: float
    workload: Paper | Poisson

    def arrivals(self, seed: int) -> Arrivals:
        """Return the arrivals of a seed."""
        return self.workload.arrivals(tuple(self.catalogue.workflows), seed=seed)


class LimitCase(NamedTuple):
    """One run, or with the kind `LIMITS` the limits of its trace."""

    ground: str
    kind: str
    seed: int
    requests: int


LIMITS = "limits"


class PaidResult(NamedTuple):
    """Cost of a run in its parts.

    Attributes:
        split: parts of the cost over the limit.
        ready_ratios: idle time and starts of the whole run over the limit of its requests: as paid,
            the least for the same runs, and with ski rental; None where idle pods hold nothing.
    """

    hit_ratio: float
    split: CostSplit
    ready_ratios: tuple[float, float, float] | None


class LimitResult(NamedTuple):
    """Limits, dollars for each request.

    Attributes:
        trace: least cost of the trace, as if it had the same number of requests of each workflow.
        processes: whole processes.
        nodes: whole nodes with the memory of the processes.
        pooled_nodes: the same where idle processes hold memory alone.
        staffed: whole processes with a reserve; an estimate.
    """

    b0: float
    trace: float
    processes: float
    nodes: float
    pooled_nodes: float
    staffed: float


Outcomes = Mapping[LimitCase, PaidResult | LimitResult]


@cache
def paper_ground(setting: str) -> LimitGround:
    """Return one of the nine settings."""
    scenario = scenario_of(setting, NODES)
    load = SETTINGS[setting].load
    rate_rps = 1000.0 / (sum(GAPS_MS[load]) / 2)
    return LimitGround(_granted(documents(), scenario), scenario, rate_rps, Paper(load=load))


@cache
def measured_grounds(data: Path) -> dict[str, LimitGround]:
    """Return the measured profiles, under a load whose B0 is 0.15 nodes."""
    grounds = {}
    for name, profiles in measured(data).items():
        scenario = profiles.scenario.model_copy(update={"nodes": profiles.nodes(MEASURED_ROOM)})
        rate_rps = profiles.rate_rps
        grounds[name] = LimitGround(
            _granted(profiles.catalogue, scenario), scenario, rate_rps, Poisson(rate_rps=rate_rps)
        )
    return grounds


def _granted(catalogue: Catalogue, scenario: Scenario) -> Catalogue:
    return shaped(catalogue, scenario, tuple(catalogue.workflows))


def ground_of(name: str, data: Path | None) -> LimitGround:
    """Return a setting of the paper, or a measured one."""
    return paper_ground(name) if data is None else measured_grounds(data)[name]


# -- runs


def outcome_of(case: LimitCase, data: Path | None) -> PaidResult | LimitResult:
    """Run one case, or compute the limits of its trace."""
    ground = ground_of(case.ground, data)
    return limits(ground, case) if case.kind == LIMITS else paid(ground, case)


def paid(ground: LimitGround, case: LimitCase) -> PaidResult:
    """Run one case."""
    policy, changes = KINDS[case.kind]
    # The SLO of the ground's workflows is that of the setting already.
    scenario = ground.scenario.model_copy(update={**changes, "slo_factor": 1.0})
    spans: list[Span] = []
    result = simulate(
        scenario,
        ground.catalogue,
        ground.arrivals(case.seed),
        policy,
        seed=case.seed,
        requests=case.requests,
        observers=Observers(on_span=spans.append),
    )
    if result.split is None:
        raise AssertionError("each workflow can be in time under each setting")
    whole = result.since(0.0)
    ready = None
    if case.kind in HELD and whole.bound_dollars:
        minimum, rented = ready_dollars(ground.catalogue, spans)
        bound = whole.bound_dollars
        ready = (whole.idle_dollars / bound, minimum / bound, rented / bound)
    return PaidResult(result.hit_ratio, result.split.of_limit(), ready)


def ready_dollars(catalogue: Catalogue, spans: Sequence[Span]) -> tuple[float, float]:
    """Return the least cost of processes for these runs, and that of ski rental.

    All processes are ready at the begin, as in the simulation.
    """
    prices = {
        (span.function, span.cpu, span.gpu_percent): span.cost_dollars
        / (span.end_ms - span.execute_ms)
        for span in spans
    }
    runs = by_share(
        ((span.function, span.cpu, span.gpu_percent), span.begin_ms, span.end_ms) for span in spans
    )
    minimum = rented = 0.0
    for share, listed in runs.items():
        start_ms = catalogue.profile(share[0]).spec.cold_start_ms
        minimum += prices[share] * least_ready_ms(listed, start_ms, ready_at_ms=0.0)
        rented += prices[share] * kept_ready_ms(listed, start_ms, start_ms, ready_at_ms=0.0)
    return minimum, rented


def limits(ground: LimitGround, case: LimitCase) -> LimitResult:
    """Return the limits of a ground, for each request."""
    scenario, catalogue = ground.scenario, ground.catalogue
    prices = scenario.rules.prices
    rates_rps = dict.fromkeys(catalogue.workflows, ground.rate_rps / len(catalogue.workflows))
    shape = scenario.node_shapes[0]
    memory_mib = shape.memory_mib - scenario.limits.server_context_mib
    room = NodeRoom(shape.gpu_model, shape.gpus, shape.cpus, memory_mib)
    node_dollars = prices.request_cost_dollars(
        1000.0, shape.cpus, 100 * shape.gpus, 1, shape.gpu_model
    )
    bounds = request_bounds_dollars(catalogue, prices, scenario.fleet)
    b0, times_ms = mean_bound_dollars(bounds), _times_ms(ground, case)
    trace = trace_bound_dollars(catalogue, times_ms, prices)
    of_trace = sum(bounds[key] * len(listed) for key, listed in times_ms.items())
    second = {
        "processes": least_processes_dollars(catalogue, rates_rps, prices),
        "nodes": node_dollars * fewest_nodes(catalogue, rates_rps, room),
        "pooled_nodes": node_dollars * fewest_nodes(catalogue, rates_rps, room, pooled=True),
        "staffed": least_processes_dollars(
            catalogue, rates_rps, prices, reserve_ratio=RESERVE_RATIO
        ),
    }
    return LimitResult(
        b0=b0,
        trace=b0 * trace / of_trace,
        **{name: dollars / ground.rate_rps for name, dollars in second.items()},
    )


def _times_ms(ground: LimitGround, case: LimitCase) -> dict[tuple[str, str], Sequence[float]]:
    """Return the arrivals of each workflow."""
    arrivals = ground.arrivals(case.seed)
    times, numbers = [], []
    for times_ms, indices in arrivals.chunks():
        times.append(times_ms)
        numbers.append(indices)
        if sum(map(len, times)) >= case.requests:
            break
    all_ms = np.concatenate(times)[: case.requests]
    indices = np.concatenate(numbers)[: case.requests]
    return {key: all_ms[indices == i].tolist() for i, key in enumerate(arrivals.workflows)}


# -- page


def mean_limits(outcomes: Outcomes, ground: str) -> LimitResult:
    """Return the means over the seeds."""
    listed = [
        outcome
        for case, outcome in outcomes.items()
        if case.ground == ground and isinstance(outcome, LimitResult)
    ]
    return LimitResult(*map(fmean, zip(*listed, strict=True)))


def mean_paid(outcomes: Outcomes, ground: str, kind: str) -> PaidResult:
    """Return the means over the seeds."""
    listed = [
        outcome
        for case, outcome in outcomes.items()
        if (case.ground, case.kind) == (ground, kind) and isinstance(outcome, PaidResult)
    ]
    ready = [outcome.ready_ratios for outcome in listed if outcome.ready_ratios is not None]
    paid_ratio, minimum, rented = (
        (fmean(x) for x in zip(*ready, strict=True)) if ready else (0,) * 3
    )
    return PaidResult(
        fmean(outcome.hit_ratio for outcome in listed),
        mean_split([outcome.split for outcome in listed]),
        (paid_ratio, minimum, rented) if ready else None,
    )


def limits_table(outcomes: Outcomes, grounds: Sequence[str]) -> str:
    """Format the limits, and what the pods of the gateway pay, over B0."""
    rows = []
    for ground in grounds:
        known = mean_limits(outcomes, ground)
        ratios = [f"{x / known.b0:.2f}" for x in known[1:]]
        kinds = [f"{mean_paid(outcomes, ground, kind).split.paid:.2f}" for kind in KINDS]
        rows.append([ground, f"{1000 * known.b0:.4f}", *ratios, *kinds])
    head = ["", "B0, $ per 1,000", "trace", "processes", "nodes", "nodes, pooled", "*staffed*"]
    return markdown_table([*head, *(f"paid: {kind}" for kind in KINDS)], rows)


def split_table(outcomes: Outcomes, grounds: Sequence[str]) -> str:
    """Format hits, and the parts of what is paid over B0."""
    rows = []
    for ground in grounds:
        for kind in KINDS:
            result = mean_paid(outcomes, ground, kind)
            sizes = [size for _, size in result.split.parts()]
            cells = [f"{size:z.3f}" for size in (*sizes[:-1], result.split.paid, sizes[-1])]
            rows.append([ground, kind, f"{100 * result.hit_ratio:.1f}", *cells])
    return markdown_table(["", "pods", "in SLO, %", *PARTS[:-1], "paid", f"*{PARTS[-1]}*"], rows)


def ready_table(outcomes: Outcomes, grounds: Sequence[str]) -> str:
    """Format idle times and starts over B0: as paid, the least, and by ski rental."""
    rows = [
        [ground, kind, *(f"{ratio:.3f}" for ratio in ratios)]
        for ground in grounds
        for kind in HELD
        if (ratios := mean_paid(outcomes, ground, kind).ready_ratios) is not None
    ]
    return markdown_table(["", "pods", "starts and idle", "least", "ski rental"], rows)


def figure(outcomes: Outcomes, grounds: Sequence[str]) -> bytes:
    """Draw the waterfalls, a panel for each kind of pods."""
    from workbench.reports.waterfall import waterfalls_png  # noqa: PLC0415 - it imports matplotlib

    panels = {
        kind: [
            Waterfall(ground, tuple(mean_paid(outcomes, ground, kind).split.parts()))
            for ground in grounds
        ]
        for kind in KINDS
    }
    return waterfalls_png(panels, "over B0, the least cost of the same requests in time")


def cases_of(grounds: Sequence[str], requests: int, seeds: int) -> Iterator[LimitCase]:
    """Yield all runs, the limits first: they take longest."""
    for kind in (LIMITS, *KINDS):
        for ground in grounds:
            for seed in range(seeds):
                yield LimitCase(ground, kind, seed, requests)


def outcomes_of(
    grounds: Sequence[str], requests: int, seeds: int, jobs: int | None, data: Path | None = None
) -> Outcomes:
    """Run all cases."""
    cases = list(cases_of(grounds, requests, seeds))
    with process_pool(jobs) as pool:
        return dict(zip(cases, pool.map(outcome_of, cases, [data] * len(cases)), strict=True))


def main(
    *,
    requests: int = 2_500,
    seeds: int = 1,
    data: Path | None = None,
    jobs: int | None = None,
    document: Path = DOCUMENT,
) -> None:
    """Run all cases and write the document's parts; with ``data`` those of measured profiles."""
    options = f"--requests {requests} --seeds {seeds}"
    grounds, prefix = list(SETTINGS), ""
    if data is not None:
        grounds, prefix, options = (
            list(measured_grounds(data)),
            MEASURED_PREFIX,
            f"{options} --data DIR",
        )
    outcomes = outcomes_of(grounds, requests, seeds, jobs, data)
    blocks = {
        "how": f"{made_by(f'python -m studies.plans.limit {options}')}.\n",
        "limits": limits_table(outcomes, grounds),
        "split": split_table(outcomes, grounds),
        "ready": ready_table(outcomes, grounds),
    }
    update_document(document, blocks, prefix, {FIGURES[prefix]: figure(outcomes, grounds)})


if __name__ == "__main__":
    typer.run(main)
