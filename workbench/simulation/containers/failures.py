"""Failures of nodes and GPUs during a run, by the scenario."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from math import isfinite

from workbench.simulation.containers.cluster import SimulatedCluster
from workbench.simulation.containers.functions import Container
from workbench.simulation.events import CAPACITY_CHANGED, EventQueue
from workbench.simulation.scenario import Failure, Scenario, ScenarioError


@dataclass(frozen=True, slots=True)
class CapacityChange:
    """Failure or recovery of GPUs of one node, by row of the fleet."""

    node: int
    gpus: tuple[int, ...]
    is_failure: bool


class Failures:
    """Takes GPUs out of the cluster at their times, and back.

    A GPU that several failures cover is back when the last of them is over.
    """

    def __init__(self, scenario: Scenario, cluster: SimulatedCluster, events: EventQueue) -> None:
        self._cluster = cluster
        self._failed = [0] * len(cluster.gpu_uuids)
        for failure in scenario.failures:
            node, gpus = failure.node, _gpus_of(failure, cluster)
            events.push(failure.at_ms, CAPACITY_CHANGED, CapacityChange(node, gpus, True))
            end_ms = failure.at_ms + failure.for_ms
            if isfinite(end_ms):
                events.push(end_ms, CAPACITY_CHANGED, CapacityChange(node, gpus, False))

    def apply(self, change: CapacityChange, on_lost: Callable[[Container], None]) -> None:
        """Change the capacity; ``on_lost`` must remove each container of the GPUs that fail."""
        for gpu in change.gpus:
            self._failed[gpu] += 1 if change.is_failure else -1
        ledger = self._cluster.ledger
        node = ledger.fleet.nodes[change.node]
        if node is None:
            raise AssertionError("simulated nodes are never removed")
        rows = self._cluster.gpus_from([change.node])
        gpus = (
            gpu.model_copy(update={"healthy": not self._failed[row]})
            for row, gpu in zip(rows, node.gpus, strict=True)
        )
        # First: what looks for room while containers are removed must not find it here.
        ledger.set_node(replace(node, gpus=tuple(gpus)))
        if change.is_failure:
            for container in list(self._containers(change.gpus)):
                on_lost(container)

    def _containers(self, gpus: Iterable[int]) -> Iterable[Container]:
        for gpu in gpus:
            yield from self._cluster.containers_on[gpu]


def _gpus_of(failure: Failure, cluster: SimulatedCluster) -> tuple[int, ...]:
    if failure.node >= len(cluster.node_names):
        raise ScenarioError(
            f"failures: node {failure.node} does not exist; nodes are numbered from 0 to "
            f"{len(cluster.node_names) - 1}"
        )
    rows = tuple(cluster.gpus_from([failure.node]))
    if failure.gpu is None:
        return rows
    if failure.gpu >= len(rows):
        raise ScenarioError(
            f"failures: node {failure.node} has no GPU {failure.gpu}; they are numbered from 0 to "
            f"{len(rows) - 1}"
        )
    return (rows[failure.gpu],)
