"""Synergy by the mix of models: equal times and GPUs, and models that need more CPUs or fewer.

The published gain is of such a mix, in a queue; the one trace that is public has an even one.
"""

from collections.abc import Sequence
from pathlib import Path
from statistics import fmean
from tempfile import TemporaryDirectory

import numpy as np

from studies.claims.claim import ClaimedChange
from studies.training.engine import simulate_jobs
from studies.training.environments.synergy_files import PROFILES_FILE, read_profiles
from studies.training.runs.setup import JobsSetup, load

_MIXES = {  # models of the measured profiles, evenly drawn
    "no image models": ("deepspeech", "gnmt", "lstm", "transformer"),
    "1 of 3 needs CPUs": ("alexnet", "gnmt", "transformer"),
    "2 of 3 need CPUs": ("alexnet", "shufflenet", "transformer"),
    "image models": ("alexnet", "shufflenet", "res18", "mobilenet", "res50"),
}
_SEEDS = range(3)
_JOBS = 100
_GAPS_S = {"idle": 6000.0, "busy": 450.0, "queue": 300.0}  # mean times between arrivals
_DURATION_LOG, _DURATION_SPREAD = 8.5, 1.0  # of the logarithms of seconds
_GPUS, _GPU_RATIOS = (1, 2, 4), (0.7, 0.2, 0.1)
_NODES = 4


def synergy_changes(data: Path) -> list[ClaimedChange]:
    """Compare full demands with proportional shares, by load and mix."""
    with TemporaryDirectory() as folder:
        return [
            ClaimedChange(
                what=f"mean JCT of `tune` against `fair`, {name} ({gap_s:g} s between arrivals)",
                claimed_ratio=1 / 3.4 - 1,
                changes_ratio={
                    mix: _change_ratio(data, Path(folder), mix, gap_s) for mix in _MIXES
                },
                at_best=True,
            )
            for name, gap_s in _GAPS_S.items()
        ]


def _change_ratio(data: Path, folder: Path, mix: str, gap_s: float) -> float:
    files = [_trace(data, folder, _MIXES[mix], gap_s, seed) for seed in _SEEDS]
    tune_s, fair_s = (
        fmean(_mean_jct_s(data, file, mode) for file in files) for mode in ("tune", "fair")
    )
    return tune_s / fair_s - 1


def _mean_jct_s(data: Path, file: Path, mode: str) -> float:
    setup = JobsSetup(
        policy="synergy",
        environment="synergy",
        workload=file,
        data=data,
        nodes=_NODES,
        settings={"mode": mode},
    )
    environment, policy = load(setup)
    return simulate_jobs(environment, policy, "synergy").mean_jct_s


def _trace(data: Path, folder: Path, models: Sequence[str], gap_s: float, seed: int) -> Path:
    """Write a trace in the published form."""
    profiles = read_profiles(data / PROFILES_FILE)
    random = np.random.Generator(np.random.PCG64(np.random.SeedSequence(seed)))
    submits_s = np.cumsum(random.exponential(gap_s, _JOBS)).round()
    durations_s = random.lognormal(_DURATION_LOG, _DURATION_SPREAD, _JOBS)
    gpus = random.choice(_GPUS, _JOBS, p=_GPU_RATIOS)
    kinds = random.integers(len(models), size=_JOBS)
    lines = []
    for number in range(_JOBS):
        model = models[int(kinds[number])]
        iterations = max(int(durations_s[number] / profiles[model].iteration_s), 1)
        lines.append(f"{number},{model},{submits_s[number]},{iterations},{gpus[number]}\n")
    file = folder / f"trace-{seed}"
    file.write_text("".join(lines), encoding="utf-8")
    return file
