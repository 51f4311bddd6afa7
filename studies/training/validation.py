"""Check of a policy's placements before they are applied."""

from collections import Counter, defaultdict
from collections.abc import Callable, Collection

from studies.training.cluster import TrainingCluster
from studies.training.errors import ImpossiblePlacementError
from studies.training.policy import Placements

_ROUNDING = 1e-6  # of sums of shares


def check_placements(  # noqa: PLR0913 - a decision and what it must fit
    policy: str,
    now_s: float,
    placements: Placements,
    *,
    jobs: Collection[str],
    cluster: TrainingCluster,
    jobs_per_gpu: int = 1,
) -> None:
    """Check that jobs exist, and that no GPU, CPU or memory is assigned twice.

    Raises:
        ImpossiblePlacementError: names the policy, the time, the job and the node.
    """

    def refuse(job: str, message: str) -> ImpossiblePlacementError:
        return ImpossiblePlacementError(
            f"policy {policy} at {now_s:,.6g} s: job {job}: {message}; correct the policy"
        )

    loads: Counter[int] = Counter()
    for name, placement in placements.items():
        if name not in jobs:
            raise refuse(name, "has not arrived, has ended, or does not exist")
        for gpu in placement.gpus:
            if not 0 <= gpu < len(cluster.node_of):
                raise refuse(name, f"GPU {gpu} does not exist; there are {len(cluster.node_of)}")
            if cluster.node_of[gpu] in cluster.absent:
                raise refuse(name, f"GPU {gpu}: node {cluster.node_of[gpu]} is absent")
            loads[gpu] += 1
        if len(set(placement.gpus)) < len(placement.gpus):
            gpu = next(g for g in placement.gpus if placement.gpus.count(g) > 1)
            raise refuse(name, f"GPU {gpu} of node {cluster.node_of[gpu]} is listed twice")
    overloaded = [gpu for gpu, load in loads.items() if load > jobs_per_gpu]
    if overloaded:
        node = cluster.node_of[overloaded[0]]
        holders = [n for n, p in placements.items() if overloaded[0] in p.gpus]
        assigned = sum(load for gpu, load in loads.items() if cluster.node_of[gpu] == node)
        raise refuse(
            holders[-1],
            f"node {node} has {cluster.nodes[node].gpus} GPUs and {assigned} are assigned: "
            f"GPU {overloaded[0]} to {', '.join(holders)}",
        )
    _check_shares(placements, cluster, refuse)


def _check_shares(
    placements: Placements,
    cluster: TrainingCluster,
    refuse: Callable[[str, str], ImpossiblePlacementError],
) -> None:
    """Check CPUs and memory of each node; a job has equal parts of its own for each GPU."""
    cpus: defaultdict[int, float] = defaultdict(float)
    memory_gib: defaultdict[int, float] = defaultdict(float)
    for name, placement in placements.items():
        for gpu in placement.gpus:
            node = cluster.node_of[gpu]
            cpus[node] += placement.cpus / len(placement.gpus)
            memory_gib[node] += placement.memory_gib / len(placement.gpus)
            for what, used, size in (
                ("CPUs", cpus[node], cluster.nodes[node].cpus),
                ("GiB", memory_gib[node], cluster.nodes[node].memory_gib),
            ):
                if used > size + _ROUNDING:
                    raise refuse(name, f"node {node} has {size:g} {what} and {used:g} are assigned")
