"""Options of the commands that compare: ``esg simulate``, ``calibrate``, ``jobs``, ``openb``."""

from pathlib import Path
from typing import Annotated, Literal

import typer

_NAMES = "NAME[,NAME…]"


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
        resume=resume,
        show_scenario=show_scenario,
        to_json=to_json,
    )


def calibrate(
    log: Annotated[
        Path,
        typer.Argument(help="log of a gateway with ESG_LOG_LEVEL=debug and ESG_LOG_JSON=true"),
    ],
    *,
    scenario: Annotated[
        Path | None, typer.Option(help="the cluster of that gateway, as for esg simulate")
    ] = None,
    profiles: Annotated[
        Path | None,
        typer.Option(help="file or folder with the gateway's Workflows and FunctionProfiles"),
    ] = None,
    to_json: Annotated[bool, typer.Option("--json", help="print one JSON object")] = False,
) -> None:
    """Compare the batches of a gateway with their profiles and with the simulator, by stage.

    The requests in the log are simulated again, with the first policy, setting and seed of the
    scenario.
    """
    from workbench.commands.calibrate import compare_log

    compare_log(log, scenario, profiles, to_json=to_json)


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
