"""Options of ``esg profiles measure``."""

from pathlib import Path
from typing import Annotated

import typer

from scheduler.cli.option_types import Kubeconfig
from scheduler.model.function_server import ServerProtocol


def measure(
    *,
    url: Annotated[
        str | None,
        typer.Option(help="model server that runs: grpc://HOST:PORT or http://HOST:PORT"),
    ] = None,
    file: Annotated[
        Path | None,
        typer.Option(
            "-f", metavar="FILE", help="in a cluster: FunctionServer with a template of its pods"
        ),
    ] = None,
    model: Annotated[
        str | None, typer.Option(help="name of the model at the server; with -f: as FILE says")
    ] = None,
    function: Annotated[
        str | None, typer.Option(help="name of the profile; default: that of the model")
    ] = None,
    protocol: Annotated[
        ServerProtocol | None,
        typer.Option(
            help="default: by the URL, and over HTTP http-binary or http-json as the server says"
        ),
    ] = None,
    inputs: Annotated[
        list[str] | None,
        typer.Option(
            "--input",
            metavar="NAME=FILE.npy|SHAPE",
            help="rows of an input, or the shape of one row as in 3,224,224; repeatable; default: "
            "zeros by the model's metadata",
        ),
    ] = None,
    batch: Annotated[
        int, typer.Option(min=1, max=4096, help="largest batch: it, and the powers of two below")
    ] = 8,
    batches: Annotated[
        str | None, typer.Option(metavar="1,2,4", help="batches, instead of --batch")
    ] = None,
    cpu: Annotated[int, typer.Option(min=1, max=1024, help="vCPUs that the server has")] = 1,
    gpu_percent: Annotated[
        int, typer.Option(min=1, max=100, help="GPU share that the server has, percent")
    ] = 100,
    beside: Annotated[
        str | None,
        typer.Option(
            metavar="URL/MODEL|FUNCTION",
            help="server on the same GPU, with -f one of another FunctionServer in FILE: measures "
            "also the slowdown of the largest batch while that server runs batches",
        ),
    ] = None,
    beside_percent: Annotated[
        int | None,
        typer.Option(
            min=1,
            max=100,
            help="GPU share of the server of --beside, percent; default: 100, with -f the same as "
            "beside it",
        ),
    ] = None,
    shares: Annotated[
        str | None, typer.Option(metavar="14,28,56", help="with -f: GPU shares, percent")
    ] = None,
    cpus: Annotated[str | None, typer.Option(metavar="1,2,4", help="with -f: vCPUs")] = None,
    whole_grid: Annotated[
        bool,
        typer.Option(
            "--all", help="with -f: also points that cannot be the cheapest for any slack"
        ),
    ] = False,
    start_command: Annotated[
        str | None,
        typer.Option(
            metavar="COMMAND",
            help="with --url: starts the server, whose cold start is measured, and ends it again, "
            "as 'CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=28 mlserver start .'",
        ),
    ] = None,
    start_s: Annotated[
        float,
        typer.Option(min=1, help="longest time until a pod or the started server answers, s"),
    ] = 600.0,
    scheduler_name: Annotated[
        str,
        typer.Option(help="with -f: scheduler of pods, if neither template nor webhook has one"),
    ] = "",
    kubeconfig: Kubeconfig = None,
    gpu: Annotated[int, typer.Option(min=0, help="NVML's index of its GPU on this machine")] = 0,
    pids: Annotated[
        list[int] | None,
        typer.Option(
            "--pid",
            help="process of the server, whose GPU memory counts; repeatable; default: "
            "the only one on the GPU",
        ),
    ] = None,
    gpu_model: Annotated[
        str | None, typer.Option(help="name of the GPU; default: that of NVML")
    ] = None,
    memory_mib: Annotated[
        int | None,
        typer.Option(
            min=1, max=1_048_576, help="GPU memory of the server or the pods, MiB; default: by NVML"
        ),
    ] = None,
    cold_start_ms: Annotated[
        float | None, typer.Option(min=0, help="time from pod start to first batch, ms")
    ] = None,
    error_percent: Annotated[
        float,
        typer.Option(
            min=0.01, max=100, help="half width of the intervals of median and p95, percent of each"
        ),
    ] = 2.0,
    confidence_percent: Annotated[
        float, typer.Option(min=50, max=99.99, help="probability of each interval, percent")
    ] = 95.0,
    runs: Annotated[int, typer.Option(min=2, help="least runs of a batch size")] = 100,
    runs_max: Annotated[int, typer.Option(min=2, help="most runs of a batch size")] = 10_000,
    warm_up: Annotated[
        int, typer.Option(min=0, help="runs before them, whose times do not count")
    ] = 10,
    limit_s: Annotated[
        float, typer.Option(min=0.001, help="longest time for the runs of a batch size, s")
    ] = 30.0,
    out: Annotated[
        Path, typer.Option("--out", "-o", help="file for the profile; -: standard output")
    ] = Path("-"),
    points: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE.jsonl",
            help="measured points, which are not measured again; default: beside --out, with this "
            "suffix",
        ),
    ] = None,
    plot: Annotated[
        Path | None,
        typer.Option(metavar="FILE.html", help="write a page with latency over batch and share"),
    ] = None,
    to_json: Annotated[
        bool, typer.Option("--json", help="print profile and points as one JSON object")
    ] = False,
) -> None:
    """Measure a model server of the Open Inference Protocol; write its FunctionProfile.

    With --url, restart the server with another share and repeat the command to add that share. With
    -f, pods with each share are created, and deleted again. After Ctrl-C the same command goes on
    with the batch that was interrupted.
    """
    from workbench.commands.measure import MeasureOptions, measure_profile
    from workbench.commands.measure_in_cluster import ClusterOptions, measure_in_cluster
    from workbench.commands.measurement_output import MeasurementOutput
    from workbench.profiles.batch_times import Precision

    precision = Precision(
        error_ratio=error_percent / 100,
        confidence=confidence_percent / 100,
        runs_min=runs,
        runs_max=runs_max,
        warm_up_runs=warm_up,
        limit_s=limit_s,
    )
    output = MeasurementOutput(out=out, points_file=points, plot=plot, to_json=to_json)
    if file is not None:
        if url is not None:
            raise typer.BadParameter("give --url or -f, not both", param_hint="-f")
        if start_command is not None:
            raise typer.BadParameter("is for --url", param_hint="--start-command")
        measure_in_cluster(
            ClusterOptions(
                file=file,
                shares=shares,
                cpus=cpus,
                batches=batches,
                batch_max=batch,
                inputs=inputs or [],
                memory_mib=memory_mib,
                gpu_model=gpu_model or "",
                cold_start_ms=cold_start_ms,
                precision=precision,
                whole_grid=whole_grid,
                beside=beside,
                beside_percent=beside_percent,
                start_s=start_s,
                scheduler_name=scheduler_name,
                kubeconfig=kubeconfig,
            ),
            output,
        )
        return
    if url is None or model is None:
        raise typer.BadParameter("give --url and --model, or -f FILE", param_hint="--url")
    measure_profile(
        MeasureOptions(
            url=url,
            model=model,
            function=function,
            protocol=protocol,
            inputs=inputs or [],
            batch_max=batch,
            batches=batches,
            cpu=cpu,
            gpu_percent=gpu_percent,
            gpu_index=gpu,
            pids=pids or [],
            gpu_model=gpu_model,
            memory_mib=memory_mib,
            cold_start_ms=cold_start_ms,
            precision=precision,
            start_command=start_command,
            start_s=start_s,
            beside=beside,
            beside_percent=beside_percent or 100,
        ),
        output,
    )
