"""Pages of ``docs/`` that a study writes: tables, paragraphs, and blocks between marks."""

import re
import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TimeRemainingColumn

from scheduler import __version__
from scheduler.cli.failure import fail
from scheduler.model.document_reader import DocumentError
from scheduler.model.message_text import reason_of
from workbench.reports.renderer import MissingReportLibraryError

REPOSITORY = Path.cwd()  # the code may be the compiled copy below `build`
_COLUMNS = 120


class MarkError(ValueError):
    """Document whose marks do not match the generated blocks."""


# -- files


def write_page(file: Path, text: str) -> None:
    """Wrap the paragraphs of a page, write it and print it."""
    blocks = re.split(r"\n{2,}", text.strip())
    page = "\n\n".join(map(_wrapped, blocks)) + "\n"
    file.write_text(page, encoding="utf-8")
    typer.echo(page, nl=False)


def _wrapped(block: str) -> str:
    if block.startswith(("#", "|", "-", "<")):  # a heading, a table, a list or a comment
        return block
    return textwrap.fill(block, _COLUMNS, break_on_hyphens=False)


def progress_bar() -> Progress:
    """Create a bar on standard error that counts and estimates the remaining time."""
    return Progress(
        "{task.description}",
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        console=Console(stderr=True),
    )


@contextmanager
def errors_of(path: Path) -> Iterator[None]:
    """Exit with a message that names the path if a file there cannot be read, used or written."""
    try:
        yield
    except (
        OSError,
        UnicodeDecodeError,
        DocumentError,
        MarkError,
        MissingReportLibraryError,
    ) as error:
        fail(f"{path}: {reason_of(error)}")


def update_document(
    document: Path,
    generated: Mapping[str, str],
    prefix: str = "",
    figures: Mapping[str, bytes] | None = None,
) -> None:
    """Print the generated blocks, and write them into a document and figures into its folder.

    An error ends the command.
    """
    typer.echo("\n".join(generated.values()))
    figures = figures or {}
    with errors_of(document):
        text = with_blocks(document.read_text(encoding="utf-8"), generated, prefix)
        document.write_text(text, encoding="utf-8")
        for name, png in figures.items():
            (document.parent / name).write_bytes(png)
    typer.echo(f"wrote {', '.join(map(str, [document, *figures]))}", err=True)


# -- blocks between marks


def blocks_of(text: str, prefix: str = "") -> dict[str, str]:
    """Return the blocks between the marks of one part of the document, by name."""
    return {match[2]: match[3] for match in _marks(prefix).finditer(text)}


def with_blocks(text: str, generated: Mapping[str, str], prefix: str = "") -> str:
    """Insert the generated blocks between the marks of one part of the document.

    Args:
        text: document with marks.
        generated: blocks by name, which is a word without a hyphen.
        prefix: beginning of the part's marks, before the names: `measured-`. Default: none.

    Raises:
        MarkError: the marks of the part do not match the blocks.
    """
    marks = _marks(prefix)
    names = [match[2] for match in marks.finditer(text)]
    if sorted(names) != sorted(generated):
        raise MarkError(
            f"has places for {', '.join(names) or 'nothing'}, not {', '.join(generated)}"
        )
    return marks.sub(lambda match: f"{match[1]}{generated[match[2]]}{match[4]}", text)


def _marks(prefix: str) -> re.Pattern[str]:
    return re.compile(rf"(<!-- made: {prefix}([a-z]+) -->\n)(.*?)(<!-- /made -->)", re.DOTALL)


# -- text


def markdown_row(cells: Iterable[str]) -> str:
    """Render a row of a table, without the end of the line."""
    return f"| {' | '.join(cells)} |"


def markdown_table(
    head: Sequence[str], rows: Iterable[Iterable[str]], *, numeric: bool = False
) -> str:
    """Render a table; with ``numeric`` all columns but the first are aligned to the right."""
    rule = ["---", *["---:" if numeric else "---"] * (len(head) - 1)]
    return "".join(f"{markdown_row(row)}\n" for row in [head, rule, *rows])


def plus_minus(x: float, x_error: float | None, digits: int, sign: str = "") -> str:
    """Format a number, and its error if there is one; sign ``+`` stands before positive numbers."""
    text = f"{x:{sign},.{digits}f}"
    return text if x_error is None else f"{text} ± {x_error:,.{digits}f}"


def percent(ratio: float) -> str:
    """Format a ratio as a percentage with a sign."""
    return f"{100 * ratio:+.1f} %"


def made_by(command: str) -> str:
    """Begin the sentence that says how the figures of a page were made."""
    return f"Made by `{command}` with esg-scheduler {__version__}"


def repeated(option: str, values: Iterable[str]) -> str:
    """Format an option that a command has once for each value."""
    return "".join(f" {option} {value}" for value in values)
