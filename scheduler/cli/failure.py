"""Ends of a command: with an error that its user can mend, or by Ctrl-C."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import NoReturn

import typer

_INTERRUPTED = 130  # exit status by which shells report an end by Ctrl-C


def fail(*messages: object) -> NoReturn:
    """Print error messages, and exit 1."""
    for message in messages:
        typer.echo(f"error: {message}", err=True)
    raise typer.Exit(1)


@contextmanager
def failing_on(*errors: type[Exception]) -> Iterator[None]:
    """Fail with the text of an error of these classes, or with its problems if it has several."""
    try:
        yield
    except errors as error:
        fail(*getattr(error, "problems", [error]))


@contextmanager
def stopped_by_ctrl_c() -> Iterator[None]:
    """End on Ctrl-C as shells expect it."""
    try:
        yield
    except KeyboardInterrupt:
        typer.echo("stopped", err=True)
        raise typer.Exit(_INTERRUPTED) from None
