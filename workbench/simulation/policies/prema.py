"""PREMA: requests earn tokens while they wait; of those with most tokens the shortest runs.

Source: Choi and Rhu, "PREMA: A Predictive Multi-task Scheduling Algorithm for Preemptible Neural
Processing Units", HPCA 2020, as recalled; the baseline of Sparse-DySta. A request's tokens are its
priority, plus priority times its waiting time over its isolated time. Candidates have at least the
largest power of a base that the largest number of tokens reaches.

Ours: all priorities are 1, the base is 3 (the ratio of the paper's levels 1, 3 and 9), and a switch
costs nothing, for layers are not interrupted.
"""

from math import floor, log
from typing import ClassVar

from workbench.simulation.policies.sjf import ShortestJobFirst
from workbench.simulation.stations.station import StageTask

_BASE = 3.0


class Prema(ShortestJobFirst):
    """Runs the shortest of the requests that have waited long for their length."""

    name: ClassVar[str] = "prema"

    def choose(self, waiting: list[StageTask], now_ms: float) -> StageTask:
        """Return the shortest of the candidates."""
        tokens = {task: self._token_count(task, now_ms) for task in waiting}
        threshold = _BASE ** floor(log(max(tokens.values()), _BASE) + 1e-9)
        candidates = [task for task in waiting if tokens[task] >= threshold]
        return super().choose(candidates, now_ms)

    def _token_count(self, task: StageTask, now_ms: float) -> float:
        layers = self.requests[task.request]
        waited_ms = now_ms - task.arrival_ms - layers.ran_ms
        return 1.0 + max(waited_ms, 0.0) / layers.isolated_ms
