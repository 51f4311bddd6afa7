"""Measure the CPU time of policies of training clusters on a published workload of 160 jobs.

    python -m bench.jobs --data DIR [--policy NAME[,NAME…]]

Prints a line for each policy: seconds of CPU without reading files, next to a limit for a core that
nothing else uses. Exits with 1 if one is above its limit.
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from time import process_time

from studies.oracles.pollux import workload_file
from studies.training.engine import simulate_jobs
from studies.training.runs.setup import JobsSetup, load

_LIMITS_S = {"tiresias": 1.0, "optimus": 3.0, "pollux": 60.0}
_WORKLOAD = 6


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m bench.jobs", description=__doc__)
    parser.add_argument("--data", type=Path, required=True, help="folder with the data of others")
    parser.add_argument("--policy", default=",".join(_LIMITS_S), help="default: all")
    options = parser.parse_args(arguments)
    policies = options.policy.split(",")
    unknown = [policy for policy in policies if policy not in _LIMITS_S]
    if unknown:
        parser.error(f"--policy {unknown[0]}: has no limit; there are {', '.join(_LIMITS_S)}")
    slow = 0
    for policy in policies:
        cpu_s = _cpu_s(options.data, policy)
        slow += cpu_s > _LIMITS_S[policy]
        print(f"{policy}: {cpu_s:.2f} s of CPU, limit {_LIMITS_S[policy]:g} s", flush=True)
    return int(slow > 0)


def _cpu_s(data: Path, policy: str) -> float:
    """Return the CPU time of one run; kernels are compiled by a generated workload before."""
    warm, decider = load(JobsSetup(policy=policy, environment="pollux"))
    simulate_jobs(warm, decider, policy)
    file = workload_file(data, _WORKLOAD)
    environment, decider = load(
        JobsSetup(policy=policy, environment="pollux", workload=file, data=data)
    )
    began_s = process_time()
    simulate_jobs(environment, decider, policy)
    return process_time() - began_s


if __name__ == "__main__":
    sys.exit(main())
