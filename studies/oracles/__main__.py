"""Hold the simulator of training clusters to published figures.

    python -m studies.oracles --data DIR [--only N[,N…]] [--write docs/jobs.md]

DIR has the traces and results of others: ``traces/`` and ``training/``. Prints a line for each
comparison and a last line with the number of oracles that hold; exits with 1 if one does not. With
--write the table of the document gets the rows of each oracle as soon as it has run.
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from studies.oracles.catalogue import ORACLES
from studies.oracles.oracle import PublishedComparison, PublishedFigure
from studies.oracles.table import with_results
from studies.page import MarkError


def main(arguments: Sequence[str] | None = None) -> int:
    """Compare and print."""
    parser = argparse.ArgumentParser(prog="python -m studies.oracles", description=__doc__)
    parser.add_argument("--data", type=Path, required=True, help="folder with the data of others")
    parser.add_argument("--only", metavar="N[,N…]", help="numbers of oracles; default: all")
    parser.add_argument("--write", metavar="FILE", type=Path, help="document with the table")
    options = parser.parse_args(arguments)
    if not options.data.is_dir():
        parser.error(f"--data {options.data}: no such folder")
    selected = list(ORACLES)
    if options.only:
        numbers = options.only.split(",")
        if unknown := sorted(set(numbers) - {str(oracle.number) for oracle in ORACLES}):
            parser.error(f"--only {unknown[0]}: no such oracle; there are 1 to {len(ORACLES)}")
        selected = [oracle for oracle in ORACLES if str(oracle.number) in numbers]
    if options.write:
        try:
            _write(options.write, {})  # so that a wrong document is reported before the runs
        except (OSError, MarkError) as error:
            parser.error(f"--write {options.write}: {error}")
    holding = 0
    for oracle in selected:
        comparisons = _compared(oracle, options.data)
        holding += all(comparison.holds for comparison in comparisons)
        if options.write:
            _write(options.write, {oracle.number: comparisons})
    print(f"oracles: {holding} of {len(selected)} hold")
    return int(holding < len(selected))


def _compared(oracle: PublishedFigure, data: Path) -> list[PublishedComparison]:
    """Print the lines of an oracle as they come."""
    comparisons = []
    for comparison in oracle.compare(data):
        print(f"#{oracle.number} {comparison.text}", flush=True)
        comparisons.append(comparison)
    return comparisons


def _write(document: Path, results: dict[int, list[PublishedComparison]]) -> None:
    text = document.read_text(encoding="utf-8")
    document.write_text(with_results(text, ORACLES, results), encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
