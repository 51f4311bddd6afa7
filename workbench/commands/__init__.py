"""Commands of ``esg`` that run on a desk: names, options and help.

A command imports its module when it runs, so that help is quick.
"""

from pathlib import Path
from typing import Annotated, Literal

import typer

_PANEL = "On a desk"
_NAMES = "NAME[,NAME…]"

app = typer.Typer()
profiles_app = typer.Typer(help="Convert measurements into FunctionProfiles.", no_args_is_help=True)


@app.command(rich_help_panel=_PANEL)
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
    queued_later: Annotated[
        int | None,
        typer.Option(
            min=1, help="waiting requests at each other stage; default: their batches fill"
        ),
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
    from workbench.commands.plan import PlanOptions, print_plan

    print_plan(
        PlanOptions(
            profiles=profiles,
            workflow=workflow,
            stage=stage,
            slack_ms=slack_ms,
            starts_ms=start_ms or [],
            queued=queued,
            queued_later=queued_later,
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


@app.command(rich_help_panel=_PANEL)
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
    jobs: Annotated[
        int | None, typer.Option(min=1, help="processes; default: one per processor")
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="write report.html, results.json, and files of each run"),
    ] = None,
    show_scenario: Annotated[
        bool, typer.Option("--show-scenario", help="print all keys and values as YAML, and end")
    ] = False,
    to_json: Annotated[bool, typer.Option("--json", help="print one JSON object")] = False,
) -> None:
    """Compare policies on the same requests and the same simulated cluster.

    The code that decides is the live service's; its ESG_… settings of planning and placement apply
    here too. Equal scenarios give equal results, except for the times that planning takes.
    """
    from workbench.commands.simulate import compare_policies

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
        processes=jobs,
        out=out,
        show_scenario=show_scenario,
        to_json=to_json,
    )


@app.command(rich_help_panel=_PANEL)
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
    out: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="write report.html, results.json, and files of each run"),
    ] = None,
    to_json: Annotated[bool, typer.Option("--json", help="print one JSON object")] = False,
) -> None:
    """Compare policies of training clusters on the same jobs, by job completion times."""
    from workbench.commands.jobs import compare_job_policies
    from workbench.jobs.runs.setup import JobsSetup

    compare_job_policies(
        JobsSetup(policy="", environment=environment, data=data, nodes=nodes, gpus=gpus),
        policies=policy,
        workloads=workload or [],
        seeds=seed,
        assignments=assignments or [],
        processes=processes,
        out=out,
        to_json=to_json,
    )


@app.command(rich_help_panel=_PANEL)
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


@app.command(rich_help_panel=_PANEL)
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
    from workbench.commands.openb import compare_rules

    compare_rules(
        pods,
        nodes,
        rules=rules,
        inflation_ratio=inflation_ratio,
        seed=seed,
        cpu_pods=cpu_pods,
        as_json=as_json,
    )


@app.command(hidden=True)
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


@app.command(hidden=True)
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


@profiles_app.command("import")
def import_profiles(
    measurements: Annotated[
        Path,
        typer.Argument(
            metavar="CSV",
            help="measurements, one per row; its first line names function, batch, cpu, "
            "gpu_percent, latency_ms, p95_ms, memory_mib",
        ),
    ],
    *,
    gpu_model: Annotated[
        str, typer.Option(help="NVML's name of the GPU, as in 'NVIDIA A100-SXM4-80GB'")
    ],
    out: Annotated[Path, typer.Option(help="file to write; -: standard output")],
    columns: Annotated[
        list[str] | None,
        typer.Option("--map", metavar="FIELD=COLUMN", help="column of a field; repeatable"),
    ] = None,
    constants: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="FIELD=VALUE", help="field without a column; repeatable"),
    ] = None,
    cold_start_ms: Annotated[
        float | None, typer.Option(min=0, help="each function: pod start to first batch, ms")
    ] = None,
    output_mib: Annotated[
        float | None, typer.Option(min=0, help="each function: output of one request, MiB")
    ] = None,
) -> None:
    """Convert measured latencies into FunctionProfiles; write nothing if a row is invalid."""
    from workbench.commands.profiles import convert_measurements

    convert_measurements(
        measurements,
        out,
        columns=columns or [],
        constants=constants or [],
        gpu_model=gpu_model,
        cold_start_ms=cold_start_ms,
        output_mib=output_mib,
    )


app.add_typer(profiles_app, name="profiles", rich_help_panel=_PANEL)


@app.command(rich_help_panel=_PANEL)
def samples(
    out: Annotated[Path, typer.Option(help="folder to write to; created if missing")],
) -> None:
    """Write the sample workflows and their generated profiles."""
    from workbench.commands.documents import write_samples

    write_samples(out)


@app.command(rich_help_panel=_PANEL)
def reference(
    out: Annotated[Path, typer.Option(help="folder to write to; created if missing")],
) -> None:
    """Write the reference pages: settings, metrics, documents."""
    from workbench.commands.documents import write_reference

    write_reference(out)
