"""Events a second of the simulator, next to those of another commit.

    python -m bench.simulator_against COMMIT

The commit is checked out into a folder of its own. Both run in turn, each run in a process of its
own, by CPU time; the medians are compared. Commits before the package `workbench` have no fixed
shares: they are compared with `resizable`, so that both do the same work.
"""

import os
import subprocess
import sys
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

REPOSITORY = Path(__file__).parents[1]
POLICY, SETTING, REQUESTS, ROUNDS = "exact", "moderate-normal", 20_000, 3

_RUN = """
import json, sys
import bench.simulator as simulator
scenario_type = simulator.Scenario
if "resizable" in getattr(scenario_type, "model_fields", ()):  # before, it was the default
    simulator.Scenario = lambda **keys: scenario_type(**{{"resizable": True, **keys}})
simulator.run({policy!r}, {setting!r}, 1_000)  # compiles and loads the kernels
measured = simulator.run({policy!r}, {setting!r}, {requests})
print(json.dumps([measured.events, measured.cpu_s]))
"""


def events_per_s(folder: Path) -> float:
    """Run once with the code of a folder."""
    code = _RUN.format(policy=POLICY, setting=SETTING, requests=REQUESTS)
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(folder)},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        sys.exit(f"error: the run in {folder} failed:\n{done.stderr}")
    events, cpu_s = map(float, done.stdout.splitlines()[-1].strip("[]").split(","))
    return events / cpu_s


def main(commit: str) -> int:
    """Measure both in turn, and print the medians."""
    with TemporaryDirectory() as temporary:
        before = Path(temporary) / "before"
        git = ("git", "-C", str(REPOSITORY), "worktree")
        subprocess.run([*git, "add", "--quiet", "--detach", str(before), commit], check=True)
        try:
            rounds = [(events_per_s(before), events_per_s(REPOSITORY)) for _ in range(ROUNDS)]
        finally:
            subprocess.run([*git, "remove", "--force", str(before)], check=True)
    for then, now in rounds:
        print(f"{commit}: {then:,.0f} events/s; here: {now:,.0f} events/s")
    now_per_s, before_per_s = median(now for _, now in rounds), median(then for then, _ in rounds)
    print(f"events_per_s: {now_per_s:.0f}  vs_before: {now_per_s / before_per_s:.2f}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
