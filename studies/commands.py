"""Commands of ``esg`` that run studies: names, options and help.

A command imports the module that carries it out when it runs, so that help is quick.
"""

import os
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Literal

import typer

from scheduler.cli.failure import fail
from workbench.commands.simulate_options import Dask, Processes, RunFolder

_NAMES = "NAME[,NAME…]"
_PANEL = "Studies"

Minutes = Annotated[float, typer.Option(min=0.001, help="simulated minutes of arrivals per run")]
Settings = Annotated[
    list[str] | None,
    typer.Option(
        help="one of the nine settings; repeatable; default: the three that the paper reports"
    ),
]

app = typer.Typer()


def jobs(
    *,
    policy: Annotated[
        str, typer.Option(metavar=_NAMES, help="policies to compare, or all")
    ] = "tiresias,optimus",
    environment: Annotated[
        str, typer.Option(help="clock, speeds and form of the traces: see docs/jobs.md")
    ] = "pollux",
    workload: Annotated[
        list[Path] | None,
        typer.Option(
            metavar="FILE",
            help="trace in the environment's form, also relative to --data; repeatable; default: "
            "generated jobs",
        ),
    ] = None,
    data: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="folder with measured models: traces/ and training/; default: generated models",
        ),
    ] = None,
    nodes: Annotated[
        int | None, typer.Option(min=1, max=10_000, help="default: the environment's")
    ] = None,
    gpus: Annotated[
        int | None, typer.Option(min=1, max=64, help="per node; default: the environment's")
    ] = None,
    seed: Annotated[str, typer.Option(metavar="N[,N…]", help="a run for each")] = "0",
    assignments: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="KEY=VALUE[,VALUE…]",
            help="parameter of policies or environment, a run for each value; repeatable",
        ),
    ] = None,
    processes: Annotated[
        int | None, typer.Option("--jobs", min=1, help="processes; default: one per processor")
    ] = None,
    dask: Dask = None,
    out: RunFolder = None,
    to_json: Annotated[bool, typer.Option("--json", help="print one JSON object")] = False,
) -> None:
    """Compare policies of training clusters on the same jobs, by job completion times."""
    _require_extra()
    from studies.training.command.command import compare_job_policies
    from studies.training.runs.setup import JobsSetup
    from workbench.series.executors import SeriesProcesses

    compare_job_policies(
        JobsSetup(policy="", environment=environment, data=data, nodes=nodes, gpus=gpus),
        policies=policy,
        workloads=workload or [],
        seeds=seed,
        assignments=assignments or [],
        processes=SeriesProcesses(count=processes or os.cpu_count() or 1, dask=dask),
        out=out,
        to_json=to_json,
    )


def openb(
    *,
    pods: Annotated[Path, typer.Option(metavar="CSV", help="pods: openb_pod_list_….csv")],
    nodes: Annotated[Path, typer.Option(metavar="CSV", help="nodes: openb_node_list_….csv")],
    rules: Annotated[
        list[str] | None,
        typer.Option(
            "--rule",
            help="random, best-fit, fgd, fgd-rounded, pack or defrag; repeatable; default: all",
        ),
    ] = None,
    inflation_ratio: Annotated[
        float | None,
        typer.Option(
            "--inflate",
            min=0.01,
            max=100,
            help="draw pods with replacement until they request this multiple of all GPUs",
        ),
    ] = None,
    seed: Annotated[
        int | None,
        typer.Option(
            min=0, help="of the draw and the order; default: order of creation; with --inflate: 0"
        ),
    ] = None,
    cpu_pods: Annotated[
        Literal["rule", "kube-scheduler"], typer.Option(help="who places pods without a GPU")
    ] = "rule",
    as_json: Annotated[
        bool, typer.Option("--json", help="print one JSON object with the curves")
    ] = False,
) -> None:
    """Place the pods of a trace one by one, without deletions, until the GPUs are full."""
    from studies.packing.command import compare_rules

    compare_rules(
        pods,
        nodes,
        rules=rules,
        inflation_ratio=inflation_ratio,
        seed=seed,
        cpu_pods=cpu_pods,
        as_json=as_json,
    )


def paper(
    *,
    document: Annotated[Path, typer.Option(help="document to update between its marks")] = Path(
        "docs/paper.md"
    ),
    minutes: Minutes = 10.0,
    seeds: Annotated[int, typer.Option(min=1, help="runs per policy and setting")] = 3,
    setting: Settings = None,
    policy: Annotated[
        list[str] | None, typer.Option(help="policy to compare with warm; repeatable; default: all")
    ] = None,
    target_percent: Annotated[
        list[float] | None,
        typer.Option(
            min=1, max=100, help="hit rate at which costs are compared; repeatable; default: 95, 99"
        ),
    ] = None,
    ablation: Annotated[
        bool, typer.Option("--ablation", help="run the variants of esg too")
    ] = False,
    jobs: Processes = None,
    dask: Dask = None,
    cache: Annotated[Path, typer.Option(help="folder with the results of each run")] = Path(
        "build/paper"
    ),
    resume: Annotated[
        bool, typer.Option("--continue", help="skip runs whose results are in the cache")
    ] = False,
    data: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="folder with profiles/rapp-v100-mps.csv and "
            "traces/azure-2019-100/invocations.csv: write the part on measured profiles",
        ),
    ] = None,
    nodes: Annotated[
        int, typer.Option(min=1, help="with --data: nodes of one GPU; the load scales with them")
    ] = 4,
    pooled: Annotated[
        bool,
        typer.Option(
            "--pooled/--reserved",
            help="the pods of warm share a pool's slices of GPUs, or each holds its own",
        ),
    ] = True,
) -> None:
    """Repeat the ESG paper's evaluation with all policies and write the document."""
    _require_extra()
    from studies.paper.command import evaluate
    from studies.paper.evaluation import EvaluationSize
    from studies.paper.measured_document import MeasuredInput
    from workbench.series.executors import SeriesProcesses

    evaluate(
        document,
        size=EvaluationSize(
            minutes=minutes,
            seeds=seeds,
            settings=_settings(setting),
            ablation=ablation,
            pooled=pooled,
        ),
        policies=policy,
        target_ratios=[percent / 100 for percent in target_percent or (95.0, 99.0)],
        processes=SeriesProcesses(count=jobs or os.cpu_count() or 1, dask=dask),
        cache=cache if data is None else cache / "measured",
        resume=resume,
        measured=None if data is None else MeasuredInput(data, nodes),
    )


def colocate(
    *,
    document: Annotated[Path, typer.Option(help="document to update between its marks")] = Path(
        "docs/colocation.md"
    ),
    minutes: Minutes = 10.0,
    setting: Settings = None,
    seed: Annotated[int, typer.Option(min=0, help="of arrivals and run times")] = 0,
) -> None:
    """Train in the share of GPUs that inference leaves, and write the document."""
    _require_extra()
    from studies.colocation.command import study_colocation
    from studies.colocation.study import StudySize

    study_colocation(document, StudySize(minutes, _settings(setting), seed))


def _require_extra() -> None:
    """Exit if the libraries of the extra are not installed."""
    if find_spec("scipy") is None:
        fail("studies need scipy, which is not installed; run pip install 'esg-scheduler[studies]'")


def _settings(names: list[str] | None) -> tuple[str, ...]:
    """Return the settings of these names, by default those of the paper; exit if one is unknown."""
    from workbench.simulation.workloads.paper import PAPER_SETTINGS, SETTINGS

    if unknown := [name for name in names or () if name not in SETTINGS]:
        fail(f"no setting {unknown[0]!r}; there are {', '.join(SETTINGS)}")
    return tuple(names or PAPER_SETTINGS)


for study in (jobs, openb, paper, colocate):
    app.command(rich_help_panel=_PANEL)(study)
