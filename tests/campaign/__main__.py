"""``python -m tests.campaign``: many runs, each with the faults of its seed."""

import argparse
import os
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import as_completed

from tests.campaign.incidents import Incident, draw_incidents
from tests.campaign.run import Verdict, run_incidents, run_seed
from tests.campaign.shrinking import shrink
from workbench.series.process_pool import process_pool

CHUNK = 25  # runs that a process does between two reports
SHRUNK_MAX = 5  # failing seeds that are shrunk
PROGRESS_S = 10.0
KINDS = {  # of failures: attributes of a verdict, by their names in the last line
    "overcommits": "overcommits",
    "running_overcommits": "running_overcommits",
    "lost": "problems",
}


def main() -> int:
    """Run the campaign; return 1 if a run fails."""
    parser = argparse.ArgumentParser(prog="python -m tests.campaign", description=__doc__)
    parser.add_argument("--runs", type=int, default=1_000)
    parser.add_argument("--seed", type=int, default=1, help="of the first run")
    parser.add_argument("--active", type=int, choices=(1, 2), default=1, help="active replicas")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    options = parser.parse_args()
    if os.environ.get("PYTHONHASHSEED") != "0":  # the order of sets is part of a run
        os.environ["PYTHONHASHSEED"] = "0"
        os.execv(sys.executable, [sys.executable, "-m", "tests.campaign", *sys.argv[1:]])
    seeds = range(options.seed, options.seed + options.runs)
    progress = Progress(options.runs)
    for verdict in verdicts(seeds, options.active, options.processes):
        progress.add(verdict)
    for verdict in sorted(progress.failed, key=lambda failed: failed.seed)[:SHRUNK_MAX]:
        print_shrunk(verdict.seed, options.active)
    print(f"{progress.bound:,} pods bound, {options.active} active, {progress.seconds:,.0f} s")
    counts = [f"runs: {options.runs}"]
    for name, attribute in KINDS.items():
        count = sum(bool(getattr(verdict, attribute)) for verdict in progress.failed)
        counts.append(f"{name}: {count}")
    print(f"campaign: {'  '.join(counts)}")
    return 1 if progress.failed else 0


class Progress:
    """Counts of the runs so far, shown on the standard error every few seconds."""

    def __init__(self, runs: int) -> None:
        self.failed: list[Verdict] = []
        self.bound = 0
        self._runs = runs
        self._count = 0
        self._began_s = self._shown_s = time.monotonic()

    @property
    def seconds(self) -> float:
        return time.monotonic() - self._began_s

    def add(self, verdict: Verdict) -> None:
        """Count a run, and show it if it failed."""
        self._count += 1
        self.bound += verdict.bound
        if verdict.failed:
            self.failed.append(verdict)
            print(f"seed {verdict.seed} fails: {verdict.failures[0]}", file=sys.stderr)
        if time.monotonic() - self._shown_s > PROGRESS_S:
            self._shown_s = time.monotonic()
            print(
                f"{self._count:,} of {self._runs:,} runs, {len(self.failed)} failed, "
                f"{self._count / self.seconds:.0f} runs a second",
                file=sys.stderr,
            )


def verdicts(seeds: range, active: int, processes: int) -> Iterator[Verdict]:
    """Run the seeds in several processes; yield the verdicts as they come."""
    chunks = [seeds[begin : begin + CHUNK] for begin in range(0, len(seeds), CHUNK)]
    if processes == 1 or len(chunks) == 1:
        for seed in seeds:
            yield run_seed(seed, active=active)
        return
    with process_pool(processes) as pool:
        for future in as_completed(pool.submit(_run_chunk, chunk, active) for chunk in chunks):
            yield from future.result()


def _run_chunk(seeds: range, active: int) -> list[Verdict]:
    return [run_seed(seed, active=active) for seed in seeds]


def print_shrunk(seed: int, active: int) -> None:
    """Print the few incidents of a seed that suffice, what they lead to, and how to repeat it."""
    first = run_seed(seed, active=active)

    def fails(incidents: Sequence[Incident]) -> bool:
        verdict = run_incidents(seed, incidents, active=active)
        return verdict.failed and verdict.kinds == first.kinds

    incidents = shrink(draw_incidents(seed), fails)
    verdict = run_incidents(seed, incidents, active=active)
    print(f"seed {seed}, {active} active: these incidents suffice:")
    for incident in incidents:
        print(f"  {incident}")
    for problem in verdict.failures:
        print(f"  => {problem}")
    print(f"  again: make campaign RUNS=1 SEED={seed} ACTIVE={active}")


if __name__ == "__main__":
    sys.exit(main())
