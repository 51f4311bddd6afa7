"""Options and output that the commands about profiles share."""

import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NoReturn

import typer

from scheduler.cli.failure import fail
from scheduler.model.document_reader import Problem
from scheduler.model.message_text import quoted, reason_of

_PROBLEMS_SHOWN_MAX = 20
_NUMBERS = re.compile(r"[1-9]\d{0,3}(,[1-9]\d{0,3})*", re.ASCII)


def name_value_pairs(option: str, texts: Iterable[str]) -> dict[str, str]:
    """Split the values of an option of the form NAME=VALUE."""
    pairs: dict[str, str] = {}
    for text in texts:
        name, equals, value = (part.strip() for part in text.partition("="))
        if not (name and equals):
            raise typer.BadParameter(
                f"{quoted(text)} must have the form NAME=VALUE", param_hint=option
            )
        if name in pairs:
            raise typer.BadParameter(f"{name} must not be repeated", param_hint=option)
        pairs[name] = value
    return pairs


def number_list(option: str, text: str | None) -> list[int]:
    """Split the value of an option of the form 1,2,4."""
    if text is None or not _NUMBERS.fullmatch(text):
        raise typer.BadParameter(
            f"{quoted(text or '')} must have the form 1,2,4", param_hint=option
        )
    return [int(number) for number in text.split(",")]


def batch_sizes(text: str | None, batch_max: int) -> list[int]:
    """Return the batches of --batches, or those up to --batch."""
    if text is not None:
        return sorted(set(number_list("--batches", text)))
    powers = [1 << bit for bit in range(batch_max.bit_length())]
    return sorted({*powers, batch_max})


def refuse(problems: Sequence[Problem | Exception | str]) -> NoReturn:
    """Print problems, and exit 1."""
    shown = [str(problem) for problem in problems[:_PROBLEMS_SHOWN_MAX]]
    if len(problems) > _PROBLEMS_SHOWN_MAX:
        shown.append(f"and {len(problems) - _PROBLEMS_SHOWN_MAX:,} more")
    fail(*shown)


def write_text(out: Path, text: str) -> None:
    """Write a file, or standard output where its name is ``-``; exit 1 if that fails."""
    if str(out) == "-":
        typer.echo(text, nl=False)
        return
    try:
        out.write_text(text, encoding="utf-8")
    except OSError as error:
        refuse([Problem(str(out), "the file", "", f"cannot be written: {reason_of(error)}")])
