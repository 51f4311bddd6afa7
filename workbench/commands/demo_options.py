"""Options of ``esg demo``."""

from pathlib import Path
from typing import Annotated, Literal

import typer


def demo(
    *,
    seconds: Annotated[float, typer.Option(min=0.1, max=3600, help="seconds of arrivals")] = 25.0,
    seed: Annotated[int, typer.Option(min=0, help="of arrivals and run times")] = 0,
    load: Annotated[
        Literal["light", "normal", "heavy"], typer.Option(help="rate of requests, as in the paper")
    ] = "light",
    nodes: Annotated[Path, typer.Option(exists=True, dir_okay=False, help="Node documents")] = Path(
        "deploy/nodes/mocked-16x1.yaml"
    ),
    profiles: Annotated[
        Path, typer.Option(exists=True, help="Workflows and FunctionProfiles")
    ] = Path("deploy/samples"),
    as_json: Annotated[
        bool, typer.Option("--json", help="print the summary as one JSON object")
    ] = False,
) -> None:
    """Send requests of the sample workflows through the gateway and show the results."""
    from workbench.commands.demo import run_demo

    run_demo(nodes=nodes, profiles=profiles, seconds=seconds, seed=seed, load=load, as_json=as_json)
