"""Calls of ``esg`` in this process."""

from contextlib import redirect_stderr, redirect_stdout
from functools import cache
from io import StringIO
from typing import NamedTuple
from unittest import mock

import structlog
from typer.main import get_command

from scheduler.cli.commands import app


class Ended(NamedTuple):
    """The exit status of a command, and what it printed; `output` is all of it in order."""

    exit_code: int
    stdout: str
    stderr: str
    output: str


class _Stream(StringIO):
    """A stream of which another gets a copy."""

    def __init__(self, copy: StringIO) -> None:
        super().__init__()
        self._copy = copy

    def write(self, text: str) -> int:
        self._copy.write(text)
        return super().write(text)


@cache  # typer's own runner builds the commands for each call, which takes 5 ms
def commands():
    return get_command(app)


def esg(*words: object) -> Ended:
    """Run a command to its end; an error that it does not handle is the test's.

    The logs of this process, which other tests read, stay as they are configured.
    """
    output = StringIO()
    stdout, stderr = _Stream(output), _Stream(output)
    configured = mock.patch.object(structlog, "configure")
    with configured, redirect_stdout(stdout), redirect_stderr(stderr):
        try:
            status = commands().main([*map(str, words)], prog_name="esg")
        except SystemExit as ended:
            status = ended.code
    return Ended(status or 0, stdout.getvalue(), stderr.getvalue(), output.getvalue())
