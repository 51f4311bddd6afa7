"""End-to-end time and cost of a workflow under one configuration per stage.

A choice is a tuple of indices, one into the candidates of each stage, in topological order.
"""

from collections.abc import Sequence
from math import inf

import numpy as np

from scheduler.model.documents import Workflow
from scheduler.model.plan import Candidate
from scheduler.search.dag import members, numbered
from scheduler.search.frontiers.arrays import Floats
from workbench.simulation.policies.choices import candidates_on_one_model
from workbench.simulation.policy import PolicyContext, QueueKey

Choice = tuple[int, ...]


class EndToEnd:
    """One workflow, whose stages are fixed before the first request.

    A batch of b includes the time in which it fills, (b - 1) / rate, limited by the SLO. After
    that time it runs, full or not.

    Attributes:
        slo_ms: SLO of the workflow, less the headroom.
        keys: keys of the stages' queues, in topological order.
        options: candidates of each stage.
    """

    def __init__(self, context: PolicyContext, workflow: Workflow) -> None:
        names, self._dag = numbered(workflow)
        self.slo_ms = workflow.spec.slo.latency_ms / (1.0 + context.headroom_ratio)
        self.keys: tuple[QueueKey, ...] = tuple((*workflow.key, name) for name in names)
        self.options = tuple(candidates_on_one_model(context, key) for key in self.keys)
        rate_rps = context.rate_rps[workflow.key]
        self._interval_ms = 1000.0 / rate_rps if rate_rps > 0 else inf

    def filling_ms(self, candidate: Candidate) -> float:
        """Return the time for which the oldest job of a batch waits for the last one."""
        further_jobs = candidate.configuration.batch - 1
        return min(further_jobs * self._interval_ms, self.slo_ms) if further_jobs else 0.0

    def candidates(self, choice: Choice) -> tuple[Candidate, ...]:
        """Return the stages' candidates, in topological order."""
        return tuple(listed[i] for listed, i in zip(self.options, choice, strict=True))

    def ends_ms(self, choice: Choice, noise: Floats) -> Floats:
        """Return the end of each stage after the arrival, for n requests, (n, stages).

        Args:
            choice: indices of the stages' candidates.
            noise: (n, stages) factors on the run times.
        """
        ends_ms = np.empty_like(noise)
        for v, candidate in enumerate(self.candidates(choice)):
            starts_ms = self.starts_ms(v, ends_ms) + self.filling_ms(candidate)
            ends_ms[:, v] = starts_ms + candidate.stage_ms * noise[:, v]
        return ends_ms

    def starts_ms(self, v: int, ends_ms: Floats) -> Floats:
        """Return the end of the last predecessor of stage ``v``, (n,)."""
        before = list(members(self._dag.before[v]))
        return np.asarray(ends_ms[:, before].max(axis=1, initial=0.0), np.float64)

    def times_ms(self, choice: Choice, noise: Floats) -> Floats:
        """Return the end of the last stage, (n,)."""
        return np.asarray(self.ends_ms(choice, noise).max(axis=1), np.float64)

    def cost_dollars(self, choice: Choice) -> float:
        """Return dollars per request at full batches and mean times."""
        return sum(candidate.path_cost_dollars for candidate in self.candidates(choice))

    def costs(self, choice: Choice, noise: Floats) -> Floats:
        """Return the cost in dollars of n requests, each stage charged for its run time, (n,)."""
        means = np.array([candidate.path_cost_dollars for candidate in self.candidates(choice)])
        return np.asarray(noise @ means, np.float64)

    def planned(self, choice: Choice) -> dict[QueueKey, Candidate]:
        """Return each stage's candidate, with time and cost from it to the end of the workflow."""
        candidates = self.candidates(choice)
        lengths_ms = [candidate.stage_ms + self.filling_ms(candidate) for candidate in candidates]
        path_ms = self._dag.longest_after(lengths_ms)
        return {
            key: candidates[v]._replace(
                path_ms=path_ms[v],
                path_cost_dollars=_path_dollars(candidates, [v, *members(self._dag.following[v])]),
            )
            for v, key in enumerate(self.keys)
        }


def log_normal(noise_ratio: float, shape: tuple[int, int], random: np.random.Generator) -> Floats:
    """Draw factors on run times, with a mean of one.

    ``noise_ratio`` is the standard deviation of their logarithm.
    """
    return np.asarray(random.lognormal(-(noise_ratio**2) / 2, noise_ratio, shape), np.float64)


def _path_dollars(candidates: Sequence[Candidate], stages: list[int]) -> float:
    return sum(candidates[v].path_cost_dollars for v in stages)
