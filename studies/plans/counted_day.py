"""A day of counted arrivals, served by a pool, by pods that hold their shares, and by INFless.

    python -m studies.plans.counted_day --data DIR [--minutes M] [--rate-rps R] [--document FILE]

The sample workflows at moderate SLOs. Each minute has as many requests as in the trace, scaled to
a mean rate, and each request is of a random workflow. What is started costs from its start on. The
table is written to its part of ``docs/pools.md``.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from studies.page import REPOSITORY, made_by, markdown_table, update_document
from studies.plans.warm import documents
from workbench.simulation.engine import simulate
from workbench.simulation.result import Result
from workbench.simulation.scenario import Scenario
from workbench.simulation.workloads.azure import Azure

INVOCATIONS = Path("traces/azure-2019-100/invocations.csv")
PODS: Mapping[str, tuple[str, Mapping[str, Any]]] = {  # policy and changes of the scenario
    "pooled": ("warm", {"pool": True}),
    "reserved": ("warm", {}),
    "INFless": ("infless", {}),
    "INFless, +40 %": ("infless", {"headroom_ratio": 0.4}),
    "INFless, +80 %": ("infless", {"headroom_ratio": 0.8}),
}
NODES = 24
PREFIX = "day-"  # of the marks in the document


def served(pods: str, workload: Azure, seed: int) -> Result:
    """Serve the day with some pods."""
    policy, changes = PODS[pods]
    arrivals = workload.arrivals(tuple(documents().workflows), seed=seed)
    return simulate(Scenario(nodes=NODES, **changes), documents(), arrivals, policy, seed=seed)


def row(pods: str, result: Result) -> list[str]:
    """Return a row of the table."""
    ratio = result.paid_bound_ratio
    return [
        pods,
        f"{100 * result.hit_ratio:.1f}",
        f"{result.dollars_per_thousand:.3f}",
        "-" if ratio is None else f"{ratio:.2f}",
        f"{result.cold_starts:,}",
    ]


def main(  # noqa: PLR0913 - options of a command
    *,
    data: Annotated[Path, typer.Option()],
    minutes: int = 480,
    first_minute: int | None = None,
    rate_rps: float = 20.0,
    seed: int = 0,
    document: Path = REPOSITORY / "docs" / "pools.md",
) -> None:
    """Run all pods, print the table and write it to the document."""
    workload = Azure(
        file=data / INVOCATIONS,
        rate_rps=rate_rps,
        first_minute=first_minute,
        minutes=minutes,
        workflow_of="at-random",
    )
    rows = []
    for pods in PODS:
        rows.append(row(pods, served(pods, workload, seed)))
        typer.echo(" ".join(rows[-1]), err=True)
    command = (
        f"python -m studies.plans.counted_day --data DIR --minutes {minutes} "
        f"--rate-rps {rate_rps:g} --seed {seed}"
    )
    head = ["pods", "in SLO, %", "set aside, $ per 1,000", "set aside / B0", "cold starts"]
    how = (
        f"{made_by(command)}: {minutes} minutes of the Azure Functions sample (100 functions, "
        f"CC-BY), {rate_rps:g} requests a second in the mean, {NODES} nodes, SLO 1.0 L, an "
        "objective of 99 %, generated profiles.\n\n"
    )
    update_document(document, {"table": how + markdown_table(head, rows)}, PREFIX)


if __name__ == "__main__":
    typer.run(main)
