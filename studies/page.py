"""Pages of ``docs/`` that a study writes: tables, paragraphs, and blocks between marks."""

import re
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

REPOSITORY = Path(__file__).parents[1]
PAGE_COLUMNS = 120
MEASURED = "measured-"
"""Prefix of the blocks of docs/paper.md on measured profiles."""
_MARK = re.compile(r"(<!-- made: (?P<name>[a-z-]+) -->\n).*?(<!-- /made -->)", re.DOTALL)


class MarkError(ValueError):
    """Document whose marks do not match the generated blocks."""


def with_blocks(text: str, generated: Mapping[str, str]) -> str:
    """Insert the generated blocks between the marks of one part of the document.

    The names of the part with measured profiles begin with `MEASURED`.

    Raises:
        MarkError: the marks of the part do not match the blocks.
    """
    names = (match["name"] for match in _MARK.finditer(text))
    is_measured = any(name.startswith(MEASURED) for name in generated)
    places = [name for name in names if name.startswith(MEASURED) == is_measured]
    if sorted(places) != sorted(generated):
        raise MarkError(
            f"has places for {', '.join(places) or 'nothing'}, not {', '.join(generated)}"
        )
    return _MARK.sub(
        lambda match: (
            f"{match[1]}{generated[name]}{match[3]}"
            if (name := match["name"]) in generated
            else match[0]
        ),
        text,
    )


def markdown_table(head: Sequence[str], rows: Iterable[Iterable[str]]) -> str:
    """Render a table in Markdown."""
    lines = [head, ["---"] * len(head), *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def aligned_table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Format a Markdown table whose columns but the first are aligned to the right."""
    lines = [head, ["---"] + ["---:"] * (len(head) - 1), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def percent(ratio: float) -> str:
    """Format a ratio as a percentage with a sign."""
    return f"{100 * ratio:+.1f} %"


def filled(block: str) -> str:
    """Wrap a paragraph; return any other block unchanged."""
    if block.startswith(("#", "|", "-", "<")):
        return block
    return textwrap.fill(block, PAGE_COLUMNS, break_on_hyphens=False)
