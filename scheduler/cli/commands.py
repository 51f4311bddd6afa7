"""Commands of ``esg``: names, options and help.

A command imports its module when it runs: the node agent must not load the service's compiler,
and help must not load anything.
"""

from collections.abc import Callable
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

import typer

from scheduler.cli.failure import fail
from scheduler.cli.option_types import GatewayUrl, Kubeconfig, NodeName

DESK = {
    "workbench": (
        "plan",
        "simulate",
        "calibrate",
        "demo",
        "local",
        "profiles",
        "samples",
        "reference",
    ),
    "studies": ("jobs", "openb", "paper", "colocate"),
}
"""Commands of each package that the runtime image leaves out; the package's extra has its name."""

_PANEL = "In a cluster"

app = typer.Typer(
    name="esg",
    help="GPU shares, batches and vCPUs of function pods from their workflow's latency SLO.",
    epilog="Exit status: 0: done; 1: an error, or a finding; 2: wrong arguments or settings; "
    "130: Ctrl-C.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)
mps_app = typer.Typer()


def _print_version(*, is_set: bool) -> None:
    if is_set:
        from scheduler import __version__

        typer.echo(__version__)
        raise typer.Exit


@app.callback()
def options(
    *,
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, help="print the version")
    ] = False,
) -> None:
    """Take the options of the command line as a whole."""


@app.command(rich_help_panel=_PANEL)
def serve(
    kubeconfig: Kubeconfig = None,
    host: Annotated[str | None, typer.Option(help="address to listen on (ESG_HOST)")] = None,
    port: Annotated[int | None, typer.Option(min=0, max=65535, help="port (ESG_PORT)")] = None,
) -> None:
    """Serve filter, prioritize, bind and preempt to kube-scheduler."""
    from scheduler.cli.serve import serve_extender

    serve_extender(kubeconfig, host=host, port=port)


@app.command(rich_help_panel=_PANEL)
def webhook(kubeconfig: Kubeconfig = None) -> None:
    """Admit function pods: set their ceilings, environment and mounts (ESG_WEBHOOK_PORT, TLS)."""
    from scheduler.cli.webhook import serve_webhook

    serve_webhook(kubeconfig)


@app.command(rich_help_panel=_PANEL)
def gateway(kubeconfig: Kubeconfig = None) -> None:
    """Answer requests of workflows by batches on their pods (settings: ESG_GATEWAY_… variables)."""
    from scheduler.cli.gateway import serve_gateway

    serve_gateway(kubeconfig)


@app.command(rich_help_panel=_PANEL)
def agent(
    node: NodeName,
    kubeconfig: Kubeconfig = None,
) -> None:
    """Publish this node's GPUs and their health (settings: ESG_AGENT_… variables)."""
    from scheduler.cli.agent import run_agent

    run_agent(node, kubeconfig)


@app.command(rich_help_panel=_PANEL)
def doctor(
    node: NodeName = "",
    kubeconfig: Kubeconfig = None,
    as_json: Annotated[  # noqa: FBT002 - typer gives it by its name
        bool, typer.Option("--json", help="a list of findings")
    ] = False,
) -> None:
    """Say what this node has for GPU shares, and what is missing; exit 1 if something is."""
    from scheduler.cli.doctor import examine_node

    examine_node(node, kubeconfig, as_json=as_json)


@mps_app.callback(invoke_without_command=True)
def mps(context: typer.Context) -> None:
    """Run one MPS daemon per GPU of this node (settings: ESG_AGENT_… variables)."""
    if context.invoked_subcommand is None:
        from scheduler.cli.mps import supervise_daemons

        supervise_daemons()


@mps_app.command("check")
def mps_check() -> None:
    """Check that the limits of a GPU share are enforced in this container; exit 1 if not."""
    from scheduler.cli.mps import check_limits

    check_limits()


app.add_typer(mps_app, name="mps", rich_help_panel=_PANEL)


@app.command(rich_help_panel=_PANEL)
def check(
    paths: Annotated[
        list[Path], typer.Argument(help="files or folders with documents", metavar="PATH…")
    ],
    nodes: Annotated[
        Path | None,
        typer.Option(
            help="Nodes of the cluster, as of `kubectl get nodes -o json`: also report what no "
            "node can hold (with `kubectl get nodes,pods -A -o json` beside its daemons)"
        ),
    ] = None,
    strict: Annotated[  # noqa: FBT002 - typer gives it by its name
        bool, typer.Option("--strict", help="exit 1 on a warning, too")
    ] = False,
    as_json: Annotated[  # noqa: FBT002 - typer gives it by its name
        bool, typer.Option("--json", help="numbers by kind, and the problems as objects")
    ] = False,
) -> None:
    """Validate Workflows, FunctionProfiles and FunctionServers; exit 1 on an error."""
    from scheduler.cli.check import check_documents

    check_documents(paths, nodes, strict=strict, as_json=as_json)


@app.command(rich_help_panel=_PANEL)
def replay(
    snapshot: Annotated[Path, typer.Argument(help="file with the JSON of /v1/snapshot")],
    pod: Annotated[
        str | None, typer.Option(help="namespace/name of one pod; default: all pending pods")
    ] = None,
    as_json: Annotated[  # noqa: FBT002 - typer gives it by its name
        bool, typer.Option("--json", help="a list of explanations, as /v1/explain has them")
    ] = False,
) -> None:
    """Decide on the pending pods of a snapshot again, offline."""
    from scheduler.cli.replay import replay_snapshot

    replay_snapshot(snapshot, pod, as_json=as_json)


@app.command(rich_help_panel=_PANEL)
def status(
    gateway: GatewayUrl = "",
    kubeconfig: Kubeconfig = None,
    watch: Annotated[  # noqa: FBT002 - typer gives it by its name
        bool, typer.Option("--watch", help="print the tables every two seconds")
    ] = False,
    as_json: Annotated[  # noqa: FBT002 - typer gives it by its name
        bool, typer.Option("--json", help="workflows, functions and GPUs as one object")
    ] = False,
) -> None:
    """Show workflows, functions and GPUs, as the live page does (ESG_PAGE of the gateway)."""
    from scheduler.cli.status import print_status

    print_status(gateway, kubeconfig, watch=watch, as_json=as_json)


@app.command(rich_help_panel=_PANEL)
def why(
    request: Annotated[
        str,
        typer.Argument(
            help="id of the request, of its message, or of its trace (traceparent); default: list "
            "the last late requests",
            metavar="[ID]",
            show_default=False,
        ),
    ] = "",
    gateway: GatewayUrl = "",
    kubeconfig: Kubeconfig = None,
    as_json: Annotated[  # noqa: FBT002 - typer gives it by its name
        bool, typer.Option("--json", help="the JSON of /v1/requests/ID, or of /v1/requests")
    ] = False,
) -> None:
    """Say why a request was late: its time by stage and cause, as the gateway recorded it."""
    from scheduler.cli.why import explain_request, list_late_requests

    if request:
        explain_request(request, gateway, kubeconfig, as_json=as_json)
    else:
        list_late_requests(gateway, kubeconfig, as_json=as_json)


@app.command(rich_help_panel=_PANEL)
def cleanup(
    lease: Annotated[
        str,
        typer.Option(
            metavar="NAMESPACE/NAME",
            help="also delete this Lease, and those of extender and gateways",
        ),
    ] = "",
    kubeconfig: Kubeconfig = None,
) -> None:
    """Remove what agents published from all nodes; stop the agents first."""
    from scheduler.cli.cleanup import clean_up_cluster

    clean_up_cluster(lease, kubeconfig)


@app.command("warm-up", rich_help_panel=_PANEL)
def warm_up() -> None:
    """Compile the kernels into Numba's cache, so that the next start loads them."""
    from scheduler.cli.serve import compile_kernels

    compile_kernels()


@app.command(rich_help_panel=_PANEL)
def crds(
    apply: Annotated[  # noqa: FBT002 - typer gives it by its name
        bool, typer.Option("--apply", help="write them to the cluster instead")
    ] = False,
    kubeconfig: Kubeconfig = None,
) -> None:
    """Print the CustomResourceDefinitions: esg crds | kubectl apply -f -."""
    from scheduler.cli.crds import print_or_apply

    print_or_apply(kubeconfig, apply=apply)


def _unavailable(package: str) -> Callable[[typer.Context], None]:
    def refuse(context: typer.Context) -> None:
        fail(
            f"esg {context.info_name}: the package {package} is not installed; "
            f"pip install 'esg-scheduler[{package}]'"
        )

    return refuse


for _package, _names in DESK.items():
    if find_spec(_package):
        app.add_typer(import_module(f"{_package}.commands").app)
    else:
        for _name in _names:
            app.command(
                _name,
                hidden=True,
                context_settings={"allow_extra_args": True, "ignore_unknown_options": True},
            )(_unavailable(_package))
