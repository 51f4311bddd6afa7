"""Configurations, candidates and plans: results of the search and input of placement."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

MS_PER_HOUR = 3_600_000.0


@dataclass(frozen=True, slots=True)
class Prices:
    """Dollars per hour of one vCPU and of one whole GPU.

    The defaults are those of the ESG paper; a whole A100 costs 7 x 0.67. ``gpu_hour_dollars_of``
    maps a GPU model to its price where that differs from ``gpu_hour_dollars``.
    """

    vcpu_hour_dollars: float = 0.034
    gpu_hour_dollars: float = 4.69
    gpu_hour_dollars_of: Mapping[str, float] = field(default_factory=dict, hash=False)

    def request_cost_dollars(
        self, latency_ms: float, vcpus: float, gpu_percent: float, batch: int, gpu_model: str = ""
    ) -> float:
        """Return the cost of one request in a batch of ``batch`` that runs for ``latency_ms``."""
        gpu_hour_dollars = self.gpu_hour_dollars_of.get(gpu_model, self.gpu_hour_dollars)
        hour_dollars = vcpus * self.vcpu_hour_dollars + gpu_percent / 100 * gpu_hour_dollars
        return latency_ms / MS_PER_HOUR * hour_dollars / batch


@dataclass(frozen=True, slots=True)
class Configuration:
    """Resources of a function pod, and the batch time that the profile states for them."""

    batch: int
    cpu: int
    gpu_percent: int
    memory_mib: int
    latency_ms: float


class Candidate(NamedTuple):
    """A configuration of the current stage, with the workflow's best completion through it.

    It is valid on GPUs of ``gpu_model``, on nodes or in containers where the stage starts within
    ``start_ms``.

    Attributes:
        configuration: resources of the pod.
        gpu_model: name that NVML reports.
        stage_ms: planned run time of this stage; where a rate is set, plus the time to fill the
            batch.
        path_ms: time from now to the end of the best completion: the start, and the longest path
            over the planned stages.
        path_cost_dollars: cost per request of that completion, over all planned stages.
        start_ms: cold start and input transfer that the completion has time for.
    """

    configuration: Configuration
    gpu_model: str
    stage_ms: float
    path_ms: float
    path_cost_dollars: float
    start_ms: float = 0.0

    def as_json(self) -> dict[str, Any]:
        """Return a flat object with units in its keys, as ``esg plan --json`` prints it."""
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
            "path_cost": self.path_cost_dollars,
        }


@dataclass(frozen=True, slots=True)
class SearchEffort:
    """Work of one search: states expanded, states cut by the time and by the cost bound."""

    expanded: int = 0
    cut_by_time: int = 0
    cut_by_cost: int = 0

    def __add__(self, second: "SearchEffort") -> "SearchEffort":
        return SearchEffort(
            self.expanded + second.expanded,
            self.cut_by_time + second.cut_by_time,
            self.cut_by_cost + second.cut_by_cost,
        )


class Plan(NamedTuple):
    """The K best distinct configurations of the current stage, cheapest completion first.

    Attributes:
        feasible: false if no completion meets the budget; the candidates are then the cheapest, or
            by a setting the fastest.
        budget_ms: time for the planned stages, without the margin; None without an SLO and a
            deadline, when cost alone decides.
        candidates: the K best for each GPU model and start time.
        epsilon: bound on the error; 0 if the plan is exact. Otherwise the n-th candidate costs at
            most 1 + epsilon times the true n-th lowest cost. Each candidate is still a real
            completion within the budget.
        message: reason why the plan is not feasible, as one sentence; empty if it is feasible.
        margin_ratio: the remaining time is ``later_waits_ms + (1 + margin_ratio) * budget_ms``. It
            is a part of the margin if no completion leaves the whole of it, and 0 if the SLO is
            lost.
        later_waits_ms: time reserved for waits at later stages; a part of it, or 0, in the same
            cases.
        effort: work of the search.
    """

    feasible: bool
    budget_ms: float | None
    candidates: tuple[Candidate, ...]
    epsilon: float = 0.0
    message: str = ""
    margin_ratio: float = 0.0
    later_waits_ms: float = 0.0
    effort: SearchEffort = SearchEffort()

    @property
    def exact(self) -> bool:
        """Return true if no cheaper candidates exist."""
        return self.epsilon == 0.0

    def as_json(self) -> dict[str, Any]:
        """Return the object that ``esg plan --json`` prints."""
        return {
            "feasible": self.feasible,
            "budget_ms": self.budget_ms,
            "margin_ratio": self.margin_ratio,
            "later_waits_ms": self.later_waits_ms,
            "epsilon": self.epsilon,
            "message": self.message,
            "candidates": [candidate.as_json() for candidate in self.candidates],
        }


@dataclass(frozen=True, slots=True)
class StageRun:
    """One stage of a completion; times in ms from the start of the current stage."""

    stage: str
    function: str
    configuration: Configuration
    gpu_model: str
    start_ms: float
    end_ms: float
    cost_dollars: float  # per request


@dataclass(frozen=True, slots=True)
class Completion:
    """One configuration per remaining stage: the current stage, then the rest in DAG order.

    Attributes:
        runs: one run for each of the stages.
        epsilon: `Plan.epsilon` of the current stage.
    """

    runs: tuple[StageRun, ...]
    epsilon: float = 0.0

    @property
    def path_ms(self) -> float:
        """End of the last stage."""
        return max(run.end_ms for run in self.runs)

    @property
    def cost_dollars(self) -> float:
        """Cost per request over all stages."""
        return sum(run.cost_dollars for run in self.runs)
