"""Fragmentation gradient descent against its definition."""

from math import exp

import numpy as np
import pytest
from hypothesis import given

from studies.packing import fgd
from studies.packing.cluster import PackedCluster, PackedPod
from studies.packing.fgd import FgdWorkload
from studies.packing.rules import RULES, RuleName
from tests.examples import examples
from tests.studies.packing import naive, traces
from tests.studies.packing.traces import machine, pod


def free_nodes(cluster: PackedCluster) -> list[naive.FreeNode]:
    return [
        naive.FreeNode(
            int(cluster.free_cpu_milli[row]),
            arrival.gpu_model,
            tuple(cluster.free_percents(row).tolist()),
        )
        for row, arrival in enumerate(cluster.machines)
    ]


@examples(100)
@given(machines=traces.machines(), placed=traces.pods(), workload=traces.pods(), task=traces.pods())
def test_growths_of_fragmentation(machines, placed, workload, task):
    """Kernel and definition agree on F, and on its least growth on each node that holds a task."""
    cluster = PackedCluster(machines)
    expected = FgdWorkload.of(workload, cluster.models)
    rule = RULES[RuleName.RANDOM](cluster, expected, 0)
    for arrival in placed:
        if len(rows := cluster.nodes_for(arrival)):
            cluster.reserve(arrival, rule.choose(arrival, rows))
    nodes = free_nodes(cluster)
    fragment = sum(node.fragment(workload) for node in nodes) / len(workload)
    measured = fgd.fragmentation_percent(cluster, expected)
    assert measured == pytest.approx(100 * fragment / cluster.capacity_percent)
    rows = cluster.nodes_for(task[0])
    result = fgd.growths(cluster, expected, task[0], rows)
    for i, row in enumerate(rows.tolist()):
        before = nodes[row].fragment(workload)
        after = {gpu: n.fragment(workload) for gpu, n in nodes[row].outcomes(task[0]).items()}
        assert result.growth[i] == min(after.values()) - before
        first = int(cluster.ledger.fleet.arrays.node_first_gpu[row])
        gpu = int(result.gpu_rows[i]) - first if task[0].gpus == 1 else None
        assert after[gpu] == min(after.values())


def test_a_model_that_a_task_may_not_run_on_is_all_fragment():
    """A task without a GPU can use no free share either."""
    cluster = PackedCluster(
        [machine("n0", gpu_model="T4", gpus=2), machine("n1", gpu_model="A10", gpus=2)]
    )
    for task, expected in (
        (pod(models=("T4",)), 50.0),
        (pod(models=("T4", "A10")), 0.0),
        (pod(models=("H100",)), 100.0),
        (pod(gpus=0), 100.0),
    ):
        workload = FgdWorkload.of([task], cluster.models)
        assert fgd.fragmentation_percent(cluster, workload) == expected


@pytest.mark.parametrize("name", [RuleName.FGD, RuleName.FGD_ROUNDED])
def test_it_takes_the_node_of_least_growth(name):
    """A half goes beside a half, where it breaks no GPU that a whole one could have."""
    cluster = PackedCluster([machine("n0"), machine("n1")])
    workload = FgdWorkload.of([pod(gpu_percent=100), pod(gpu_percent=50)], cluster.models)
    gpu_row = int(cluster.ledger.fleet.arrays.node_first_gpu[1]) + 1
    cluster.reserve(pod(gpu_percent=50), PackedPod(1, (gpu_row,)))
    rule = RULES[name](cluster, workload, 0)
    assert rule.choose(pod(gpu_percent=50), np.arange(2)) == PackedPod(1, (gpu_row,))


@examples(60)
@given(machines=traces.machines(), placed=traces.pods(), workload=traces.pods(), task=traces.pods())
def test_rounded_growths_are_scores_of_the_public_simulator(machines, placed, workload, task):
    """The chosen node has the largest score: the sigmoid of the fall of F in GPUs, of 100."""
    cluster = PackedCluster(machines)
    expected = FgdWorkload.of(workload, cluster.models)
    chance, rule = (
        RULES[name](cluster, expected, 0) for name in (RuleName.RANDOM, RuleName.FGD_ROUNDED)
    )
    for arrival in placed:
        if len(rows := cluster.nodes_for(arrival)):
            cluster.reserve(arrival, chance.choose(arrival, rows))
    nodes = free_nodes(cluster)

    def score(row: int) -> int:
        after = min(node.fragment(workload) for node in nodes[row].outcomes(task[0]).values())
        growth_gpus = (after - nodes[row].fragment(workload)) / (100 * len(workload))
        return int(100 / (1 + exp(growth_gpus)))

    if len(rows := cluster.nodes_for(task[0])):
        assert score(rule.choose(task[0], rows).node) == max(map(score, rows.tolist()))


def test_best_fit_orders_nodes_of_equal_score():
    """Growths of 1.0 and 0.8 % of a GPU have one score, by which the fullest GPU is taken."""
    cluster = PackedCluster([machine("n0", gpus=1), machine("n1", gpus=1)])
    workload = [pod(gpu_percent=percent) for percent in (*[50] * 97, 61, 61, 90)]
    cluster.reserve(pod(gpu_percent=20), PackedPod(0, (0,)))
    expected = FgdWorkload.of(workload, cluster.models)
    exact, rounded = (
        RULES[name](cluster, expected, 0).choose(pod(gpu_percent=20), np.arange(2)).node
        for name in (RuleName.FGD, RuleName.FGD_ROUNDED)
    )
    assert (exact, rounded) == (1, 0)
