"""Invariants of a run that is quiet."""

from collections import Counter
from collections.abc import Iterator

from tests.campaign.audit import PERCENT_MAX, share_of
from tests.campaign.gangs import domains_of, gang_of, members_that_fit, minimum_of
from tests.campaign.gateway_checks import gateway_problems
from tests.campaign.node_sums import NodeSums, demand_of
from tests.campaign.replica import Life
from tests.campaign.world import World
from workbench.cluster.api_requests import PODS
from workbench.cluster.object_store import Raw


def is_settled(world: World) -> bool:
    """Tell if nothing is under way and nothing is wrong."""
    is_busy = (
        world.server.is_busy
        or world.creator.is_busy
        or (world.gateways is not None and world.gateways.is_busy)
        or any(scheduler.is_busy for scheduler in world.schedulers.values())
        or any(replica.life is None or replica.life.is_busy for replica in world.replicas.values())
    )
    return not is_busy and next(problems(world), None) is None


def problems(world: World) -> Iterator[str]:
    """Yield what is wrong with the end of a run."""
    if world.creator.is_busy:
        yield "a pod is not admitted"
    yield from _waiting_pods(world)
    for replica in world.replicas.values():
        if replica.life is None:
            yield f"replica {replica.name} is down"
        elif reason := replica.life.service.planning.not_ready_reason():
            yield f"replica {replica.name} is not ready: {reason}"
        else:
            yield from _ledger(world, replica.life)
    for life in world.lives:
        yield from _metrics(life, len(world.audit.holders))
    yield from _bindings(world)
    if world.gateways is not None:
        yield from gateway_problems(world.gateways)


def _waiting_pods(world: World) -> Iterator[str]:
    """Pods that wait although a GPU, and its node by kube-scheduler's sums, have room.

    A GPU that two nodes publish is given to nobody.
    """
    names = Counter(gpu["uuid"] for gpus in world.gpus.values() for gpu in gpus)
    for pod in world.server.store.list(PODS):
        if pod["spec"].get("nodeName") or pod["metadata"].get("deletionTimestamp"):
            continue
        if gang_of(pod):
            yield from _waiting_gang(world, pod, names)
            continue
        percent, memory_mib = demand_of(pod)
        sums = NodeSums(world.server.store, pod, {})
        for node, gpus in world.gpus.items():
            for gpu in gpus if sums.fits(node) else ():
                if (
                    gpu["healthy"]
                    and names[gpu["uuid"]] == 1
                    and world.audit.fits(node, gpu["uuid"], percent, memory_mib)
                    and world.slice_runs.allows(pod, node, gpu["uuid"])
                ):
                    name = pod["metadata"]["name"]
                    yield f"pod {name} waits, although it fits on {gpu['uuid']} of {node}"
                    return


def _waiting_gang(world: World, pod: Raw, names: Counter[str]) -> Iterator[str]:
    """A gang that waits although enough of its members have room in one set of its nodes."""
    members = [p for p in world.server.store.list(PODS) if gang_of(p) == gang_of(pod)]
    bound = sum(share_of(p) is not None for p in members)
    waiting = sum(
        not p["spec"].get("nodeName") and not p["metadata"].get("deletionTimestamp")
        for p in members
    )
    needed = max(1, minimum_of(pod) - bound)
    for domain in domains_of(pod, list(world.gpus)):
        gpus = [
            (node, gpu["uuid"])
            for node in domain
            for gpu in world.gpus[node]
            if gpu["healthy"] and names[gpu["uuid"]] == 1
        ]
        if needed <= members_that_fit(demand_of(pod), world.audit, gpus, waiting):
            yield f"gang {gang_of(pod)} waits, although {needed} members fit on {domain}"
            return


def _ledger(world: World, life: Life) -> Iterator[str]:
    """The ledger's reservations and free capacities are those of the server."""
    ledger = life.service.state.ledger
    known = {
        (r.uid, r.name, r.node, r.gpu_uuid, r.gpu_percent, r.memory_mib, r.group): r.confirmed
        for r in ledger.reservations()
        if r.gpu_uuid is not None  # others have no function
    }
    shares = {tuple(share) for share in world.audit.shares.values()}
    for share in sorted(shares - known.keys()):
        yield f"ledger of {life.name}: lacks {share}"
    for share in sorted(known.keys() - shares):
        yield f"ledger of {life.name}: has {share}, which is not at the server"
    if not all(known.values()):
        unconfirmed = sorted(share[1] for share, confirmed in known.items() if not confirmed)
        yield f"ledger of {life.name}: unconfirmed: {unconfirmed}"
    fleet = ledger.fleet
    for node, gpus in world.gpus.items():
        for gpu in gpus:
            percent, _ = world.audit.used(node, gpu["uuid"])
            row = fleet.gpu_row(node, gpu["uuid"])
            free = int(fleet.arrays.gpu_free_percent[row]) if row >= 0 else None
            if free != PERCENT_MAX - percent:
                yield (
                    f"ledger of {life.name}: {free} % of {gpu['uuid']} free, "
                    f"{PERCENT_MAX - percent} % at the server"
                )


def _metrics(life: Life, holders: int) -> Iterator[str]:
    """Every bind call is counted once, and every bound pod's batch; holders have none."""
    metrics = life.service.metrics
    binds = sum(_results(life).values())
    if binds != life.binds:
        yield f"metrics of {life.name}: {binds} binds counted, {life.binds} called"
    batches = sum(
        sample.value
        for family in metrics.batch_sizes.collect()
        for sample in family.samples
        if sample.name.endswith("_count")
    )
    if not (bound := _results(life)["bound"]) - holders <= batches <= bound:
        yield f"metrics of {life.name}: {batches:g} batches, {bound:g} pods bound"
    if reason := life.service.planning.fatal_error:
        yield f"{life.name}: {reason}"


def _bindings(world: World) -> Iterator[str]:
    """The pods bound at the server are those that the replicas have counted.

    A pod that was deleted before the outcome of its Binding was read counts as refused. After an
    unanswered Binding, an equal grant by the other active replica counts as bound by both.
    """
    results = [_results(life) for life in world.lives]
    bound = sum(result["bound"] for result in results)
    # A second Binding by a proxy is answered with 409, and so the first one counts as another's.
    unclear = sum(result["unknown"] + result["already_bound"] for result in results)
    unclear += sum(life.lost_binds for life in world.lives)
    ever, now = len(world.audit.bound), len(world.audit.shares)
    if bound > ever * world.active or bound + unclear < now:
        yield (
            f"metrics: {bound:g} binds and {unclear:g} unclear ones, for {ever} pods that were "
            f"bound and {now} that are"
        )


def _results(life: Life) -> dict[str, float]:
    return {
        sample.labels["result"]: sample.value
        for family in life.service.metrics.binds.collect()
        for sample in family.samples
        if sample.name.endswith("_total")
    }
