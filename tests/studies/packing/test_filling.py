"""Filling a cluster: what holds whatever the rule, and ours against chance."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler.ledger.ledger import DoesNotFitError
from studies.packing.arrivals import arrivals
from studies.packing.cluster import PackedCluster, PackedPod
from studies.packing.fgd import FgdWorkload
from studies.packing.filling import CpuPods, fill
from studies.packing.rules import RULES, KubeScheduler, RuleName
from studies.packing.trace import read_machines, read_pods
from tests.data_of_others import DATA, needs_data
from tests.examples import examples
from tests.studies.packing import traces
from tests.studies.packing.traces import machine, pod

OPENB = DATA / "traces" / "openb"
"""Alibaba's trace (hkust-adsl/kubernetes-scheduler-simulator), which is not in this repository."""


@examples(60)
@given(
    machines=traces.machines(), pods=traces.pods(), rule=st.sampled_from(RuleName),
    live=st.booleans(),
)  # fmt: skip
def test_nothing_is_held_that_is_not_there(machines, pods, rule, live):
    """Whatever the rule: no node and no GPU holds more than it has, and only nodes that may."""
    cluster = PackedCluster(machines)
    chosen, kube_scheduler = (
        kind(cluster, FgdWorkload.of(pods, cluster.models), 0)
        for kind in (RULES[rule], KubeScheduler)
    )
    cpu = [m.cpu_milli for m in machines]
    memory = [m.memory_mib for m in machines]
    gpus: dict[int, int] = {}
    for arrival in pods:
        nodes = cluster.nodes_for(arrival)
        if not len(nodes):
            continue
        place = (kube_scheduler if live and not arrival.gpus else chosen).choose(arrival, nodes)
        cluster.reserve(arrival, place)
        cpu[place.node] -= arrival.cpu_milli
        memory[place.node] -= arrival.memory_mib
        assert not arrival.models or machines[place.node].gpu_model in arrival.models
        assert len(set(place.gpus)) == arrival.gpus
        first = int(cluster.ledger.fleet.arrays.node_first_gpu[place.node])
        for gpu in place.gpus:
            assert first <= gpu < first + machines[place.node].gpus
            gpus[gpu] = gpus.get(gpu, 0) + arrival.gpu_percent
    assert min(cpu) >= 0
    assert min(memory) >= 0
    assert max(gpus.values(), default=0) <= 100
    assert cluster.ledger.overcommitted() == []
    assert cluster.free_cpu_milli.tolist() == cpu
    assert cluster.free_memory_mib.tolist() == memory
    free = [int(cluster.free_percents(row).sum()) for row in range(len(machines))]
    assert cluster.free_percent.tolist() == free
    assert cluster.granted_percent == sum(gpus.values())


@examples(60)
@given(machines=traces.machines(), pods=traces.pods())
def test_a_node_is_offered_if_and_only_if_it_holds_the_pod(machines, pods):
    """By a look at each node and GPU."""
    cluster = PackedCluster(machines)
    rule = RULES[RuleName.RANDOM](cluster, FgdWorkload.of(pods, cluster.models), 0)
    for arrival in pods:
        holding = [
            row
            for row, m in enumerate(machines)
            if cluster.free_cpu_milli[row] >= arrival.cpu_milli
            and cluster.free_memory_mib[row] >= arrival.memory_mib
            and (not arrival.models or m.gpu_model in arrival.models)
            and sum(p >= arrival.gpu_percent for p in cluster.free_percents(row)) >= arrival.gpus
        ]
        assert cluster.nodes_for(arrival).tolist() == holding
        if holding:
            cluster.reserve(arrival, rule.choose(arrival, cluster.nodes_for(arrival)))


@examples(30)
@given(
    machines=traces.machines(), pods=traces.pods(), rule=st.sampled_from(RuleName),
    cpu_pods=st.sampled_from(CpuPods),
)  # fmt: skip
def test_a_filling_can_be_repeated(machines, pods, rule, cpu_pods):
    """The same seed gives the same end and the same curve, and every pod is accounted for."""
    first, again = (
        fill(machines, pods, rule, expected=pods, seed=7, cpu_pods=cpu_pods) for _ in range(2)
    )
    assert first.curve == again.curve
    assert (first.unplaced, first.unplaced_gpu) == (again.unplaced, again.unplaced_gpu)
    assert 0 <= first.unplaced_several <= first.unplaced_gpu <= first.unplaced <= len(pods)
    assert first.pods == len(pods)
    capacity = 100 * sum(m.gpus for m in machines)
    requested = sum(arrival.share_percent for arrival in pods)
    assert first.end.arrived_percent == pytest.approx(100 * requested / capacity)
    assert first.end.granted_percent <= min(100, first.end.arrived_percent) + 1e-9
    assert (first.end.granted_percent == first.end.arrived_percent) or first.unplaced_gpu


def test_chance_is_that_of_the_seed():
    """Another seed places at random elsewhere."""
    machines = [machine(f"n{i}", gpus=1) for i in range(20)]
    pods = [pod(f"p{i}", gpu_percent=40) for i in range(30)]

    def places(seed):
        cluster = PackedCluster(machines)
        rule = RULES[RuleName.RANDOM](cluster, FgdWorkload.of(pods, cluster.models), seed)
        return [rule.choose(arrival, cluster.nodes_for(arrival)).node for arrival in pods[:10]]

    assert places(1) == places(1)
    assert places(1) != places(2)


SHARES = [
    pod(gpu_percent=100, cpu_milli=10_000),
    pod(gpu_percent=81, cpu_milli=6_000),
    pod(gpu_percent=47, cpu_milli=4_000),
    pod(gpu_percent=30, cpu_milli=1_000),
    pod(gpu_percent=19, cpu_milli=1_000),
    pod(gpus=0, cpu_milli=4_000),
]


def granted_in_the_end(kinds, seed, *, vcpus_a_gpu):
    """By rule, on a cluster for which pods come that request one and a half times its GPUs."""
    machines = [machine(f"a{i}", gpus=8, cpu_milli=8_000 * vcpus_a_gpu) for i in range(4)]
    machines += [machine(f"b{i}", gpus=2, cpu_milli=2_000 * vcpus_a_gpu) for i in range(8)]
    arriving = arrivals(kinds * 4, 4_800, inflation_ratio=1.5, seed=seed)
    return {
        rule: fill(machines, arriving, rule, expected=kinds, seed=seed).end.granted_percent
        for rule in RuleName
    }


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
def test_ours_grants_at_least_what_chance_does(seed):
    """Pods of one GPU or less, as live, on nodes whose vCPUs just suffice."""
    granted = granted_in_the_end(SHARES, seed, vcpus_a_gpu=10)
    assert granted[RuleName.PACK] >= granted[RuleName.RANDOM]
    assert granted[RuleName.DEFRAG] >= granted[RuleName.RANDOM]


@pytest.mark.parametrize("seed", range(4))
def test_whole_nodes_are_kept_for_what_wants_them_whole(seed):
    """Beside pods of four GPUs, and with vCPUs for all, the rule against fragments gains more."""
    kinds = [*SHARES, pod(gpus=4, gpu_percent=100, cpu_milli=40_000)]
    granted = granted_in_the_end(kinds, seed, vcpus_a_gpu=40)
    assert granted[RuleName.DEFRAG] >= granted[RuleName.PACK]
    assert granted[RuleName.DEFRAG] > granted[RuleName.RANDOM]


def test_several_gpus_are_held_all_or_none():
    """If one GPU cannot be reserved, none is."""
    cluster = PackedCluster([machine("n0", gpus=4)])
    cluster.reserve(pod(gpu_percent=10), PackedPod(0, (3,)))
    wanted = pod("p4", gpus=4, gpu_percent=100, cpu_milli=9_001)
    with pytest.raises(DoesNotFitError, match="GPU-0-3 of node n0: 90 % free, 100 % asked"):
        cluster.reserve(wanted, PackedPod(0, (0, 1, 2, 3)))
    assert cluster.free_percents(0).tolist() == [100, 100, 100, 90]
    assert cluster.free_cpu_milli.tolist() == [15_000]
    assert cluster.granted_percent == 10
    two = pod("p2", gpus=2, gpu_percent=100, cpu_milli=9_001)
    cluster.reserve(two, PackedPod(0, (0, 2)))
    assert cluster.free_percents(0).tolist() == [0, 100, 0, 90]
    assert cluster.free_cpu_milli.tolist() == [5_999]
    assert cluster.nodes_for(two).tolist() == []


@pytest.mark.parametrize(
    ("place", "says"),
    [
        (PackedPod(0, (0,)), "2 GPUs asked, 1 chosen"),
        (PackedPod(0, (0, 0)), "2 GPUs asked"),
        (PackedPod(1, (2, 3)), "node n1: 10 MiB free, 100 asked"),
    ],
)
def test_a_place_that_does_not_hold_the_pod_is_refused(place, says):
    """The message says why, so that a wrong rule is noticed."""
    cluster = PackedCluster([machine("n0"), machine("n1", memory_mib=10)])
    with pytest.raises(DoesNotFitError, match=says):
        cluster.reserve(pod(gpus=2, gpu_percent=100), place)


def test_kube_scheduler_spreads():
    """A pod without a GPU goes to the emptiest node, and there to vCPU and memory alike."""
    cluster = PackedCluster([machine("n0"), machine("n1"), machine("n2")])
    rule = KubeScheduler(cluster, FgdWorkload.of([pod()], cluster.models), 0)
    chosen = []
    for _ in range(3):
        place = rule.choose(pod(gpus=0), cluster.nodes_for(pod(gpus=0)))
        cluster.reserve(pod(gpus=0), place)
        chosen.append(place.node)
    assert sorted(chosen) == [0, 1, 2]


@pytest.mark.slow
@needs_data
def test_the_whole_openb_trace():
    """Ours grants more than chance, and more than its own default, to the pods as they came."""
    pods = read_pods(OPENB / "openb_pod_list_default.csv")
    machines = read_machines(OPENB / "openb_node_list_gpu_node.csv")
    assert (len(pods), len(machines), sum(m.gpus for m in machines)) == (8_152, 1_213, 6_212)
    fillings = {
        rule: fill(machines, pods, rule, expected=pods)
        for rule in (RuleName.RANDOM, RuleName.PACK, RuleName.DEFRAG)
    }
    granted = {rule: arrival.end.granted_percent for rule, arrival in fillings.items()}
    assert granted[RuleName.DEFRAG] > granted[RuleName.PACK] > granted[RuleName.RANDOM]
    assert fillings[RuleName.DEFRAG].unplaced < fillings[RuleName.PACK].unplaced
