"""Job and outcome of one run."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

import numpy as np

from workbench.simulation.result import Result
from workbench.simulation.scenario import Scenario
from workbench.simulation.workloads.parameters import Workload

_NO_FILE_NAME = re.compile(r"=(?=-)|[^A-Za-z0-9.]+")  # "=-" becomes two hyphens: a sign stays
_SWEPT = r"[\w.]+=-?[A-Za-z0-9.]+(-[A-Za-z0-9.]+)*"
_LEGIBLE = re.compile(rf"({_SWEPT}(, {_SWEPT})*)?", re.ASCII)
_ARRIVALS = 2  # the engine spawns 0 and 1 of the seed, so arrivals share no stream with it

Progress = Callable[[int], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulationJob:
    """One policy, under one setting, from one seed.

    Attributes:
        policy: name in the registry.
        setting: name for scenario and workload.
        seed: seed of arrivals and of everything else that is random.
        scenario: cluster and its mechanisms.
        workload: arrival process of the requests.
        requests: maximum number of requests. Default: all that the workload has.
        folder: folder for the files of this run; None: no files.
        trace_requests: number of requests in the Chrome trace; 0: no trace.
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
    def file_stem(self) -> str:
        """Name of the run's folder or file: letters, digits, hyphens and dots.

        Swept values that have other characters could share a name; a hash tells them apart.
        """
        _, _, values = self.setting.partition(", ")
        name = f"{self.policy}-{self.setting}"
        if not _LEGIBLE.fullmatch(values):
            name += f"-{sha256(values.encode()).hexdigest()[:8]}"
        return _NO_FILE_NAME.sub("-", f"{name}-{self.seed}")

    @property
    def arrivals_seed(self) -> np.random.SeedSequence:
        """Seed of the arrivals, the same for every policy, so that all serve the same requests."""
        return np.random.SeedSequence(self.seed, spawn_key=(_ARRIVALS,))


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """Result or failure of a job.

    Attributes:
        result: result of all requests that ended; None if the run failed before the first arrival.
        failure: reason why not all requests arrived; empty if all did.
        wall_s: duration of the run.
    """

    job: SimulationJob
    result: Result | None
    failure: str = ""
    wall_s: float = 0.0

    @property
    def whole(self) -> bool:
        """True if all requests of the job have ended."""
        return not self.failure
