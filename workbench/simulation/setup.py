"""A scenario made into what runs: the cluster, the functions, and the workflows' queues."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import count

import numpy as np

from scheduler.dispatch.retries import RetryState
from scheduler.model.catalogue import Catalogue
from scheduler.placement.placement import Placer
from scheduler.search.planner import Planner
from workbench.simulation.cluster import SimulatedCluster
from workbench.simulation.data_locality import Inputs
from workbench.simulation.errors import PolicyError
from workbench.simulation.functions import Function
from workbench.simulation.grant_cache import GrantCache
from workbench.simulation.policy import Policy, PolicyContext
from workbench.simulation.registry import policy_class
from workbench.simulation.rng import Noise, Streams
from workbench.simulation.scenario import Scenario
from workbench.simulation.scenario_catalogue import shaped
from workbench.simulation.workflow_state import StageQueue, WorkflowState

WorkflowKey = tuple[str, str]


@dataclass(frozen=True, slots=True)
class SimulationState:
    """Everything of one run but its policy and its events.

    Attributes:
        catalogue: as the scenario shapes it.
        functions: by name.
        flows: the workflows, in the order of the arrivals.
        queues: of all flows.
        random: for the policy.
    """

    scenario: Scenario
    catalogue: Catalogue
    cluster: SimulatedCluster
    book: GrantCache
    functions: Mapping[str, Function]
    flows: tuple[WorkflowState, ...]
    queues: tuple[StageQueue, ...]
    random: np.random.Generator


def assemble(
    scenario: Scenario, catalogue: Catalogue, workflows: tuple[WorkflowKey, ...], seed: int
) -> SimulationState:
    """Build the cluster, without containers, and the queues of these workflows."""
    fitting = shaped(catalogue, scenario, workflows)
    cluster = SimulatedCluster(scenario)
    book = GrantCache(cluster.ledger.fleet, scenario.rules.prices)
    gpus = len(cluster.gpu_uuids)
    functions = {
        name: Function(profile, gpus, scenario.rules.prices, resizable=scenario.resizable)
        for name, profile in fitting.profiles.items()
    }
    flows = _flows(workflows, fitting, functions, scenario)
    queues = tuple(queue for flow in flows for queue in flow.stages)
    streams = Streams.of(seed, len(queues))
    for queue, random in zip(queues, streams.noises, strict=True):
        _equip(queue, cluster, book, Noise(random, scenario.noise_ratio), scenario)
    return SimulationState(
        scenario, fitting, cluster, book, functions, flows, queues, streams.policy
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
        gpu_models=frozenset(scenario.gpu_models),
        noise_ratio=scenario.noise_ratio,
        rate_rps=rates_rps,
        random=state.random,
        candidates=scenario.candidates,
        margin_ratio=scenario.margin_ratio,
        replan=scenario.replan,
    )
    try:
        return policy_type(context)
    except Exception as error:
        raise PolicyError(
            f"policy {name}, constructed for its run: {type(error).__name__}: {error}"
        ) from error


def warm_up(assembled: SimulationState) -> None:
    """Start with idle containers of every function on every GPU, as far as memory goes."""
    cluster, book = assembled.cluster, assembled.book
    for _ in range(assembled.scenario.warm_containers):
        for function in assembled.functions.values():
            for grant in book.made(function.minimum()).grants:
                for gpu, model in enumerate(cluster.gpu_models):
                    if model == grant.gpu_model:
                        cluster.start(function, grant, gpu, 0.0, 0.0)


def _flows(
    workflows: Sequence[WorkflowKey],
    catalogue: Catalogue,
    functions: Mapping[str, Function],
    scenario: Scenario,
) -> tuple[WorkflowState, ...]:
    """The workflows in the order of the arrivals, with their queues, which lack the run's parts."""
    planner = Planner(catalogue, scenario.rules)
    numbers = count()
    flows = []
    for index, key in enumerate(workflows):
        stages = catalogue.workflow(*key).spec.stages
        numbered = {stage.name: i for i, stage in enumerate(stages)}
        sent_ms = {s.name: _sent_ms(functions[s.function], scenario) for s in stages}
        flow = WorkflowState(index, key, catalogue.workflow(*key).spec.slo.latency_ms)
        queues = tuple(
            StageQueue(
                number=next(numbers),
                flow=flow,
                index=numbered[stage.name],
                stage=stage.name,
                function=functions[stage.function],
                inputs=Inputs(
                    [(numbered[before], sent_ms[before]) for before in stage.after],
                    scenario.nodes,
                    functions[stage.function].cold_ms,
                ),
            )
            for stage in stages
        )
        budgets_ms = planner.budgets_ms(*key)
        for queue, stage in zip(queues, stages, strict=True):
            queue.successors = tuple(
                queues[i] for i, s in enumerate(stages) if stage.name in s.after
            )
            queue.planned_ms = budgets_ms[stage.name][0]
            queue.function.queues.append(queue)
        flow.set_stages(queues)
        flows.append(flow)
    return tuple(flows)


def _equip(
    queue: StageQueue, cluster: SimulatedCluster, book: GrantCache, noise: Noise, scenario: Scenario
) -> None:
    """Give a queue its patience, its noise, and what seeks its places."""
    namespace, workflow, _ = queue.key
    function = queue.function
    queue.patience = RetryState(scenario.misses_max, scenario.retry_ms)
    queue.noise = noise
    queue.late_max_ms = (scenario.give_up_factor - 1.0) * queue.flow.slo_ms
    queue.minimum = book.made(function.minimum(queue.inputs.kinds_ms))
    queue.placer = Placer(
        cluster.ledger.fleet,
        f"{namespace}/{workflow}/{function.name}",
        cold_ms=function.cold_ms,
        policy=scenario.placement,
        mix_of=cluster.ledger.mix,
    )


def _sent_ms(function: Function, scenario: Scenario) -> float:
    """How long its output for one request takes to another node."""
    return 1000.0 * function.profile.spec.output_mib / scenario.bandwidth_mib_s
