"""Construction of a run from a scenario: the cluster, the functions, and the workflows' queues."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import count
from math import inf

import numpy as np

from scheduler.dispatch.stage_graph import StageGraph
from scheduler.model.catalogue import Catalogue
from scheduler.placement.placement import Placer
from scheduler.search.cost_bound import StageLimit, stage_limits
from scheduler.search.planner import Planner
from workbench.simulation.containers.cluster import SimulatedCluster
from workbench.simulation.containers.data_locality import Inputs
from workbench.simulation.containers.functions import Function
from workbench.simulation.containers.grant_cache import GrantCache
from workbench.simulation.errors import PolicyError, described
from workbench.simulation.policy import Policy, PolicyContext
from workbench.simulation.registry import policy_class
from workbench.simulation.retries import RetryState
from workbench.simulation.rng import Noise, Streams
from workbench.simulation.scenario import Scenario, ScenarioError
from workbench.simulation.scenario_catalogue import shaped
from workbench.simulation.workflow_state import StageQueue, WorkflowState

WorkflowKey = tuple[str, str]


@dataclass(frozen=True, slots=True)
class SimulationState:
    """Everything of one run but its policy and its events.

    Attributes:
        catalogue: catalogue with the changes of the scenario.
        functions: functions by name.
        workflows: workflows in the order of the arrivals.
        random: random number generator of the policy.
        bounds_dollars: least cost of a request of each workflow in time; inf where there is none.
    """

    scenario: Scenario
    catalogue: Catalogue
    cluster: SimulatedCluster
    grants: GrantCache
    functions: Mapping[str, Function]
    workflows: tuple[WorkflowState, ...]
    random: np.random.Generator
    bounds_dollars: Mapping[WorkflowKey, float]

    @property
    def queues(self) -> list[StageQueue]:
        """Queues of all workflows."""
        return [queue for workflow in self.workflows for queue in workflow.queues]


def assemble(
    scenario: Scenario, catalogue: Catalogue, keys: tuple[WorkflowKey, ...], seed: int
) -> SimulationState:
    """Build the cluster, without containers, and the queues of these workflows."""
    fitting = shaped(catalogue, scenario, keys)
    cluster = SimulatedCluster(scenario)
    grants = GrantCache(cluster.ledger.fleet, scenario.rules.prices)
    stages = sum(len(fitting.workflow(*key).spec.stages) for key in keys)
    streams = Streams.of(seed, stages, len(fitting.profiles))
    functions = {
        name: Function(
            profile,
            len(cluster.gpu_uuids),
            scenario.rules.prices,
            random,
            resizable=scenario.resizable,
        )
        for (name, profile), random in zip(fitting.profiles.items(), streams.starts, strict=True)
    }
    noises = (Noise(stream, scenario.noise_ratio) for stream in streams.noises)
    limits = stage_limits(fitting, scenario.rules.prices, scenario.fleet)
    workflows = _workflows(keys, fitting, scenario, functions, cluster, grants, noises, limits)
    return SimulationState(
        scenario,
        fitting,
        cluster,
        grants,
        functions,
        tuple(workflows),
        streams.policy,
        {
            key: sum(limit.dollars for limit in stages.values()) if stages else inf
            for key, stages in limits.items()
        },
    )


def policy_for(
    state: SimulationState, policy: str | type[Policy], rates_rps: Mapping[WorkflowKey, float]
) -> Policy:
    """Construct a policy with what it may know of the run.

    Raises:
        UnknownPolicyError: the registry has no such policy.
        PolicyError: its constructor failed.
    """
    scenario = state.scenario
    name, policy_type = (
        (policy, policy_class(policy)) if isinstance(policy, str) else (policy.name, policy)
    )
    context = PolicyContext(
        catalogue=state.catalogue,
        rules=scenario.rules,
        fleet=scenario.fleet,
        noise_ratio=scenario.noise_ratio,
        rate_rps=rates_rps,
        random=state.random,
        profiled_noise=scenario.profiled_noise,
        candidates=scenario.candidates,
        margin_ratio=scenario.margin_ratio,
        headroom_ratio=scenario.headroom_ratio,
        replan=scenario.replan,
        contexts=scenario.contexts,
        contexts_percent=scenario.contexts_percent,
        bandwidth_mib_s=scenario.bandwidth_mib_s,
    )
    try:
        return policy_type(context)
    except Exception as error:
        message = f"policy {name}, constructed for its run: {described(error)}"
        raise PolicyError(message) from error


def _workflows(  # noqa: PLR0913, PLR0917 - the parts of a run
    keys: tuple[WorkflowKey, ...],
    catalogue: Catalogue,
    scenario: Scenario,
    functions: Mapping[str, Function],
    cluster: SimulatedCluster,
    grants: GrantCache,
    noises: Iterator[Noise],
    limits: Mapping[WorkflowKey, Mapping[str, StageLimit]],
) -> Iterator[WorkflowState]:
    planner = Planner(catalogue, scenario.rules)
    numbers = count()
    slowness = network_slowness(scenario)
    for workflow_index, key in enumerate(keys):
        spec = catalogue.workflow(*key).spec
        graph = StageGraph(spec.stages)
        slo_ms = spec.slo.latency_ms
        budgets_ms = planner.budgets_ms(*key)
        transfers_ms = [_transfer_ms(functions[stage.function], scenario) for stage in spec.stages]
        queues = []
        for index, stage in enumerate(spec.stages):
            function = functions[stage.function]
            before = [(i, transfers_ms[i]) for i in graph.predecessors[index]]
            inputs = Inputs(before, slowness, function.slow_start_ms)
            queues.append(
                StageQueue(
                    number=next(numbers),
                    key=(*key, stage.name),
                    index=index,
                    has_siblings=graph.has_siblings[index],
                    workflow_index=workflow_index,
                    function=function,
                    inputs=inputs,
                    give_up_after_ms=(scenario.give_up_factor - 1.0) * slo_ms,
                    planned_ms=budgets_ms[stage.name][0],
                    minimum=grants.offers(function.minimum(inputs.kinds_ms)),
                    retry_state=RetryState(scenario.misses_max, scenario.retry_ms),
                    noise=next(noises),
                    placer=Placer(
                        cluster.ledger.fleet,
                        f"{key[0]}/{key[1]}/{function.name}",
                        cold_ms=function.slow_start_ms,
                        policy=scenario.placement,
                        mix_of=cluster.ledger.mix,
                    ),
                    limit=limits[key].get(stage.name),
                )
            )
        yield WorkflowState(workflow_index, key, slo_ms, graph, queues)


def network_slowness(scenario: Scenario) -> tuple[float, ...]:
    """Return the time of a transfer from each node, relative to the scenario's bandwidth."""
    base_mib_s = scenario.bandwidth_mib_s
    if base_mib_s == inf and any(s.bandwidth_mib_s < inf for s in scenario.node_shapes):
        raise ScenarioError("unlike_nodes: bandwidth_mib_s needs a finite one of the other nodes")
    return tuple(
        1.0 if shape.bandwidth_mib_s == base_mib_s else base_mib_s / shape.bandwidth_mib_s
        for shape in scenario.node_shapes
    )


def _transfer_ms(function: Function, scenario: Scenario) -> float:
    """Return the time that the output for one request takes between two nodes that are alike."""
    return 1000.0 * function.profile.spec.output_mib / scenario.bandwidth_mib_s
