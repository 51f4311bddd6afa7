"""Configurations, candidates and plans: what the search answers and placement takes."""

from dataclasses import dataclass
from typing import Any

MS_PER_HOUR = 3_600_000.0


@dataclass(frozen=True, slots=True)
class Prices:
    """Dollars per hour (defaults: the ESG paper's, a whole A100 being 7 x 0.67)."""

    vcpu_hour: float = 0.034
    gpu_hour: float = 4.69

    def per_request(self, latency_ms: float, cpu: float, gpu_percent: float, batch: int) -> float:
        """Dollars one request costs when ``batch`` of them run together for ``latency_ms``."""
        rate = cpu * self.vcpu_hour + gpu_percent / 100 * self.gpu_hour
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
    """A configuration of the stage at hand, with the best completion of the workflow through it."""

    configuration: Configuration
    gpu_model: str
    stage_ms: (
        float  # of this stage: run time, and the time to fill the batch where a rate was given
    )
    path_ms: float  # of the whole best completion: the longest path over the stages left
    path_cost: float  # dollars per request of that completion, over all stages left

    def as_json(self) -> dict[str, Any]:
        """Flat, with units in the keys: what ``esg plan --json`` prints."""
        configuration = self.configuration
        return {
            "batch": configuration.batch,
            "cpu": configuration.cpu,
            "gpu_percent": configuration.gpu_percent,
            "memory_mib": configuration.memory_mib,
            "gpu_model": self.gpu_model,
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

    ``feasible`` is False when no completion meets the budget; the candidates are then the fastest
    (or the cheapest, by a setting). ``exact`` is False when the search ran into its budget of work:
    each candidate still is a real completion within the time budget, but a cheaper one may exist.
    """

    feasible: bool
    budget_ms: float | None  # None: no SLO and no deadline, cost alone decides
    candidates: tuple[Candidate, ...]
    exact: bool = True
    effort: SearchEffort = SearchEffort()

    def as_json(self) -> dict[str, Any]:
        """What ``esg plan --json`` prints."""
        return {
            "feasible": self.feasible,
            "budget_ms": self.budget_ms,
            "candidates": [candidate.as_json() for candidate in self.candidates],
        }
