"""Options and output that the commands about profiles share."""

import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Literal, NoReturn

import typer
from pydantic import TypeAdapter, ValidationError

from scheduler.cli.failure import fail
from scheduler.model.document_fields import Name
from scheduler.model.document_reader import Problem
from scheduler.model.documents import GridPoint
from scheduler.model.message_text import quoted, reason_of
from workbench.profiles.measured_rows import label

_PROBLEMS_SHOWN_MAX = 20
_NAME: TypeAdapter[str] = TypeAdapter(Name)
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


def number_list(
    option: str, text: str | None, axis: Literal["batch", "cpu", "gpu_percent"]
) -> list[int]:
    """Split the value of an option of the form 1,2,4; a profile may have each on that axis."""
    if text is None or not _NUMBERS.fullmatch(text):
        raise typer.BadParameter(
            f"{quoted(text or '')} must have the form 1,2,4", param_hint=option
        )
    numbers = [int(number) for number in text.split(",")]
    for number in numbers:
        try:
            GridPoint.model_validate({"batch": 1, "cpu": 1, "gpu_percent": 1, axis: number})
        except ValidationError as error:
            message = f"{number}: {error.errors()[0]['msg']}"
            raise typer.BadParameter(message, param_hint=option) from None
    return numbers


def function_name(option: str, text: str) -> str:
    """Return the name of a profile by that of a function or model."""
    try:
        return _NAME.validate_python(label(text))
    except ValidationError as error:
        message = f"{quoted(text)} is not a valid name: {error.errors()[0]['msg']}"
        raise typer.BadParameter(message, param_hint=option) from None


def batch_sizes(text: str | None, batch_max: int) -> list[int]:
    """Return the batches of --batches, or those up to --batch."""
    if text is not None:
        return sorted(set(number_list("--batches", text, "batch")))
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
