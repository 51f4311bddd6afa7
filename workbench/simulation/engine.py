"""The simulation: requests that arrive are run to their end under one policy."""

import sys
from collections.abc import Mapping
from time import perf_counter

from scheduler.model.catalogue import Catalogue
from scheduler.model.document_reader import DocumentError
from scheduler.model.message_text import os_error_text
from workbench.simulation.arrival_stream import expected_rates_rps, stream
from workbench.simulation.errors import RunError
from workbench.simulation.live.simulation import WarmSimulation
from workbench.simulation.loop import NO_OBSERVERS, Observers, SimulationLoop
from workbench.simulation.policy import Policy
from workbench.simulation.queues.pool_simulation import PoolSimulation
from workbench.simulation.queues.queue_simulation import QueueSimulation
from workbench.simulation.result import Result
from workbench.simulation.scenario import Scenario
from workbench.simulation.setup import SimulationState, assemble, policy_for
from workbench.simulation.stations.policy import StationPolicy
from workbench.simulation.stations.simulation import StationSimulation
from workbench.simulation.workload import Arrivals


def simulate(  # noqa: PLR0913 - what a run depends on, each by name
    scenario: Scenario,
    catalogue: Catalogue,
    arrivals: Arrivals,
    policy: str | type[Policy],
    *,
    seed: int = 0,
    requests: int | None = None,
    rates_rps: Mapping[tuple[str, str], float] | None = None,
    observers: Observers = NO_OBSERVERS,
) -> Result:
    """Run the first ``requests`` of the arrivals to their end under one policy.

    Args:
        scenario: cluster and its mechanisms.
        catalogue: workflows, whose SLO the scenario scales, and profiles.
        arrivals: times and workflows of the requests.
        policy: name in the registry, or a class.
        seed: seed of everything random but the arrivals.
        requests: maximum number of requests. Default: all arrivals.
        rates_rps: expected requests per second of each workflow. Default: rates of the first
            chunk of arrivals.
        observers: callbacks for requests, runs and progress.

    Raises:
        UnknownPolicyError: the registry has no such policy.
        UnknownDocumentError: a workflow that arrives, or a profile for it, does not exist.
        ScenarioError: catalogue and cluster do not fit together.
        RunError: the run failed half-way; ``result`` has the requests that had ended. A
            `PolicyError` where the policy failed, a `WorkloadError` where the arrivals go back in
            time or name no workflow.
    """
    state = assemble(scenario, catalogue, arrivals.workflows, seed)
    began = perf_counter()
    rates_rps = expected_rates_rps(arrivals) if rates_rps is None else rates_rps
    simulation = _loop_of(state, policy_for(state, policy, rates_rps), seed, observers)
    simulation.setup_s = perf_counter() - began
    try:
        simulation.run(stream(arrivals, state.workflows, requests or sys.maxsize))
    except RunError as error:
        error.result = simulation.result()
        raise
    except OSError as error:
        raise RunError(os_error_text(error), simulation.result()) from error
    except DocumentError as error:
        raise RunError(str(error), simulation.result()) from error
    return simulation.result()


def _loop_of(
    state: SimulationState, policy: Policy, seed: int, observers: Observers
) -> SimulationLoop:
    """Return the loop that a policy's kind needs."""
    if isinstance(policy, StationPolicy):
        return StationSimulation(state, policy, seed, observers)
    if policy.dispatches:
        return WarmSimulation(state, policy, seed, observers)
    kind = PoolSimulation if policy.autoscales else QueueSimulation
    return kind(state, policy, seed, observers)
