"""Settings from environment variables, with a message for each invalid value and misspelt name."""

import os
from collections.abc import Iterator
from difflib import get_close_matches
from typing import Any, TypeVar

import typer
from pydantic import ValidationError
from pydantic_settings import BaseSettings, SettingsError

_SIMILAR_RATIO = 0.85

SettingsT = TypeVar("SettingsT", bound=BaseSettings)


def from_environment(kind: type[SettingsT], **overrides: Any) -> SettingsT:
    """Read settings from the environment; overrides that are not None win.

    An invalid value ends the command with status 2. A name that nearly is that of a setting is a
    warning.
    """
    for name, setting in _misspelt(kind):
        typer.echo(f"warning: {name} is not a setting; did you mean {setting}?", err=True)
    try:
        return kind(**{name: value for name, value in overrides.items() if value is not None})
    except ValidationError as error:
        prefix = kind.model_config["env_prefix"]
        for detail in error.errors(include_url=False):
            name = "_".join(str(part) for part in detail["loc"]).upper()
            message = detail["msg"].removeprefix("Value error, ")
            if name:
                message = f"{message} (given: {detail['input']!r})"
            typer.echo(f"error: {prefix}{name or '…'}: {message}", err=True)
        raise typer.Exit(2) from None
    except SettingsError as error:  # text that should be JSON
        typer.echo(f"error: {error}: {error.__cause__}", err=True)
        raise typer.Exit(2) from None


def _misspelt(kind: type[BaseSettings]) -> Iterator[tuple[str, str]]:
    """Yield environment variables that resemble one setting, and its name."""
    prefix = kind.model_config["env_prefix"]
    settings = {f"{prefix}{field}".upper() for field in kind.model_fields}
    for name in sorted(set(map(str.upper, os.environ)) - settings):
        if name.startswith(prefix):
            for setting in get_close_matches(name, settings, n=1, cutoff=_SIMILAR_RATIO):
                yield name, setting
