"""Fill a cluster with the openb trace, and compare the figures with their ranges.

    python -m bench.openb [options of studies.packing.study]

The study writes ``docs/placement.md``; the exit status is 1 where a figure is out of its range in
``bench/ranges/openb.json``.
"""

import sys

import typer

from bench.thresholds import check_ranges
from studies.packing import study

if __name__ == "__main__":
    command = typer.Typer(add_completion=False)
    command.command()(study.main)
    sys.exit(check_ranges("openb", command(standalone_mode=False)))
