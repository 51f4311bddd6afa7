"""Events a second of the simulator, next to those of another commit.

    python -m bench.simulator_against COMMIT [--compiled FOLDER]

The commit is checked out into a folder of its own. All sides run in turn, each run in a process of
its own, by CPU time; a ratio is the median of those of the rounds. The start of a run is left out:
a short run is subtracted from a long one. Commits before the package `workbench` have no fixed
shares: they are compared with `resizable`, so that both do the same work. ``--compiled`` names a
folder with this project as the image has it, as sweeps run it: it must give the same results, byte
by byte, or the exit status is 1.
"""

import argparse
import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import NamedTuple

REPOSITORY = Path(__file__).parents[1]
SETTING, ROUNDS = "moderate-normal", 3
FEW, MANY = 2_000, 12_000  # requests
POLICIES = ("warm", "exact")

_RUN = """
import hashlib, json
import bench.simulator as simulator
scenario_type, simulate = simulator.Scenario, simulator.simulate
if "resizable" in getattr(scenario_type, "model_fields", ()):  # before, it was the default
    simulator.Scenario = lambda **keys: scenario_type(**{{"resizable": True, **keys}})
def recorded(*arguments, **keys):
    global result
    result = simulate(*arguments, **keys)
    return result
simulator.simulate = recorded
simulator.run({policy!r}, {setting!r}, {few})  # compiles and loads the kernels
few, many = (simulator.run({policy!r}, {setting!r}, count) for count in ({few}, {many}))
digest = hashlib.sha256(json.dumps(result.as_json()).encode()).hexdigest()
print(json.dumps([(many.events - few.events) / (many.cpu_s - few.cpu_s), many.events, digest]))
"""


class SimulatorSpeed(NamedTuple):
    """Events a second of a run, its events, and the digest of its result."""

    events_per_s: float
    events: int
    digest: str


@dataclass(frozen=True, slots=True)
class Side:
    """Code that is compared: a checkout, and folders of Python's path before it."""

    name: str
    checkout: Path
    path: tuple[Path, ...] = ()

    def run(self, policy: str) -> SimulatorSpeed:
        """Run once."""
        code = _RUN.format(policy=policy, setting=SETTING, few=FEW, many=MANY)
        python_path = os.pathsep.join(map(str, (*self.path, self.checkout)))
        done = subprocess.run(
            [sys.executable, "-P", "-c", code],
            cwd=self.checkout,
            env={**os.environ, "PYTHONPATH": python_path},
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            sys.exit(f"error: the run of {self.name} failed:\n{done.stderr}")
        return SimulatorSpeed(*json.loads(done.stdout.splitlines()[-1]))


def compare(policy: str, sides: list[Side]) -> bool:
    """Measure all sides in turn, and print the medians; return true if equal code is equal."""
    rounds = [[side.run(policy) for side in sides] for _ in range(ROUNDS)]
    for side, runs in zip(sides, zip(*rounds, strict=True), strict=True):
        events_per_s = median(run.events_per_s for run in runs)
        ratio = median(
            run.events_per_s / before.events_per_s
            for run, (before, *_) in zip(runs, rounds, strict=True)
        )
        print(
            f"{policy:6} {side.name:15} {runs[0].events / MANY:5.2f} events a request "
            f"{events_per_s:9,.0f} events/s  {ratio:.2f}",
            flush=True,
        )
    digests = {run.digest for runs in rounds for run in runs[1:]}
    print(f"{policy}: {'the results here are equal' if len(digests) == 1 else 'results differ'}")
    print(f"{policy}_events_per_s: {events_per_s:.0f}  vs_before: {ratio:.2f}")
    return len(digests) == 1


def main() -> int:
    """Compare all policies."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("commit")
    parser.add_argument("--compiled", type=Path)
    options = parser.parse_args()
    with TemporaryDirectory() as temporary:
        before = Path(temporary) / "before"
        git = ("git", "-C", str(REPOSITORY), "worktree")
        subprocess.run(
            [*git, "add", "--quiet", "--detach", str(before), options.commit], check=True
        )
        sides = [Side(options.commit, before), Side("here", REPOSITORY)]
        if options.compiled is not None:
            sides.append(Side("here, compiled", REPOSITORY, (options.compiled.resolve(),)))
        try:
            is_equal = [compare(policy, sides) for policy in POLICIES]
        finally:
            subprocess.run([*git, "remove", "--force", str(before)], check=True)
    return 0 if all(is_equal) else 1


if __name__ == "__main__":
    sys.exit(main())
