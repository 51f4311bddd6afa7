"""Options of ``esg simulate``."""

import os
from pathlib import Path
from typing import Annotated

import typer

_NAMES = "NAME[,NAME…]"

Processes = Annotated[int | None, typer.Option(min=1, help="processes; default: one per processor")]
RunFolder = Annotated[
    Path | None,
    typer.Option(metavar="DIR", help="write report.html, results.json, and files of each run"),
]
Dask = Annotated[
    str | None,
    typer.Option(
        metavar="ADDRESS|local",
        help="run on the workers of a Dask scheduler, or on Dask workers of this machine: the run "
        "of a lost worker starts again; default: processes without Dask",
    ),
]


def simulate(
    *,
    scenario: Annotated[
        Path | None,
        typer.Argument(metavar="[SCENARIO.yaml]", help="keys as in docs/reference/scenario.md"),
    ] = None,
    assignments: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="any key of the scenario; repeatable"),
    ] = None,
    policy: Annotated[
        str | None,
        typer.Option(
            metavar=_NAMES,
            help="policies to compare, or all; also a class of yours, FILE.py:CLASS; default: "
            "warm,infless",
        ),
    ] = None,
    setting: Annotated[
        str | None,
        typer.Option(
            metavar=_NAMES,
            help="SLO and load of the paper: strict-, moderate- or relaxed- with light, normal or "
            "heavy; or all; default: moderate-normal",
        ),
    ] = None,
    requests: Annotated[
        int | None,
        typer.Option(min=1, help="per run; default: 10,000, or all that the trace has"),
    ] = None,
    seed: Annotated[
        str | None, typer.Option(metavar="N[,N…]", help="a run for each; default: 0")
    ] = None,
    profiles: Annotated[
        Path | None,
        typer.Option(
            help="file or folder with Workflows and FunctionProfiles; default: generated samples"
        ),
    ] = None,
    trace: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE.csv", help="your own requests: columns workflow, time_ms or time_s"
        ),
    ] = None,
    nodes: Annotated[
        str | None,
        typer.Option(
            metavar="N|FILE.yaml", help="number of nodes, or a file of Node documents; default: 16"
        ),
    ] = None,
    jobs: Processes = None,
    dask: Dask = None,
    out: RunFolder = None,
    resume: Annotated[
        bool,
        typer.Option("--continue", help="skip runs that an interrupted call with --out completed"),
    ] = False,
    show_scenario: Annotated[
        bool, typer.Option("--show-scenario", help="print all keys and values as YAML, and end")
    ] = False,
    to_json: Annotated[bool, typer.Option("--json", help="print one JSON object")] = False,
) -> None:
    """Compare policies on the same requests and the same simulated cluster.

    The code that decides is the live service's; its ESG_… settings of planning and placement apply
    here too. Equal scenarios give equal results, except for the times that planning takes.
    """
    from workbench.commands.simulate.command import compare_policies
    from workbench.series.executors import SeriesProcesses

    compare_policies(
        scenario,
        options={
            "policy": policy,
            "setting": setting,
            "requests": requests,
            "seed": seed,
            "profiles": profiles,
            "nodes": nodes,
        },
        assignments=assignments or [],
        trace=trace,
        processes=SeriesProcesses(count=jobs or os.cpu_count() or 1, dask=dask),
        out=out,
        resume=resume,
        show_scenario=show_scenario,
        to_json=to_json,
    )
