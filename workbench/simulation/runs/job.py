"""One run as it is ordered, and what became of it."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from workbench.simulation.result import Result
from workbench.simulation.scenario import Scenario
from workbench.simulation.workloads.parameters import Workload

_ARRIVALS = 2  # the engine spawns 0 and 1 of the seed, so arrivals share no stream with it


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """One policy, under one setting, from one seed.

    Attributes:
        policy: as the registry knows it.
        setting: a name for scenario and workload.
        seed: of arrivals and of all else that is left to chance.
        scenario: its own seed is not used.
        workload: when requests arrive.
        requests: how many, where the workload does not end before; None: all that it has.
        folder: for the files of this run; None: it writes none.
        trace_requests: the Chrome trace ends when so many requests have ended; 0: no trace.
    """

    policy: str
    setting: str
    seed: int
    scenario: Scenario
    workload: Workload
    requests: int | None
    folder: Path | None = None
    trace_requests: int = 0

    def __str__(self) -> str:
        return f"{self.policy}, {self.setting}, seed {self.seed}"

    @property
    def arrivals_seed(self) -> np.random.SeedSequence:
        """The same for every policy, so that all are asked for the same."""
        return np.random.SeedSequence(self.seed, spawn_key=(_ARRIVALS,))


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What a run came to.

    Attributes:
        job: what was ordered.
        result: of all requests that ended; None where it failed before the first could arrive.
        failure: why not all requests arrived; empty where it is whole.
        stopped: whether somebody stopped it, which is a failure too.
        wall_s: how long it took.
        setup_s: of that, until the policy was made: some search before the first request.
    """

    job: Job
    result: Result | None
    failure: str = ""
    stopped: bool = False
    wall_s: float = 0.0
    setup_s: float = 0.0

    @property
    def whole(self) -> bool:
        """Whether all requests that were ordered have ended."""
        return not self.failure
