"""A sweep of the simulator by one Dask worker of this machine, and by two.

    python -m bench.sweep

Each time is that of the whole command, from its start to its figures, the start of its workers
included. The exit status is 1 where the figures of a run depend on the number of workers.
"""

import json
import subprocess
import sys
from pathlib import Path
from time import perf_counter
from typing import Any

ESG = str(Path(sys.executable).with_name("esg"))
SEEDS, REQUESTS = 12, 5_000
WORKERS = (1, 2)


def main() -> int:
    """Run the sweep with each number of workers; print times and the ratio."""
    took_s: list[float] = []
    runs: list[Any] = []
    for workers in WORKERS:
        began_s = perf_counter()
        runs.append(_runs(workers))
        took_s.append(perf_counter() - began_s)
        print(f"{workers} workers: {len(runs[-1])} runs in {took_s[-1]:.1f} s", flush=True)
    print(f"two workers are {took_s[0] / took_s[1]:.2f} times as fast as one")
    if runs[0] != runs[1]:
        print("the figures depend on the number of workers", file=sys.stderr)
        return 1
    return 0


def _runs(workers: int) -> Any:
    seeds = ",".join(map(str, range(1, SEEDS + 1)))
    sweep = ("--policy", "warm,exact", "--seed", seeds, "--requests", str(REQUESTS))
    processes = ("--dask", "local", "--jobs", str(workers))
    command = [ESG, "simulate", *sweep, *processes, "--json"]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    return json.loads(done.stdout)["runs"]


if __name__ == "__main__":
    sys.exit(main())
