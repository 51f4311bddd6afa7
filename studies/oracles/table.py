"""Table of comparisons in docs/jobs.md: the rows of the oracles that ran are written again."""

import re
from collections.abc import Iterable, Mapping, Sequence

from studies.oracles.oracle import PublishedComparison, PublishedFigure
from studies.page import blocks_of, markdown_row, markdown_table, with_blocks

_BLOCK = "oracles"
_ROW = re.compile(r"\| (\d+) \| .+ \|")
_HEAD = ("#", "compared", "published or expected", "found", "")
_HOLDS, _FAILS, _NOT_RUN = "holds", "does not hold", "not run"


def with_results(
    text: str,
    oracles: Sequence[PublishedFigure],
    results: Mapping[int, Sequence[PublishedComparison]],
) -> str:
    """Return the document with the rows of these results.

    Args:
        text: document; rows of oracles without results stay as they are.
        oracles: all oracles, in the order of the rows.
        results: comparisons by the number of their oracle.

    Raises:
        MarkError: the document has no place for the table.
    """
    lines: dict[int, list[str]] = {}
    for line in blocks_of(text).get(_BLOCK, "").splitlines():
        if row := _ROW.fullmatch(line):
            lines.setdefault(int(row[1]), []).append(line)
    for oracle in oracles:
        if oracle.number in results:
            lines[oracle.number] = _rows(oracle.number, results[oracle.number])
        elif oracle.number not in lines:
            lines[oracle.number] = [f"| {oracle.number} | {oracle.title} | | | {_NOT_RUN} |"]
    table = "".join(f"{line}\n" for oracle in oracles for line in lines[oracle.number])
    summary = _summary({oracle.number: lines[oracle.number] for oracle in oracles})
    return with_blocks(text, {_BLOCK: f"{summary}\n\n{markdown_table(_HEAD, ())}{table}"})


def _rows(number: int, comparisons: Iterable[PublishedComparison]) -> list[str]:
    cells = (
        (
            str(number),
            comparison.what,
            comparison.expected,
            comparison.result,
            _HOLDS if comparison.holds else _FAILS,
        )
        for comparison in comparisons
    )
    return list(map(markdown_row, cells))


def _summary(lines: Mapping[int, Sequence[str]]) -> str:
    """Count the oracles of which all comparisons hold, and list the others."""
    ends = {number: [row.rsplit(" | ", 1)[-1] for row in rows] for number, rows in lines.items()}
    holding = sum(all(end == f"{_HOLDS} |" for end in rows) for rows in ends.values())
    text = f"{holding} of {len(lines)} oracles hold."
    for verdict in (_FAILS, _NOT_RUN):
        numbers = [str(number) for number, rows in ends.items() if f"{verdict} |" in rows]
        text += f" {verdict.capitalize()}: {', '.join(numbers)}." if numbers else ""
    return text
