"""Placement by ready times of containers: the same as live, and as a naive twin."""

from math import inf

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler.ledger.ledger import Ledger
from scheduler.ledger.reservation import Reservation
from scheduler.model.node import Gpu, Node
from scheduler.model.plan import Candidate, Configuration
from scheduler.placement.candidates import CandidateTable
from scheduler.placement.fragmentation import RequestClass, RequestMix
from scheduler.placement.placement import Placer, place
from scheduler.placement.scoring import Affinities, walk_positions
from tests.examples import examples
from tests.placement import naive_fragmentation

MODELS = ("A100", "T4")
STARTS_MS = (0.0, 5.0, 100.0, 105.0)
COLD_MS = 100.0


@st.composite
def ledgers(draw: st.DrawFn, gpus_max: int) -> Ledger:
    """A few nodes with up to so many GPUs each, partly taken."""
    ledger = Ledger()
    for n in range(draw(st.integers(1, 6))):
        gpus = tuple(
            Gpu(
                index=i,
                uuid=f"GPU-{n}-{i}",
                model=draw(st.sampled_from(MODELS)),
                memory_mib=draw(st.sampled_from([4_000, 8_000])),
                multiprocessors=40,
                healthy=draw(st.booleans()),
            )
            for i in range(draw(st.integers(0, gpus_max)))
        )
        ledger.set_node(Node(f"n{n}", gpus, draw(st.sampled_from([1_000, 4_000]))))
        for gpu in gpus:
            percent, memory_mib = draw(st.integers(0, 100)), draw(st.integers(0, 4_000))
            reservation = Reservation(
                gpu.uuid, "default", gpu.uuid, f"n{n}", 500, gpu.uuid, percent, memory_mib
            )
            ledger.confirm(reservation)
    return ledger


candidate_lists = st.lists(
    st.builds(
        lambda model, percent, memory_mib, cpu, start_ms: Candidate(
            Configuration(1, cpu, percent, memory_mib, 10.0), model, 10.0, 10.0, 1e-5, start_ms
        ),
        st.sampled_from((*MODELS, "none")),
        st.integers(1, 100),
        st.integers(1, 8_000),
        st.integers(1, 3),
        st.sampled_from((*STARTS_MS, inf)),
    ),
    min_size=1,
    max_size=4,
)


policies = st.sampled_from(("pack", "spread", "defrag"))
mixes = st.dictionaries(
    st.builds(
        RequestClass,
        st.sampled_from([0, 500, 2_000]),
        st.sampled_from([10, 30, 50, 81]),
        st.sampled_from([0, 500, 2_000]),
    ),
    st.integers(1, 50),
    max_size=3,
)


@examples(400)
@given(
    ledger=ledgers(1),
    candidates=candidate_lists,
    policy=policies,
    mix=mixes,
    warm=st.sets(st.integers(0, 5)),
    ran_on=st.sets(st.integers(0, 5), max_size=2),
)
def test_live_and_simulated_placement_agree(ledger, candidates, policy, mix, warm, ran_on):
    """With one GPU a node, ready times of containers and start times of nodes say the same."""
    fleet = ledger.fleet
    names = [node.name for node in fleet.nodes]
    rows = np.arange(len(names))
    ran_on = sorted(row for row in ran_on if row < len(names))
    warm_names = [n for i, n in enumerate(names) if i in warm and fleet.arrays.node_gpus[i]]
    mix_of = {"mix_of": lambda _: RequestMix.of(mix), "policy": policy}
    placer = Placer(fleet, "default/w/f", cold_ms=COLD_MS, **mix_of)
    ready_ms = np.full(len(fleet.arrays.gpu_model), inf)
    transfer_ms = np.full(len(names), 5.0)
    transfer_ms[ran_on] = 0.0
    start_ms = np.full(len(names), COLD_MS)
    for name in warm_names:
        row = fleet.node_row[name]
        ready_ms[fleet.arrays.node_first_gpu[row]] = -inf
        start_ms[row] = 0.0
    start_ms += transfer_ms

    placement = place(
        fleet,
        candidates,
        rows,
        node_start_ms=start_ms,
        affinities=Affinities([names[row] for row in ran_on], ready_ms, "default/w/f"),
        **mix_of,
    )
    table = CandidateTable(fleet, candidates)
    best = placer.best_gpu(table, transfer_ms, ready_ms, 0.0, np.array(ran_on, np.int64))
    if placement.candidate_index is None:
        assert best is None
        assert placement.best is None
        assert not placement.scores.any()
    else:
        order = placement.best_first()
        assert placement.best == order[0]
        assert best == (placement.candidate_index, placement.gpu_rows[order[0]])
        assert placer.gpu_rows.tolist() == placement.gpu_rows.tolist()
        assert placer.scores.tolist() == placement.scores.tolist()


@examples(300)
@given(
    ledger=ledgers(3),
    candidates=candidate_lists,
    policy=policies,
    mix=mixes,
    ready=st.lists(st.sampled_from((-inf, 40.0, 60.0, 5_000.0, inf)), min_size=18, max_size=18),
    transfers=st.lists(st.sampled_from((0.0, 5.0)), min_size=6, max_size=6),
    ran_on=st.sets(st.integers(0, 5), max_size=2),
)
def test_several_gpus_against_the_naive_twin(
    ledger, candidates, policy, mix, ready, transfers, ran_on
):
    """On a node the GPU with the shortest start; containers that still start are waited for."""
    fleet = ledger.fleet
    now_ms = 50.0
    placer = Placer(
        fleet, "w/f", cold_ms=COLD_MS, policy=policy, mix_of=lambda _: RequestMix.of(mix)
    )
    transfer_ms = np.array(transfers[: len(fleet.nodes)])
    ready_ms = np.array(ready[: len(fleet.gpus)])
    table, predecessors = CandidateTable(fleet, candidates), np.array(sorted(ran_on), np.int64)
    best = placer.best_gpu(table, transfer_ms, ready_ms, now_ms, predecessors)
    starts_ms = [min(max(ready - now_ms, 0.0), COLD_MS) for ready in ready_ms.tolist()]
    warm = set(np.flatnonzero(ready_ms < inf).tolist())
    if policy != "defrag":
        mix = {}
    expected = naive_best(
        ledger, candidates, policy, starts_ms, transfer_ms.tolist(), warm, ran_on, mix
    )
    assert best == expected


def naive_best(ledger, candidates, policy, starts_ms, transfer_ms, warm, ran_on, mix):
    """In words: the first candidate that fits anywhere, on the best node, on its best GPU."""
    fleet = ledger.fleet
    rows = np.arange(len(fleet.nodes))
    walk = walk_positions("w/f", rows, len(rows)).tolist()
    for index, candidate in enumerate(candidates):
        best_gpus = {}  # GPU, growth of fragmentation, and free share, by row of node
        for row in rows.tolist():
            gpus = fitting(fleet, candidate, row, starts_ms, transfer_ms[row])
            shortest = [g for g in gpus if starts_ms[g] == min(starts_ms[gpu] for gpu in gpus)]
            if shortest:
                best_gpus[row] = naive_gpu(fleet, candidate, row, shortest, policy, mix)
        growths = [growth for _, growth, _ in best_gpus.values()]
        places = []
        for row, (gpu, growth, free_percent) in best_gpus.items():
            free_after = (
                int(fleet.arrays.gpu_free_percent[gpu]) - candidate.configuration.gpu_percent
            )
            score = round(5 * (free_after if policy == "spread" else 100 - free_after) / 100)
            if mix:
                span = max(growths) - min(growths)
                score = round(5 * (max(growths) - growth) / span) if span else 5
            score = 6 if walk[row] == 0 else score
            score = 8 if gpu in warm else score
            score = 10 if row in ran_on else score
            places.append((-score, growth, free_percent, walk[row], gpu))
        if places:
            return index, min(places)[-1]
    return None


def naive_gpu(fleet, candidate, row, gpus, policy, mix):
    """Return the best of equally fast GPUs of a node; with a mix its growth and free share."""
    arrays = fleet.arrays
    if mix:
        free_gpus = tuple(
            naive_fragmentation.FreeGpu(
                gpu,
                0,
                int(arrays.gpu_free_percent[gpu]),
                int(arrays.gpu_free_memory_mib[gpu]),
                int(arrays.gpu_free_clients[gpu]),
            )
            for gpu in range(len(fleet.gpus))[fleet.gpu_rows_of(row)]
            if fleet.gpus[gpu].healthy and fleet.gpus[gpu].model == candidate.gpu_model
        )
        node = naive_fragmentation.FreeNode(int(arrays.node_free_cpu_milli[row]), free_gpus)
        wanted = candidate.configuration
        request = RequestClass(wanted.cpu * 1_000, wanted.gpu_percent, wanted.memory_mib)
        gpu, growth = naive_fragmentation.least_growth(node, request, mix, gpus)
        return gpu, growth, sum(max(gpu.percent, 0) for gpu in free_gpus)
    sign = -1 if policy == "spread" else 1

    def fullest_first(gpu):
        share, memory = arrays.gpu_free_percent[gpu], arrays.gpu_free_memory_mib[gpu]
        return sign * int(share), sign * int(memory), gpu

    return min(gpus, key=fullest_first), 0, 0


def fitting(fleet, candidate, row, starts_ms, transfer_ms):
    """The GPUs of a node that reservation a candidate and start it in time."""
    wanted = candidate.configuration
    if fleet.arrays.node_free_cpu_milli[row] < wanted.cpu * 1000:
        return []
    first = fleet.arrays.node_first_gpu[row]
    return [
        gpu
        for gpu in range(first, first + fleet.arrays.node_gpus[row])
        if fleet.gpus[gpu].healthy
        and fleet.gpus[gpu].model == candidate.gpu_model
        and fleet.arrays.gpu_free_percent[gpu] >= wanted.gpu_percent
        and fleet.arrays.gpu_free_memory_mib[gpu] >= wanted.memory_mib
        and starts_ms[gpu] + transfer_ms <= candidate.start_ms
    ]


@pytest.mark.parametrize("nodes", [1, 2, 7, 16])
def test_the_walk_starts_at_home_and_reaches_every_node(nodes):
    ledger = Ledger()
    for n in range(nodes):
        ledger.set_node(Node(f"n{n}", (), 1_000))
    walked = Placer(ledger.fleet, "default/w/f").nodes_from_home
    assert sorted(walked) == list(range(nodes))
    positions = walk_positions("default/w/f", np.array(walked), nodes)
    assert positions.tolist() == list(range(nodes))
