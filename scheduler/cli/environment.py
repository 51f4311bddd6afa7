"""Settings from environment variables, with an error message for each invalid value."""

from typing import Any, TypeVar

import typer
from pydantic import ValidationError
from pydantic_settings import BaseSettings

SettingsT = TypeVar("SettingsT", bound=BaseSettings)


def from_environment(kind: type[SettingsT], **overrides: Any) -> SettingsT:
    """Read settings from the environment; overrides that are not None win.

    An invalid value ends the command with status 2.
    """
    try:
        return kind(**{name: value for name, value in overrides.items() if value is not None})
    except ValidationError as error:
        prefix = kind.model_config["env_prefix"]
        for detail in error.errors(include_url=False):
            name = "_".join(str(part) for part in detail["loc"]).upper()
            typer.echo(
                f"error: {prefix}{name}: {detail['msg']} (given: {detail['input']!r})", err=True
            )
        raise typer.Exit(2) from None
