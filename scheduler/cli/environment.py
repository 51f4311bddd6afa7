"""What the environment says: settings of one kind or another, and where the cluster is."""

from pathlib import Path
from typing import Annotated, Any, TypeVar

import typer
from pydantic import ValidationError
from pydantic_settings import BaseSettings

SettingsT = TypeVar("SettingsT", bound=BaseSettings)

Kubeconfig = Annotated[
    Path | None,
    typer.Option(help="the cluster; default: in-cluster, else the usual kubeconfig"),
]


def from_environment(kind: type[SettingsT], **given: Any) -> SettingsT:
    """The environment's settings, and over them those given; a wrong one ends the command."""
    try:
        return kind(**given)
    except ValidationError as error:
        prefix = kind.model_config["env_prefix"]
        for detail in error.errors(include_url=False):
            name = "_".join(str(part) for part in detail["loc"]).upper()
            typer.echo(
                f"error: {prefix}{name}: {detail['msg']} (given: {detail['input']!r})", err=True
            )
        raise typer.Exit(2) from None
