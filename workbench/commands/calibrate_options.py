"""Options of ``esg calibrate``."""

from pathlib import Path
from typing import Annotated

import typer

from scheduler.cli.option_types import GatewayUrl, Kubeconfig


def calibrate(
    log: Annotated[
        Path | None,
        typer.Argument(
            help="log of a gateway with ESG_LOG_LEVEL=debug and ESG_LOG_JSON=true; default: the "
            "last 10,000 calls that each gateway has in memory"
        ),
    ] = None,
    *,
    url: GatewayUrl = "",
    kubeconfig: Kubeconfig = None,
    scenario: Annotated[
        Path | None, typer.Option(help="the cluster of that gateway, as for esg simulate")
    ] = None,
    profiles: Annotated[
        Path | None,
        typer.Option(help="file or folder with the gateway's Workflows and FunctionProfiles"),
    ] = None,
    policy: Annotated[
        str | None, typer.Option(help="change: another policy, as for esg simulate")
    ] = None,
    nodes: Annotated[
        str | None,
        typer.Option(metavar="N|FILE.yaml", help="change: other nodes, as for esg simulate"),
    ] = None,
    slo_factor: Annotated[
        float | None, typer.Option(min=0.01, help="change: factor on every SLO")
    ] = None,
    assignments: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="KEY=VALUE",
            help="change: any key of the scenario, as sharing=whole; repeatable",
        ),
    ] = None,
    to_json: Annotated[bool, typer.Option("--json", help="print one JSON object")] = False,
) -> None:
    """Compare a gateway's log with its profiles and with the simulator, and try changes on it.

    The calls in the log are simulated again, with the first policy, setting and seed of the
    scenario. With changes they are simulated once more: SLO hits, cost and p99 follow, with the
    error of the simulation of what was recorded.
    """
    from workbench.commands.simulate.calibrate import compare_log

    compare_log(
        log,
        url,
        kubeconfig,
        scenario,
        profiles,
        changes={"nodes": nodes, "policy": policy},
        assignments=assignments or [],
        slo_factor=slo_factor,
        to_json=to_json,
    )
