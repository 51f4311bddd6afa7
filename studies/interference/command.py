"""Interference between models on one GPU: errors of a fitted model, and what placement could gain.

    python -m studies.interference.command --data DIR [--seeds N] [--requests R] [--table FILE]

The model is fitted on gpulet's pairs, and tested on pairs that are held back. Its table slows runs
down in the simulator: as placed; as if each run had the neighbours that slow it down least, so that
no placement could choose better ones; and the reverse. The result is written to its parts of
``docs/interference.md``. ``--table`` writes the table as the `interference` of a scenario.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Annotated, Any, NamedTuple

import typer
import yaml

from studies.interference.errors import (
    PREDICTIONS,
    error_of,
    own_mean,
    without_model,
    without_pair,
)
from studies.interference.model import SlowdownModel, Solos
from studies.interference.pairs import MeasuredPair, read_pairs, read_solos
from studies.page import REPOSITORY, made_by, markdown_table, update_document
from studies.plans.steps import Profiles, measured
from workbench.simulation.engine import simulate
from workbench.simulation.workloads.poisson import Poisson

DOCUMENT = REPOSITORY / "docs" / "interference.md"
GROUND = "gpulet, RTX 2080 Ti, 24 GiB"  # with less memory a pool holds its shares
ROOM = 4  # times the nodes of `studies.plans.steps` for the load before the step
PODS: Mapping[str, Mapping[str, Any]] = {"reserved": {}, "pooled": {"pool": True}}

Table = dict[str, dict[str, float]]


class PlacedResult(NamedTuple):
    """Means over the seeds."""

    hit_ratio: float
    dollars_per_thousand: float


def error_table(pairs: Sequence[MeasuredPair], solos: Solos) -> str:
    """Format the errors of each prediction."""
    rows = []
    for name, fit in PREDICTIONS.items():
        errors = [error_of(fit, without_pair(pairs), solos)]
        if fit is not own_mean:  # a victim that was not measured has none
            errors.append(error_of(fit, without_model(pairs), solos))
        cells = [f"{100 * ratio:.1f}" for error in errors for ratio in error]
        rows.append([name, *cells, *["-"] * (4 - len(cells))])
    head = [
        "predicted slowdown",
        "two models held back: median, %",
        "p95, %",
        "a victim held back: median, %",
        "p95, %",
    ]
    return markdown_table(head, rows)


def neighbour_table(pairs: Sequence[MeasuredPair]) -> str:
    """Format the measured slowdowns by victim and neighbour."""
    slowdowns = defaultdict(list)
    for pair in pairs:
        slowdowns[pair.victim.model, pair.neighbour.model].append(pair.slowdown)
    others = sorted({neighbour for _, neighbour in slowdowns})
    rows = [
        [victim, *(f"{fmean(slowdowns[victim, neighbour]):.2f}" for neighbour in others)]
        for victim in sorted({victim for victim, _ in slowdowns})
    ]
    return markdown_table(["victim, beside", *others], rows)


def cases_of(table: Table) -> dict[str, Mapping[str, Any]]:
    """Return the changes of the scenario for each row: the slowdowns, and the placement."""
    return {
        "no interference": {},
        "as placed (`defrag`)": {"interference": table},
        "as placed by `pack`": {"interference": table, "placement": "pack"},
        "as placed by `spread`": {"interference": table, "placement": "spread"},
        "the mildest neighbours": {"interference": _with_each(table, min)},
        "the worst neighbours": {"interference": _with_each(table, max)},
    }


def _with_each(table: Table, choose: Any) -> Table:
    return {
        victim: dict.fromkeys(ratios, choose(ratios.values())) for victim, ratios in table.items()
    }


def placed(
    profiles: Profiles, changes: Mapping[str, Any], seeds: int, requests: int
) -> PlacedResult:
    """Serve a steady load."""
    scenario = profiles.scenario.model_copy(update={"nodes": profiles.nodes(ROOM), **changes})
    workload = Poisson(rate_rps=profiles.rate_rps)
    workflows = tuple(profiles.catalogue.workflows)
    results = [
        simulate(
            scenario,
            profiles.catalogue,
            workload.arrivals(workflows, seed=seed),
            "warm",
            seed=seed,
            requests=requests,
        )
        for seed in range(seeds)
    ]
    return PlacedResult(
        fmean(result.hit_ratio for result in results),
        fmean(result.dollars_per_thousand for result in results),
    )


def placement_table(profiles: Profiles, table: Table, seeds: int, requests: int) -> str:
    """Format hits and costs by the neighbours of each run."""
    rows = []
    for pods, changes in PODS.items():
        for name, others in cases_of(table).items():
            result = placed(profiles, {**changes, **others}, seeds, requests)
            rows.append(
                [
                    pods,
                    name,
                    f"{100 * result.hit_ratio:.2f}",
                    f"{result.dollars_per_thousand:.4f}",
                ]
            )
    return markdown_table(["pods", "slowdown", "in SLO, %", "set aside, $ per 1,000"], rows)


def main(
    *,
    data: Annotated[Path, typer.Option()],
    seeds: int = 3,
    requests: int = 8_000,
    table: Path | None = None,
    document: Path = DOCUMENT,
) -> None:
    """Fit and test the model, serve a load with it, and write the document's parts."""
    folder = data / "profiles" / "gpulet"
    solos = read_solos(folder)
    pairs = read_pairs(folder, solos)
    profiles = measured(data)[GROUND]
    ratios = SlowdownModel.fit(pairs, solos).table(sorted(profiles.catalogue.profiles))
    if table is not None:
        table.write_text(yaml.safe_dump({"interference": ratios}), encoding="utf-8")
    options = f"--data DIR --seeds {seeds} --requests {requests}"
    blocks = {
        "how": f"{made_by(f'python -m studies.interference.command {options}')}.\n",
        "pairs": neighbour_table(pairs),
        "errors": error_table(pairs, solos),
        "placement": placement_table(profiles, ratios, seeds, requests),
    }
    update_document(document, blocks)


if __name__ == "__main__":
    typer.run(main)
