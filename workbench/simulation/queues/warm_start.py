"""Warm containers at the start of a run, under planning policies.

With fixed shares each policy gets containers of the configurations that it chooses itself, in
proportion to the expected load, as autoscaling policies begin with those for the expected rate. So
no policy begins with the queues that an empty cluster would give it.
"""

from collections.abc import Callable, Iterable, Mapping
from math import ceil, sqrt

from scheduler.model.plan import Candidate, Configuration
from workbench.simulation.containers.cluster import SimulatedCluster
from workbench.simulation.containers.configurations import anywhere, configurations_of
from workbench.simulation.containers.functions import Function
from workbench.simulation.containers.grant_cache import ContainerGrant
from workbench.simulation.queues.policy_calls import PolicyCalls
from workbench.simulation.setup import SimulationState, WorkflowKey
from workbench.simulation.workflow_state import StageQueue

Kind = tuple[Function, ContainerGrant]
RESERVE_RATIO = 1.2  # of the square root of the busy containers


def warm_up(
    state: SimulationState, calls: PolicyCalls, rates_rps: Mapping[WorkflowKey, float]
) -> None:
    """Start with idle containers, as far as there is room."""
    if not state.scenario.warm_containers:
        return
    if state.scenario.resizable:
        _on_every_gpu(state, lambda function: function.minimum())
    elif not state.scenario.idle_share:
        _on_every_gpu(state, _largest_of_each_share)
    else:
        _in_turn(state.cluster, _busy_containers(state, calls, rates_rps))


def _on_every_gpu(state: SimulationState, kinds: Callable[[Function], Iterable[Candidate]]) -> None:
    """Start containers of the same kinds of every function on every GPU."""
    cluster = state.cluster
    for _ in range(state.scenario.warm_containers):
        for function in state.functions.values():
            for grant in state.grants.offers(kinds(function)).grants:
                for gpu, model in enumerate(cluster.gpu_models):
                    if model == grant.gpu_model:
                        cluster.start(function, grant, gpu, 0.0, warm=True)


def _largest_of_each_share(function: Function) -> Iterable[Candidate]:
    """Yield the largest batch of each share: its memory is enough for the others."""
    for gpu in function.profile.spec.gpus:
        shares: dict[tuple[int, int], Configuration] = {}
        for configuration in sorted(configurations_of(gpu), key=lambda c: c.batch):
            shares[configuration.cpu, configuration.gpu_percent] = configuration
        yield from (anywhere(configuration, gpu.model) for configuration in shares.values())


def _busy_containers(
    state: SimulationState, calls: PolicyCalls, rates_rps: Mapping[WorkflowKey, float]
) -> dict[Kind, float]:
    """Return the mean number of busy containers of each kind under the policy's first choices."""
    busy: dict[Kind, float] = {}
    for workflow in state.workflows:
        rate_rps = rates_rps.get(workflow.key, 0.0)
        for queue in workflow.queues:
            grant = _first_choice(state, calls, queue, workflow.slo_ms)
            if grant is not None:
                load = rate_rps * grant.latency_ms / 1000.0 / grant.batch
                kind = next((k for k in busy if _is_same(k, queue.function, grant)), None)
                kind = kind or (queue.function, grant)
                busy[kind] = busy.get(kind, 0.0) + load
    return {kind: load for kind, load in busy.items() if load > 0}


def _is_same(kind: Kind, function: Function, grant: ContainerGrant) -> bool:
    return kind[0] is function and kind[1].share == grant.share


def _first_choice(
    state: SimulationState, calls: PolicyCalls, queue: StageQueue, slo_ms: float
) -> ContainerGrant | None:
    request = calls.request
    request.key = queue.key
    request.now_ms = 0.0
    request.queued = 1
    request.slack_ms = slo_ms - queue.planned_ms
    request.waited_ms = slo_ms
    request.missed = 0
    request.starts_ms = (0.0,)
    request.noise_factor = 1.0
    candidates = calls.candidates(queue)
    return state.grants.offers(candidates[:1]).grants[0] if candidates else None


def _in_turn(cluster: SimulatedCluster, busy: Mapping[Kind, float]) -> None:
    """Start containers, always one of the kind with the smallest reserve for its load."""
    wanted = {kind: ceil(load + RESERVE_RATIO * sqrt(load)) for kind, load in busy.items()}
    started = dict.fromkeys(busy, 0)
    while wanted:
        kind = min(wanted, key=lambda k: (started[k] - busy[k]) / sqrt(busy[k]))
        has_room = _started(cluster, kind)
        started[kind] += has_room
        if not has_room or started[kind] == wanted[kind]:
            del wanted[kind]


def _started(cluster: SimulatedCluster, kind: Kind) -> bool:
    function, grant = kind
    return any(
        model == grant.gpu_model and cluster.start(function, grant, gpu, 0.0, warm=True) is not None
        for gpu, model in enumerate(cluster.gpu_models)
    )
