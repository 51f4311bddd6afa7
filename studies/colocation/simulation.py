"""Training and inference on one cluster: the live dispatcher, and workers in what it leaves.

Pods of inference are started, placed and stopped by the live code exactly as without training,
because workers are taken out of the ledger for each placement. Training costs inference two things:
a pod whose share a worker held is ready later, and neighbours are slower (`interference_ratio`).
"""

from collections.abc import Iterable
from dataclasses import dataclass
from math import inf

from scheduler.dispatch.pods import Pod, PodStart
from scheduler.model.catalogue import Catalogue
from studies.colocation.training_workers import TrainingClass, TrainingShare, TrainingWorkers
from workbench.simulation.arrival_stream import expected_rates_rps, stream
from workbench.simulation.containers.functions import Container
from workbench.simulation.execution import NeighbourSlowdown
from workbench.simulation.live.pods import WarmPods
from workbench.simulation.live.simulation import WarmSimulation
from workbench.simulation.live.slices import SimulatedSlices
from workbench.simulation.loop import NO_OBSERVERS, Observers
from workbench.simulation.policy import Policy
from workbench.simulation.result import Result
from workbench.simulation.scenario import Scenario
from workbench.simulation.setup import SimulationState, assemble, policy_for
from workbench.simulation.workload import Arrivals


@dataclass(frozen=True, slots=True)
class ColocationResult:
    """Outcome of a run: requests and cost of inference, and the share of training."""

    inference: Result
    training: TrainingShare


def colocate(  # noqa: PLR0913 - what a run depends on, each by name
    scenario: Scenario,
    catalogue: Catalogue,
    arrivals: Arrivals,
    training: TrainingClass,
    *,
    seed: int,
    requests: int,
) -> ColocationResult:
    """Serve the first ``requests`` by policy ``warm`` while training fills the rest.

    Raises:
        ScenarioError: catalogue and cluster do not fit together.
        RunError: the arrivals go back in time, or name no workflow.
    """
    state = assemble(scenario, catalogue, arrivals.workflows, seed)
    policy = policy_for(state, "warm", expected_rates_rps(arrivals))
    simulation = ColocatedSimulation(state, policy, seed, NO_OBSERVERS, training)
    simulation.run(stream(arrivals, state.workflows, requests))
    return ColocationResult(simulation.result(), simulation.workers.share())


class TrainingSlowdown(NeighbourSlowdown):
    """Slowdown by runs of inference, and by workers of training, which run all the time."""

    def __init__(self, scenario: Scenario, workers: TrainingWorkers) -> None:
        super().__init__(scenario.interference_ratio, scenario.interference)
        self._training_ratio = scenario.interference_ratio
        self._workers = workers

    def factor(self, container: Container, beside: Iterable[Container], percent_max: int) -> float:
        """Return the factor on the time of a container's run."""
        workers_percent = self._workers.held_percent(container.gpu)
        slowdown = self._training_ratio * workers_percent / percent_max
        return super().factor(container, beside, percent_max) + slowdown


class YieldingPods(WarmPods):
    """Pods of inference, for which workers free their share."""

    def __init__(self, state: SimulationState, workers: TrainingWorkers, release_ms: float) -> None:
        super().__init__(state, SimulatedSlices(state))
        self._workers = workers
        self._release_ms = release_ms

    def start(self, start: PodStart, now_ms: float, *, warm: bool) -> Pod | None:
        """Start a pod where it would be without workers; those that it displaces are evicted."""
        self._workers.withdraw(now_ms)
        pod = super().start(start, now_ms, warm=warm)
        evicted_gpus = self._workers.restore(now_ms)
        if pod is not None and evicted_gpus:
            pod.ready_ms += self._release_ms
            container = self.containers[pod.name]
            container.ready_ms = pod.ready_ms
        return pod


class ColocatedSimulation(WarmSimulation):
    """A run of the live dispatcher with workers.

    Attributes:
        workers: workers of training; they end with the last arrival.
    """

    def __init__(
        self,
        state: SimulationState,
        policy: Policy,
        seed: int,
        observers: Observers,
        training: TrainingClass,
    ) -> None:
        super().__init__(state, policy, seed, observers)
        self.workers = TrainingWorkers(state, training)
        self._pods = YieldingPods(state, self.workers, training.release_ms)
        self._executions.slowdown = TrainingSlowdown(state.scenario, self.workers)
        self._arrivals_ended = False

    def _rescale(self, due: None, now_ms: float) -> None:
        super()._rescale(due, now_ms)
        if self._next_arrival_ms < inf:
            self.workers.fill(now_ms)
        elif not self._arrivals_ended:
            self._arrivals_ended = True
            self.workers.close(now_ms)
