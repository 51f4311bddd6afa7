"""Start-up cost of the command line as a ratio to importing typer.

    python -m bench.startup [--rounds 10]

Each round runs `esg --help`, `esg agent --help` and `python -c "import typer"` in turn; the result
is the ratio of the least user plus system CPU times. It is compared with
``bench/ranges/startup.json``; the status is 1 if it is out of its range.
"""

import argparse
import subprocess
import sys
from collections.abc import Sequence
from resource import RUSAGE_CHILDREN, getrusage

from bench.thresholds import check_ranges

IMPORT_APP = "import sys; from scheduler.cli.commands import app; app(sys.argv[1:])"
PROGRAMS: dict[str, tuple[str, ...]] = {
    "typer": ("import typer",),
    "help": (IMPORT_APP, "--help"),
    "agent_help": (IMPORT_APP, "agent", "--help"),
}


def cpu_s(program: Sequence[str]) -> float:
    """Run a Python program and return its CPU time; that of `os.times` has steps of 10 ms."""
    before = getrusage(RUSAGE_CHILDREN)
    command = [sys.executable, "-c", *program]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    after = getrusage(RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main() -> int:
    """Measure, print and compare with the range."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=10)
    rounds = parser.parse_args().rounds
    times_s: dict[str, list[float]] = {name: [] for name in PROGRAMS}
    for _ in range(rounds):
        for name, program in PROGRAMS.items():
            times_s[name].append(cpu_s(program))
    minimum_s = {name: min(values) for name, values in times_s.items()}
    for name, value_s in minimum_s.items():
        print(f"{name:12} {1000 * value_s:6.0f} ms CPU")
    ratios = {
        f"{name}_vs_typer": minimum_s[name] / minimum_s["typer"] for name in ("help", "agent_help")
    }
    for name, ratio in ratios.items():
        print(f"{name}: {ratio:.2f}")
    return check_ranges("startup", ratios)


if __name__ == "__main__":
    sys.exit(main())
