"""Measure beside each claim of a published scheduler, and write the table.

    python -m studies.claims --data DIR [--only SYSTEM[,SYSTEM…]] [--write docs/claims.md]

DIR has the traces of others. Prints a line for each comparison. With --write the table of the
document gets the rows that were measured; the others stay.
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from studies.claims.catalogue import CLAIMS
from studies.claims.claim import claim_result, overall
from studies.claims.table import with_claims


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m studies.claims", description=__doc__)
    parser.add_argument("--data", type=Path, required=True, help="folder with the data of others")
    parser.add_argument("--only", metavar="SYSTEM[,SYSTEM…]", help="systems; default: all")
    parser.add_argument("--write", metavar="FILE", type=Path, help="document with the table")
    options = parser.parse_args(arguments)
    if not options.data.is_dir():
        parser.error(f"--data {options.data}: no such folder")
    names = {claim.system for claim in CLAIMS}
    selected = set(options.only.split(",")) if options.only else names
    if unknown := sorted(selected - names):
        parser.error(f"--only {unknown[0]}: no such system; there are {', '.join(sorted(names))}")
    for claim in CLAIMS:
        if claim.system not in selected:
            continue
        changes = claim.measure(options.data) if claim.measure else ()
        for change in changes:
            print(f"{claim.system}: {change.text} ({change.verdict})", flush=True)
        if changes:
            print(f"{claim.system}: {overall(changes)}", flush=True)
        if options.write:
            text = options.write.read_text(encoding="utf-8")
            results = {claim.system: claim_result(claim, changes)}
            options.write.write_text(with_claims(text, CLAIMS, results), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
