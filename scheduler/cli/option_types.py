"""Options that several commands have."""

from pathlib import Path
from typing import Annotated

import typer

Kubeconfig = Annotated[
    Path | None,
    typer.Option(help="kubeconfig file; default: in-cluster, else the usual kubeconfig"),
]
GatewayUrl = Annotated[
    str,
    typer.Option("--from", help="URL of a gateway's health port; default: all in the cluster"),
]
NodeName = Annotated[
    str, typer.Option(envvar="NODE_NAME", help="name of the Node object of this machine")
]
