"""Configurations, candidates and plans: what the search answers and placement takes."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

MS_PER_HOUR = 3_600_000.0


@dataclass(frozen=True, slots=True)
class Prices:
    """Dollars per hour (defaults: the ESG paper's, a whole A100 being 7 x 0.67).

    ``gpu_hour_of`` has the price of a whole GPU by its model, where it is not ``gpu_hour``.
    """

    vcpu_hour: float = 0.034
    gpu_hour: float = 4.69
    gpu_hour_of: Mapping[str, float] = field(default_factory=dict, hash=False)

    def per_request(
        self, latency_ms: float, cpu: float, gpu_percent: float, batch: int, gpu_model: str = ""
    ) -> float:
        """Dollars one request costs when ``batch`` of them run together for ``latency_ms``."""
        gpu_hour = self.gpu_hour_of.get(gpu_model, self.gpu_hour)
        rate = cpu * self.vcpu_hour + gpu_percent / 100 * gpu_hour
        return latency_ms / MS_PER_HOUR * rate / batch


@dataclass(frozen=True, slots=True)
class Configuration:
    """What a function pod is given, and the time its profile promises for it."""

    batch: int
    cpu: int
    gpu_percent: int
    memory_mib: int
    latency_ms: float


@dataclass(frozen=True, slots=True)
class Candidate:
    """A configuration of the stage at hand, with the best completion of the workflow through it.

    It holds on GPUs of ``gpu_model``, on nodes where the stage starts within ``start_ms``.

    Attributes:
        configuration: what the pod is given.
        gpu_model: NVML's name.
        stage_ms: planned run time of this stage; and the time to fill the batch where a rate was
            given.
        path_ms: from now to the end of the whole best completion: the start, and the longest path
            over the stages that were planned.
        path_cost: dollars per request of that completion, over all those stages.
        start_ms: cold start and transfer of the input that the completion has room for.
    """

    configuration: Configuration
    gpu_model: str
    stage_ms: float
    path_ms: float
    path_cost: float
    start_ms: float = 0.0

    def as_json(self) -> dict[str, Any]:
        """Flat, with units in the keys: what ``esg plan --json`` prints."""
        configuration = self.configuration
        return {
            "batch": configuration.batch,
            "cpu": configuration.cpu,
            "gpu_percent": configuration.gpu_percent,
            "memory_mib": configuration.memory_mib,
            "gpu_model": self.gpu_model,
            "start_ms": self.start_ms,
            "stage_ms": self.stage_ms,
            "path_ms": self.path_ms,
            "path_cost": self.path_cost,
        }


@dataclass(frozen=True, slots=True)
class SearchEffort:
    """How hard one search was: states taken up, and states that each blade cut."""

    expanded: int = 0
    cut_by_time: int = 0
    cut_by_cost: int = 0

    def __add__(self, other: "SearchEffort") -> "SearchEffort":
        return SearchEffort(
            self.expanded + other.expanded,
            self.cut_by_time + other.cut_by_time,
            self.cut_by_cost + other.cut_by_cost,
        )


@dataclass(frozen=True, slots=True)
class Plan:
    """The K best distinct configurations for the stage at hand, cheapest completion first.

    Attributes:
        feasible: False when no completion meets the budget; the candidates are then the cheapest
            (or the fastest, by a setting).
        budget_ms: for the stages planned; None: no SLO and no deadline, cost alone decides.
        candidates: the K best on each GPU model and for each time that a start may take.
        epsilon: 0 where the search was exact. Else the n-th candidate costs at most 1 + epsilon
            times the true n-th least: the search ended at its budget of work. Each candidate still
            is a real completion within the time budget.
        says: what to know about a plan that is not feasible, in a sentence; else empty.
        effort: what it took.
    """

    feasible: bool
    budget_ms: float | None
    candidates: tuple[Candidate, ...]
    epsilon: float = 0.0
    says: str = ""
    effort: SearchEffort = SearchEffort()

    @property
    def exact(self) -> bool:
        """Whether nothing is cheaper."""
        return self.epsilon == 0.0

    def as_json(self) -> dict[str, Any]:
        """What ``esg plan --json`` prints."""
        return {
            "feasible": self.feasible,
            "budget_ms": self.budget_ms,
            "epsilon": self.epsilon,
            "says": self.says,
            "candidates": [candidate.as_json() for candidate in self.candidates],
        }


@dataclass(frozen=True, slots=True)
class StageRun:
    """One stage of a completion; times in ms from the start of the stage at hand."""

    stage: str
    function: str
    configuration: Configuration
    gpu_model: str
    start_ms: float
    end_ms: float
    cost: float  # dollars per request


@dataclass(frozen=True, slots=True)
class Completion:
    """One configuration for each stage left, the stage at hand first, then in order of the DAG."""

    runs: tuple[StageRun, ...]

    @property
    def path_ms(self) -> float:
        """The end of the last stage."""
        return max(run.end_ms for run in self.runs)

    @property
    def cost(self) -> float:
        """Dollars per request, over all stages."""
        return sum(run.cost for run in self.runs)
