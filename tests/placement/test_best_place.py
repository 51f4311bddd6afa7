"""Where to run now: the one call against what the extender's three say, and against a slow twin."""

from math import inf

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scheduler.ledger.ledger import Ledger
from scheduler.ledger.reservation import Reservation
from scheduler.model.node import Gpu, Node
from scheduler.model.plan import Candidate, Configuration
from scheduler.placement.best import Seeker
from scheduler.placement.placement import CandidateArrays, place
from scheduler.placement.scoring import Affinities, best_first, scores, walk_positions

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
            hold = Reservation(
                gpu.uuid, "default", gpu.uuid, f"n{n}", 500, gpu.uuid, percent, memory_mib
            )
            ledger.confirm(hold)
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


@settings(max_examples=400, deadline=None)
@given(
    ledger=ledgers(1),
    asked=candidate_lists,
    policy=st.sampled_from(("pack", "spread")),
    warm=st.sets(st.integers(0, 5)),
    ran_on=st.sets(st.integers(0, 5), max_size=2),
)
def test_it_is_what_the_extender_says(ledger, asked, policy, warm, ran_on):
    """With one GPU a node: what filter lets through and prioritize puts first."""
    fleet = ledger.fleet
    names = [node.name for node in fleet.nodes]
    rows = np.arange(len(names))
    ran_on = sorted(row for row in ran_on if row < len(names))
    warm_names = [n for i, n in enumerate(names) if i in warm and fleet.node_gpus[i]]
    seeker = Seeker(fleet, "default/w/f", COLD_MS, policy)
    ready_ms = np.full(len(fleet.gpus), inf)
    transfer_ms = np.full(len(names), 5.0)
    transfer_ms[ran_on] = 0.0
    start_ms = np.full(len(names), COLD_MS)
    for name in warm_names:
        row = fleet.node_row[name]
        ready_ms[fleet.node_first_gpu[row]] = -inf
        start_ms[row] = 0.0
    start_ms += transfer_ms

    placing = place(fleet, asked, rows, node_start_ms=start_ms, policy=policy)
    affinities = Affinities([names[row] for row in ran_on], warm_names, "default/w/f")
    given_scores = scores(fleet, placing, affinities, policy)
    order = best_first(fleet, placing, given_scores, "default/w/f")
    asks, ran_on = CandidateArrays(fleet, asked), np.array(ran_on, np.int64)
    found = seeker.best(asks, ready_ms, 0.0, transfer_ms, ran_on)
    if placing.chosen is None:
        assert found is None
    else:
        assert found == (placing.chosen, placing.gpu_rows[order[0]])


@settings(max_examples=300, deadline=None)
@given(
    ledger=ledgers(3),
    asked=candidate_lists,
    policy=st.sampled_from(("pack", "spread")),
    ready=st.lists(st.sampled_from((-inf, 40.0, 60.0, 5_000.0, inf)), min_size=18, max_size=18),
    transfers=st.lists(st.sampled_from((0.0, 5.0)), min_size=6, max_size=6),
    ran_on=st.sets(st.integers(0, 5), max_size=2),
)
def test_several_gpus_against_the_twin(ledger, asked, policy, ready, transfers, ran_on):
    """On a node the GPU with the shortest start; containers that still start are waited for."""
    fleet = ledger.fleet
    now_ms = 50.0
    seeker = Seeker(fleet, "w/f", COLD_MS, policy)
    transfer_ms = np.array(transfers[: len(fleet.nodes)])
    ready_ms = np.array(ready[: len(fleet.gpus)])
    asks, predecessors = CandidateArrays(fleet, asked), np.array(sorted(ran_on), np.int64)
    found = seeker.best(asks, ready_ms, now_ms, transfer_ms, predecessors)
    starts_ms = [min(max(ready - now_ms, 0.0), COLD_MS) for ready in ready_ms.tolist()]
    warm = set(np.flatnonzero(ready_ms < inf).tolist())
    assert found == naive_best(ledger, asked, policy, starts_ms, transfer_ms.tolist(), warm, ran_on)


def naive_best(ledger, asked, policy, starts_ms, transfer_ms, warm, ran_on):
    """In words: the first candidate that fits anywhere, on the best node, on its best GPU."""
    fleet = ledger.fleet
    rows = np.arange(len(fleet.nodes))
    walk = walk_positions("w/f", rows, len(rows)).tolist()
    sign = 1 if policy == "spread" else -1
    for index, candidate in enumerate(asked):
        percent = candidate.configuration.gpu_percent
        places = []
        for row in rows.tolist():
            gpus = fitting(fleet, candidate, row, starts_ms, transfer_ms[row])
            if gpus:
                gpu = min(
                    gpus,
                    key=lambda gpu: (
                        starts_ms[gpu],
                        -sign * int(fleet.gpu_free_percent[gpu]),
                        -sign * int(fleet.gpu_free_memory_mib[gpu]),
                        gpu,
                    ),
                )
                left = int(fleet.gpu_free_percent[gpu]) - percent
                score = round(5 * (left if policy == "spread" else 100 - left) / 100)
                score = 6 if walk[row] == 0 else score
                score = 8 if gpu in warm else score
                score = 10 if row in ran_on else score
                places.append((-score, walk[row], gpu))
        if places:
            return index, min(places)[-1]
    return None


def fitting(fleet, candidate, row, starts_ms, transfer_ms):
    """The GPUs of a node that hold a candidate and start it in time."""
    wanted = candidate.configuration
    if fleet.node_free_cpu_milli[row] < wanted.cpu * 1000:
        return []
    first = fleet.node_first_gpu[row]
    return [
        gpu
        for gpu in range(first, first + fleet.node_gpus[row])
        if fleet.gpus[gpu].healthy
        and fleet.gpus[gpu].model == candidate.gpu_model
        and fleet.gpu_free_percent[gpu] >= wanted.gpu_percent
        and fleet.gpu_free_memory_mib[gpu] >= wanted.memory_mib
        and starts_ms[gpu] + transfer_ms <= candidate.start_ms
    ]


@pytest.mark.parametrize("nodes", [1, 2, 7, 16])
def test_the_walk_starts_at_home_and_reaches_every_node(nodes):
    ledger = Ledger()
    for n in range(nodes):
        ledger.set_node(Node(f"n{n}", (), 1_000))
    seeker = Seeker(ledger.fleet, "default/w/f", 0.0)
    walked = seeker.nodes_from_home
    assert sorted(walked) == list(range(nodes))
    positions = walk_positions("default/w/f", np.array(walked), nodes)
    assert positions.tolist() == list(range(nodes))
