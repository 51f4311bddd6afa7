"""Options of ``esg demo``."""

from pathlib import Path
from typing import Annotated, Literal

import typer


def demo(
    *,
    warm_up_s: Annotated[
        float,
        typer.Option(
            "--warm-up",
            min=0,
            max=3600,
            help="seconds of requests that do not count, while the first pods start",
        ),
    ] = 40.0,
    seconds: Annotated[
        float, typer.Option(min=0.1, max=3600, help="seconds of requests that count, after them")
    ] = 25.0,
    cool_down_s: Annotated[
        float,
        typer.Option(
            "--cool-down", min=0, max=3600, help="seconds in which pods end after the last request"
        ),
    ] = 60.0,
    seed: Annotated[int, typer.Option(min=0, help="of arrivals and run times")] = 0,
    share: Annotated[
        Literal["pooled", "reserved"],
        typer.Option(help="pods hold their share while a batch runs (pooled), or always"),
    ] = "pooled",
    load: Annotated[
        Literal["light", "normal", "heavy"], typer.Option(help="rate of requests, as in the paper")
    ] = "light",
    nodes: Annotated[
        Path | None,
        typer.Option(
            exists=True, dir_okay=False, help="Node documents; default: 16 nodes with a GPU each"
        ),
    ] = None,
    profiles: Annotated[
        Path | None,
        typer.Option(
            exists=True, help="Workflows and FunctionProfiles; default: those of `esg samples`"
        ),
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="print the summary as one JSON object")
    ] = False,
) -> None:
    """Send requests of the sample workflows through the gateway and show the results."""
    from workbench.commands.demo import run_demo

    run_demo(
        nodes=nodes,
        profiles=profiles,
        warm_up_s=warm_up_s,
        seconds=seconds,
        cool_down_s=cool_down_s,
        seed=seed,
        share=share,
        load=load,
        as_json=as_json,
    )
