"""``python -m tests.floods``: every flood to every port of real processes."""

import argparse
import asyncio
import sys

from tests.floods.flooding import GROWTH_MAX_MIB, FloodResult, flood_all
from tests.fuzz.targets import running_targets


def main() -> int:
    """Send the floods; return 1 if one costs more than it may."""
    argparse.ArgumentParser(prog="python -m tests.floods", description=__doc__).parse_args()
    results = asyncio.run(_flood())
    failed = [result for result in results if result.failed]
    for result in failed:
        print(
            f"{result.target}: {result.flood}: {result.process} grew by {result.memory_mib:.0f} "
            f"MiB (limit {GROWTH_MAX_MIB:.0f}); p99 of filter {result.filter_p99_ms:.1f} ms "
            f"(limit {result.filter_limit_ms:.1f})"
        )
    print(
        f"floods: {len(results)}  "
        f"worst_memory_mib: {max(result.memory_mib for result in results):.0f}  "
        f"worst_filter_ratio: {max(result.filter_ratio for result in results):.2f}"
    )
    return 1 if failed else 0


async def _flood() -> list[FloodResult]:
    async with running_targets() as targets:
        return await flood_all(targets, on_result=_show)


def _show(result: FloodResult) -> None:
    print(
        f"{result.target:20} {result.flood:20} {result.memory_mib:6.0f} MiB "
        f"({result.process})  filter {result.filter_p99_ms:6.1f} ms",
        flush=True,
    )


if __name__ == "__main__":
    sys.exit(main())
