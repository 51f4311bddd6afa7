"""Oracle of the environment ``chronus``: guarantees, best effort, and admission by brute force."""

from collections.abc import Iterator, Sequence
from itertools import combinations, product
from math import inf
from pathlib import Path
from random import Random
from statistics import fmean

from studies.oracles.oracle import PublishedComparison, PublishedFigure, equal_count, order
from studies.training.engine import simulate_jobs
from studies.training.policies.chronus import Chronus
from studies.training.policies.chronus_admission import LeaseRequest, solve
from studies.training.result import JobsResult
from studies.training.runs.setup import JobsSetup, load

_NODES, _GPUS = 16, 8  # the first 3,000 jobs request 84 % of them
_CASES = 200
_BRANCHES = 1000


def best_admission_score(
    requests: Sequence[LeaseRequest], admitted_count: int, capacity: int
) -> float:
    """Return the largest value of admitted jobs, from all sets of deadlines and all leases."""
    choices = [
        [*range(len(request.options))]
        if number < admitted_count
        else [None, *range(len(request.options))]
        for number, request in enumerate(requests)
    ]
    best = -inf
    for choice in product(*choices):
        picked = [
            (request, request.options[option])
            for request, option in zip(requests, choice, strict=True)
            if option is not None
        ]
        value = sum(option[1] for _, option in picked)
        if value > best and _fits([(r.gpus, r.needed, o[0]) for r, o in picked], {}, capacity):
            best = value
    return best


def _fits(jobs: Sequence[tuple[int, int, int]], used: dict[int, int], capacity: int) -> bool:
    if not jobs:
        return True
    gpus, needed, available = jobs[0]
    return any(
        all(used.get(lease, 0) + gpus <= capacity for lease in leases)
        and _fits(jobs[1:], {**used, **{n: used.get(n, 0) + gpus for n in leases}}, capacity)
        for leases in combinations(range(available), needed)
    )


def drawn_requests(random: Random) -> list[LeaseRequest]:
    """Return a few jobs with one or two deadlines."""
    requests = []
    for number in range(random.randint(1, 4)):
        first = random.randint(1, 4)
        options = [(first, float(random.randint(1, 5)))]
        if random.random() < 0.5:
            options.append((first + random.randint(1, 2), float(random.randint(1, 3))))
        needed = random.randint(1, first)
        gpus = random.choice((1, 2, 4))
        requests.append(LeaseRequest(f"j{number}", gpus, needed, tuple(options)))
    return requests


def _admission(data: Path) -> Iterator[PublishedComparison]:
    for trace in ("mix1", "slo"):
        result, policy = _run(data, trace, "chronus")
        accepted = [job for job in result.jobs if job.name in policy.accepted]
        met = sum(job.end_s <= job.deadline_s for job in accepted)
        requested = sum(job.deadline_s < inf for job in result.jobs)
        what = f"{trace}: admitted jobs, of {requested:,} with a deadline, that meet it"
        yield equal_count(what, met, max(len(accepted), 1))
        if trace == "mix1":
            earliest, _ = _run(data, trace, "edf")
            values_s = [_best_effort_s(result), _best_effort_s(earliest)]
            yield order(f"{trace}, JCT of best effort", ["chronus", "edf"], values_s)
    random = Random(0)
    equal = 0
    for _ in range(_CASES):
        requests = drawn_requests(random)
        solved = solve(requests, 0, 4, _BRANCHES)
        by_name = {request.name: request for request in requests}
        if solved is not None:
            value = sum(by_name[name].options[option][1] for name, option in solved[0].items())
            equal += value == best_admission_score(requests, 0, 4)
    yield equal_count("values of the integer program that equal brute force", equal, _CASES)


def _run(data: Path, trace: str, policy: str) -> tuple[JobsResult, Chronus]:
    setup = JobsSetup(
        policy=policy,
        environment="chronus",
        workload=data / "training" / "chronus" / f"philly-{trace}-first-3000.csv",
        data=data,
        nodes=_NODES,
        gpus=_GPUS,
        settings={"consolidated": True} if policy == "edf" else {},
    )
    environment, decider = load(setup)
    return simulate_jobs(environment, decider, policy), decider  # type: ignore[return-value]


def _best_effort_s(result: JobsResult) -> float:
    return fmean(job.jct_s for job in result.jobs if job.deadline_s == inf)


ORACLES = (PublishedFigure(26, "Chronus, deadlines of Philly jobs", _admission),)
