"""Hold the simulator of training clusters to published figures.

    python -m bench.oracles --data DIR [--only N[,N…]]

DIR has the traces and results of others: ``traces/`` and ``training/``. Prints a line for each
comparison and a last line with the number of oracles that hold; exits with 1 if one that is
implemented does not hold.
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from bench.oracles.catalogue import ORACLES
from bench.oracles.oracle import Oracle


def main(arguments: Sequence[str] | None = None) -> int:
    """Compare and print."""
    parser = argparse.ArgumentParser(prog="python -m bench.oracles", description=__doc__)
    parser.add_argument("--data", type=Path, required=True, help="folder with the data of others")
    parser.add_argument("--only", metavar="N[,N…]", help="numbers of oracles; default: all")
    options = parser.parse_args(arguments)
    if not options.data.is_dir():
        parser.error(f"--data {options.data}: no such folder")
    numbers = {int(number) for number in options.only.split(",")} if options.only else None
    selected = [o for o in ORACLES if numbers is None or o.number in numbers]
    outcomes = [_compared(oracle, options.data) for oracle in selected]
    holding = sum(outcome is True for outcome in outcomes)
    missing = sum(outcome is None for outcome in outcomes)
    print(
        f"oracles: {holding} of {len(selected)} hold"
        + (f" ({missing} not implemented)" if missing else "")
    )
    return int(False in outcomes)


def _compared(oracle: Oracle, data: Path) -> bool | None:
    """Print the lines of an oracle; return None where it is not implemented."""
    if oracle.compare is None:
        print(f"#{oracle.number} {oracle.title}: {oracle.reason}")
        return None
    holds = True
    for comparison in oracle.compare(data):
        print(f"#{oracle.number} {comparison.text}", flush=True)
        holds = holds and comparison.holds
    return holds


if __name__ == "__main__":
    sys.exit(main())
