"""``python -m tests.fuzz``: mutated requests to every port of real processes."""

import argparse
import asyncio
import sys
import time

from tests.fuzz.fuzzing import FuzzReport, fuzz
from tests.fuzz.targets import running_targets

PROGRESS_S = 10.0
SHOWN_MAX = 10


def main() -> int:
    """Send the requests; return 1 if a process fails."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--requests", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--first", type=int, default=0, help="number of the first request")
    options = parser.parse_args()
    report = asyncio.run(
        _fuzz(options.seed, range(options.first, options.first + options.requests))
    )
    for (name, status), count in sorted(report.statuses.items()):
        print(f"{name:20} {status:22} {count:9,}")
    for text in [*report.server_errors, *report.failures][:SHOWN_MAX]:
        print(text[:2_000])
    if report.failed:
        print(f"again: make fuzz REQUESTS=1 SEED={options.seed} FIRST=NUMBER")
    print(f"failures: {len(report.failures)}")
    print(f"fuzz: requests: {report.requests}  5xx: {len(report.server_errors)}")
    return 1 if report.failed else 0


async def _fuzz(seed: int, numbers: range) -> FuzzReport:
    shown_s = began_s = 0.0

    def show(report: FuzzReport) -> None:
        nonlocal shown_s, began_s
        began_s = began_s or time.monotonic()
        if time.monotonic() - shown_s > PROGRESS_S:
            shown_s = time.monotonic()
            rate = report.requests / (shown_s - began_s)
            print(f"{report.requests:,} requests, {rate:,.0f} a second", file=sys.stderr)

    async with running_targets() as targets:
        return await fuzz(targets, seed=seed, numbers=numbers, on_progress=show)


if __name__ == "__main__":
    sys.exit(main())
