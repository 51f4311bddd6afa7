"""Fill a cluster with the openb trace, and compare the figures with their ranges.

    python -m bench.openb [options of studies.packing.study]

The study writes ``docs/placement.md``; the exit status is 1 where a figure is out of its range in
``bench/ranges/openb.json``.
"""

from functools import wraps
from pathlib import Path

import typer

from bench.thresholds import check_ranges
from studies.packing import study


@wraps(study.main)  # the study's options
def main(data: Path, seeds: int, out: Path) -> None:
    """Run the study and check its figures."""
    raise typer.Exit(check_ranges("openb", study.main(data, seeds, out)))


if __name__ == "__main__":
    typer.run(main)
