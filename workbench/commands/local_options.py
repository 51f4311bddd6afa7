"""Options of ``esg local``."""

from pathlib import Path
from typing import Annotated

import typer


def local(
    *,
    files: Annotated[
        list[Path],
        typer.Option(
            "--file",
            "-f",
            exists=True,
            metavar="PATH",
            help="file or folder with Workflows and FunctionProfiles; may be repeated",
        ),
    ],
    servers: Annotated[
        list[str],
        typer.Option(
            "--server",
            metavar="FUNCTION=URL",
            help="model server of a function, as encoder=grpc://127.0.0.1:8081 or http://…; one "
            "for each function",
        ),
    ],
    port: Annotated[
        int, typer.Option(min=0, max=65535, help="port of requests; 0: any free port")
    ] = 8090,
) -> None:
    """Serve workflows on this machine by model servers that run already; no cluster is needed."""
    from workbench.commands.local import run

    run(files, servers, port)
