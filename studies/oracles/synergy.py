"""Oracles of the environment ``synergy``: the public simulator of Synergy, 100 jobs."""

from collections.abc import Iterator
from pathlib import Path

from studies.oracles.oracle import PublishedComparison, PublishedFigure, exact, near, order
from studies.training.engine import simulate_jobs
from studies.training.runs.setup import JobsSetup, load

_FOUR_NODES_S = {  # mode, order: mean completion time
    ("fair", "fifo"): 20271.9505,
    ("fair", "las"): 20250.9505,
    ("fair", "srtf"): 15882.9505,
    ("fair", "ftf"): 28737.9505,
    ("tune", "fifo"): 18297.9505,
    ("tune", "las"): 18615.9505,
    ("tune", "srtf"): 14784.9505,
    ("tune", "ftf"): 27999.9505,
    ("greedy", "fifo"): 19779.9505,
    ("greedy", "las"): 22266.9505,
    ("greedy", "srtf"): 15507.9505,
}
_SIXTEEN_NODES_S = {
    **{("fair", name): 10845.9505 for name in ("fifo", "las", "srtf", "ftf")},
    ("tune", "fifo"): 7848.9505,
    ("tune", "las"): 7848.9505,
    ("tune", "srtf"): 7857.9505,
}
_TOLERANCES_RATIO = {4: {"tune": 0.02, "greedy": 0.02}, 16: {"tune": 0.01}}  # without one: exact
_DIGITS = 6


def mean_jct_s(data: Path, mode: str, name: str, nodes: int) -> float:
    """Run the 100 jobs on nodes of 8 GPUs."""
    setup = JobsSetup(
        policy="synergy",
        environment="synergy",
        workload=data / "throughput" / "synergy" / "static_100job_6_3_1100.0",
        data=data,
        nodes=nodes,
        settings={"mode": mode, "order": name},
    )
    environment, decider = load(setup)
    return simulate_jobs(environment, decider, "synergy").mean_jct_s


def _static(
    data: Path, nodes: int, expected: dict[tuple[str, str], float]
) -> Iterator[PublishedComparison]:
    means_s = {}
    for (mode, name), expected_s in expected.items():
        means_s[mode, name] = mean_s = mean_jct_s(data, mode, name, nodes)
        what = f"synergy {mode}, {name}, {nodes} nodes"
        tolerance_ratio = _TOLERANCES_RATIO[nodes].get(mode)
        if tolerance_ratio is None:
            yield exact(what, mean_s, expected_s, _DIGITS)
        else:
            yield near(what, mean_s, expected_s, tolerance_ratio)
    for mode, name in means_s:
        if mode == "tune":
            values_s = [means_s["tune", name], means_s["fair", name]]
            yield order(f"{name}, {nodes} nodes", ["tune", "fair"], values_s)


ORACLES = (
    PublishedFigure(
        12, "Synergy, static trace, 4 nodes", lambda data: _static(data, 4, _FOUR_NODES_S)
    ),
    PublishedFigure(
        13, "Synergy, static trace, 16 nodes", lambda data: _static(data, 16, _SIXTEEN_NODES_S)
    ),
)
