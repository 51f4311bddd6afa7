"""Sparse-DySta: remaining time as the measured layers predict it, and the slack.

Source: Fan, Venieris, Kouris, Lane, "Sparse-DySta: Sparsity-Aware Dynamic and Static Scheduling for
Sparse Multi-DNN Workloads", MICRO 2023, and its public code. The score of a request is the
predicted time of its remaining layers plus beta times its slack and its normalised idle time; the
smallest runs. Layers that took longer than profiled predict that the rest does so too.

Ours: layers are stages of workflows; the sparsity of an input is a factor on all of its stages
(`request_noise_ratio`), for the published latency tables are not public in a usable form.
"""

from typing import ClassVar

from workbench.simulation.policies.layer_queue import LayerQueue, RequestLayers
from workbench.simulation.stations.station import StageTask

BETA = 0.01


class Dysta(LayerQueue):
    """Runs the request with the smallest predicted time, slack and idle time."""

    name: ClassVar[str] = "dysta"

    def score(self, task: StageTask, layers: RequestLayers, now_ms: float) -> float:
        """Return the score of the paper's dynamic level."""
        predicted_ms = layers.sparsity_factor * layers.remaining_ms
        slack_ms = max(task.deadline_ms - now_ms - predicted_ms, 0.0)
        idle_ratio = (now_ms - task.ready_ms) / layers.isolated_ms
        return predicted_ms + BETA * (slack_ms + idle_ratio / len(self.requests))
