"""Options of the commands that write documents: studies, samples, reference."""

from pathlib import Path
from typing import Annotated

import typer


def paper(
    *,
    document: Annotated[Path, typer.Option(help="document to update between its marks")] = Path(
        "docs/paper.md"
    ),
    minutes: Annotated[
        float, typer.Option(min=0.001, help="simulated minutes of arrivals per run")
    ] = 10.0,
    seeds: Annotated[int, typer.Option(min=1, help="runs per policy and setting")] = 3,
    setting: Annotated[
        list[str] | None,
        typer.Option(
            help="one of the nine settings; repeatable; default: the three that the paper reports"
        ),
    ] = None,
    policy: Annotated[
        list[str] | None, typer.Option(help="policy to compare with warm; repeatable; default: all")
    ] = None,
    target_percent: Annotated[
        float, typer.Option(min=1, max=100, help="hit rate at which costs are compared")
    ] = 95.0,
    ablation: Annotated[
        bool, typer.Option("--ablation", help="run the variants of esg too")
    ] = False,
    jobs: Annotated[
        int | None, typer.Option(min=1, help="processes; default: one per processor")
    ] = None,
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
) -> None:
    """Repeat the ESG paper's evaluation with all policies and write the document."""
    from workbench.commands.paper import evaluate
    from workbench.commands.paper_measured import MeasuredInput
    from workbench.simulation.paper import EvaluationSize
    from workbench.simulation.workloads.paper import PAPER_SETTINGS

    evaluate(
        document,
        size=EvaluationSize(
            minutes=minutes,
            seeds=seeds,
            settings=tuple(setting or PAPER_SETTINGS),
            ablation=ablation,
        ),
        policies=policy,
        target_ratio=target_percent / 100,
        processes=jobs,
        cache=cache if data is None else cache / "measured",
        resume=resume,
        measured=None if data is None else MeasuredInput(data, nodes),
    )


def colocate(
    *,
    document: Annotated[Path, typer.Option(help="document to update between its marks")] = Path(
        "docs/colocation.md"
    ),
    minutes: Annotated[
        float, typer.Option(min=0.001, help="simulated minutes of arrivals per run")
    ] = 10.0,
    setting: Annotated[
        list[str] | None,
        typer.Option(
            help="one of the nine settings; repeatable; default: the three that the paper reports"
        ),
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="of arrivals and run times")] = 0,
) -> None:
    """Train in the share of GPUs that inference leaves, and write the document."""
    from workbench.commands.colocate import study_colocation
    from workbench.simulation.colocation_study import StudySize
    from workbench.simulation.workloads.paper import PAPER_SETTINGS

    study_colocation(document, StudySize(minutes, tuple(setting or PAPER_SETTINGS), seed))


def samples(
    out: Annotated[Path, typer.Option(help="folder to write to; created if missing")],
) -> None:
    """Write the sample workflows and their generated profiles."""
    from workbench.commands.documents import write_samples

    write_samples(out)


def reference(
    out: Annotated[Path, typer.Option(help="folder to write to; created if missing")],
) -> None:
    """Write the reference pages: settings, metrics, documents."""
    from workbench.commands.documents import write_reference

    write_reference(out)
