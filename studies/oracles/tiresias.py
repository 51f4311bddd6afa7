"""Oracle of the environment ``tiresias``: the public simulator of Tiresias, 60 jobs."""

from collections.abc import Iterator
from pathlib import Path

from studies.oracles.oracle import PublishedComparison, PublishedFigure, exact
from studies.training.engine import simulate_jobs
from studies.training.runs.setup import JobsSetup, load

_MEANS_S = (  # policy, nodes, jobs on one node, mean completion time
    ("fifo", 4, False, 200.816667),
    ("srtf", 4, False, 192.116667),
    ("srsf", 4, False, 195.9),
    ("las", 4, False, 190.683333),
    ("tiresias-events", 4, False, 190.683333),
    ("fifo", 4, True, 219.183333),
    ("tiresias-events", 4, True, 190.683333),
    ("las", 4, True, 190.683333),
    *((policy, 32, False, 178.416667) for policy in ("fifo", "srtf", "srsf", "las")),
    ("tiresias-events", 32, False, 178.416667),
)
_DIGITS = 6


def mean_jct_s(data: Path, policy: str, nodes: int, *, consolidated: bool) -> float:
    """Run the 60 jobs on nodes of 4 GPUs."""
    setup = JobsSetup(
        policy=policy,
        environment="tiresias",
        workload=data / "traces" / "tiresias" / "60_job.csv",
        data=data,
        nodes=nodes,
        gpus=4,
        settings={"consolidated": consolidated},
    )
    environment, decider = load(setup)
    return simulate_jobs(environment, decider, policy).mean_jct_s


def _sixty_jobs(data: Path) -> Iterator[PublishedComparison]:
    for policy, nodes, consolidated, expected_s in _MEANS_S:
        mean_s = mean_jct_s(data, policy, nodes, consolidated=consolidated)
        what = f"{policy}, {4 * nodes} GPUs{', jobs on one node' * consolidated}"
        yield exact(what, mean_s, expected_s, _DIGITS)


ORACLES = (PublishedFigure(14, "Tiresias, 60 jobs, event-driven", _sixty_jobs),)
