"""Options of the commands about profiles: ``esg plan`` and ``esg profiles import``."""

from pathlib import Path
from typing import Annotated, Literal

import typer

from scheduler.cli.option_types import GatewayUrl, Kubeconfig


def plan(
    *,
    profiles: Annotated[
        Path, typer.Option(help="file or folder with Workflows and FunctionProfiles")
    ],
    workflow: Annotated[str, typer.Option(help="name of the workflow, or namespace/name")],
    stage: Annotated[str | None, typer.Option(help="its stage; default: the first")] = None,
    slack_ms: Annotated[
        float | None,
        typer.Option(help="time for the remaining stages, ms; default: their share of the SLO"),
    ] = None,
    start_ms: Annotated[
        list[float] | None,
        typer.Option(
            min=0, help="cold start plus transfer of the input, ms; repeatable; default: 0"
        ),
    ] = None,
    queued: Annotated[
        int | None, typer.Option(min=1, help="waiting requests: upper limit of the batch")
    ] = None,
    rate_per_s: Annotated[
        float | None,
        typer.Option("--rate", min=0.000001, help="requests per second that the pod must serve"),
    ] = None,
    cpu_max: Annotated[int | None, typer.Option(min=1, help="vCPU limit of this stage")] = None,
    gpu_percent_max: Annotated[
        int | None, typer.Option(min=1, help="GPU share limit of this stage, percent")
    ] = None,
    memory_mib_max: Annotated[
        int | None, typer.Option(min=1, help="GPU memory limit of this stage, MiB")
    ] = None,
    gpu_model: Annotated[
        str | None, typer.Option(help="only this GPU model; default: all in the profiles")
    ] = None,
    nodes: Annotated[
        Path | None,
        typer.Option(
            help="Nodes of the cluster, as of `kubectl get nodes -o json`: only configurations "
            "that one of them can hold"
        ),
    ] = None,
    policy: Annotated[
        Literal["exact", "esg"] | None,
        typer.Option(help="plan all remaining stages at once, or in groups (ESG_POLICY)"),
    ] = None,
    group_size: Annotated[
        int | None,
        typer.Option(min=1, max=32, help="stages per group, policy esg (ESG_GROUP_SIZE)"),
    ] = None,
    latency: Annotated[
        Literal["mean", "p95"] | None,
        typer.Option(help="latency of the profiles to plan with (ESG_LATENCY)"),
    ] = None,
    on_lost_slo: Annotated[
        Literal["fastest", "cheapest"] | None,
        typer.Option(help="order of candidates when none meets the SLO (ESG_ON_LOST_SLO)"),
    ] = None,
    margin_ratio: Annotated[
        float | None,
        typer.Option(
            min=0,
            max=1,
            help="margin for stages that exceed their profile, instead of the objective's "
            "(ESG_MARGIN_RATIO)",
        ),
    ] = None,
    k: Annotated[
        int | None, typer.Option(min=1, max=64, help="number of candidates (ESG_CANDIDATES)")
    ] = None,
    plot: Annotated[
        Path | None,
        typer.Option(metavar="FILE.html", help="write a page with the cost curves and the plan"),
    ] = None,
    to_json: Annotated[bool, typer.Option("--json", help="print one JSON object")] = False,
) -> None:
    """Print the K cheapest configurations of a stage, and the plan of all remaining stages.

    They keep the workflow within its SLO. The ESG_… variables supply options that are not set.
    """
    from workbench.commands.plan.command import PlanOptions, print_plan

    print_plan(
        PlanOptions(
            profiles=profiles,
            workflow=workflow,
            stage=stage,
            slack_ms=slack_ms,
            starts_ms=start_ms or [],
            queued=queued,
            rate_per_s=rate_per_s,
            cpu_max=cpu_max,
            gpu_percent_max=gpu_percent_max,
            memory_mib_max=memory_mib_max,
            gpu_model=gpu_model,
            nodes=nodes,
            settings={
                "policy": policy,
                "group_size": group_size,
                "latency": latency,
                "on_lost_slo": on_lost_slo,
                "margin_ratio": margin_ratio,
                "candidates": k,
            },
        ),
        plot=plot,
        to_json=to_json,
    )


def import_profiles(
    measurements: Annotated[
        list[Path],
        typer.Argument(
            metavar="FILE",
            help="CSV with one measurement in each row, whose first line names function, batch, "
            "cpu, gpu_percent, latency_ms, p95_ms, memory_mib; or files of a tool (--from)",
        ),
    ],
    *,
    gpu_model: Annotated[
        str, typer.Option(help="NVML's name of the GPU, as in 'NVIDIA A100-SXM4-80GB'")
    ],
    out: Annotated[Path, typer.Option(help="file to write; -: standard output")],
    tool: Annotated[
        Literal["perf-analyzer", "model-analyzer", "genai-perf"] | None,
        typer.Option("--from", help="tool that wrote the files"),
    ] = None,
    columns: Annotated[
        list[str] | None,
        typer.Option("--map", metavar="FIELD=COLUMN", help="column of a field; repeatable"),
    ] = None,
    constants: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="FIELD=VALUE", help="field without a column; repeatable"),
    ] = None,
    batches: Annotated[
        str | None,
        typer.Option(metavar="1,2,4", help="batch of each file, for a tool that writes none"),
    ] = None,
    gpu_file: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="GPU memory: Model Analyzer's metrics-model-gpu.csv"),
    ] = None,
    unit: Annotated[
        Literal["ns", "us", "ms", "s"] | None,
        typer.Option(help="unit of the latencies; default: by the tool or the columns' names"),
    ] = None,
    cold_start_ms: Annotated[
        float | None, typer.Option(min=0, help="each function: pod start to first batch, ms")
    ] = None,
    output_mib: Annotated[
        float | None, typer.Option(min=0, help="each function: output of one request, MiB")
    ] = None,
) -> None:
    """Convert measured latencies into FunctionProfiles; write nothing if a row is invalid."""
    from workbench.commands.profiles import ImportOptions, convert_measurements

    convert_measurements(
        ImportOptions(
            measurements=measurements,
            tool=tool,
            columns=columns or [],
            constants=constants or [],
            batches=batches,
            gpu_file=gpu_file,
            latency_unit=unit,
            gpu_model=gpu_model,
            cold_start_ms=cold_start_ms,
            output_mib=output_mib,
        ),
        out,
    )


def refresh(
    *,
    file: Annotated[
        Path, typer.Option("--file", "-f", help="file or folder with the FunctionProfiles in use")
    ],
    out: Annotated[
        Path, typer.Option("--out", "-o", help="file to write; -: standard output")
    ] = Path("-"),
    url: GatewayUrl = "",
    kubeconfig: Kubeconfig = None,
    function: Annotated[str | None, typer.Option(help="only this function")] = None,
) -> None:
    """Correct FunctionProfiles by the run times that gateways observed."""
    from workbench.commands.refresh_profile import refresh_profiles

    refresh_profiles(file, out, url=url, kubeconfig=kubeconfig, function=function)


def show(
    place: Annotated[
        str, typer.Argument(metavar="FILE|URL", help="file, folder or URL with FunctionProfiles")
    ],
    *,
    function: Annotated[str | None, typer.Option(help="only this function")] = None,
    plot: Annotated[
        Path | None,
        typer.Option(metavar="FILE.html", help="write a page with latency over batch and share"),
    ] = None,
) -> None:
    """Print FunctionProfiles as tables."""
    from workbench.commands.show_profile import show_profiles

    show_profiles(place, function, plot)
