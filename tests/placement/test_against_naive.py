"""The kernels of placement against their naive twins."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from scheduler.ledger.ledger import Ledger
from scheduler.ledger.reservation import Reservation
from scheduler.model.node import Gpu, Node
from scheduler.model.plan import Candidate, Configuration
from scheduler.placement import kernels
from scheduler.placement.candidates import CpuRequest
from scheduler.placement.placement import place
from scheduler.placement.reasons import refusals
from scheduler.placement.scoring import Affinities, walk_positions
from scheduler.planning.warm_rows import WarmRows
from tests.examples import examples
from tests.placement import naive

MODELS = ("A100", "T4", "unknown to the fleet")
NAMES = [*(f"n{n}" for n in range(5)), "nowhere"]
STARTS_MS = (0.0, 120.0, 2_300.0)


@st.composite
def fleets(draw: st.DrawFn) -> Ledger:
    """A ledger of a few nodes with GPUs of two models, partly taken."""
    ledger = Ledger()
    for n in range(draw(st.integers(1, 5))):
        gpus = tuple(
            Gpu(
                index=i,
                uuid=f"GPU-{n}-{i}",
                model=draw(st.sampled_from(MODELS[:2])),
                memory_mib=draw(st.sampled_from([2_000, 4_000, 8_000])),
                multiprocessors=40,
                healthy=draw(st.booleans()),
            )
            for i in range(draw(st.integers(0, 4)))
        )
        ledger.set_node(Node(f"n{n}", gpus, draw(st.sampled_from([1_000, 4_000, 16_000]))))
        for i, gpu in enumerate(gpus):
            ledger.confirm(
                Reservation(
                    f"{n}-{i}",
                    "default",
                    f"p{n}-{i}",
                    f"n{n}",
                    draw(st.integers(0, 2_000)),
                    gpu.uuid,
                    draw(st.integers(0, 120)),
                    draw(st.integers(0, 4_000)),
                )
            )
    return ledger


candidate_lists = st.lists(
    st.builds(
        lambda model, percent, memory, cpu, start_ms: Candidate(
            Configuration(1, cpu, percent, memory, 10.0), model, 10.0, start_ms + 10, 1e-5, start_ms
        ),
        st.sampled_from(MODELS),
        st.integers(1, 100),
        st.integers(1, 8_000),
        st.integers(1, 8),
        st.sampled_from(STARTS_MS),
    ),
    min_size=1,
    max_size=8,
)
node_starts = st.none() | st.lists(
    st.sampled_from(STARTS_MS), min_size=len(NAMES), max_size=len(NAMES)
).map(np.array)


def naive_nodes(
    ledger: Ledger, names: list[str], node_start_ms: np.ndarray | None = None
) -> list[naive.FreeNode | None]:
    fleet = ledger.fleet
    nodes: list[naive.FreeNode | None] = []
    for i, name in enumerate(names):
        row = fleet.node_row.get(name)
        node = None if row is None else fleet.nodes[row]
        if node is None:
            nodes.append(None)
            continue
        gpus = []
        for gpu in node.gpus:
            on_gpu = [h for h in ledger.on_node(name) if h.gpu_uuid == gpu.uuid]
            gpus.append(
                naive.FreeGpu(
                    fleet.gpu_row(name, gpu.uuid),
                    fleet.model_number(gpu.model) if gpu.healthy else -1,
                    100 - sum(h.gpu_percent for h in on_gpu),
                    gpu.memory_mib - 1_024 - sum(h.memory_mib for h in on_gpu),
                    48 - sum(h.memory_mib > 0 for h in on_gpu),
                )
            )
        cpu = node.cpu_milli - sum(h.cpu_milli for h in ledger.on_node(name))
        start_ms = 0.0 if node_start_ms is None else float(node_start_ms[i])
        nodes.append(naive.FreeNode(cpu, tuple(gpus), start_ms))
    return nodes


@examples(300)
@given(
    ledger=fleets(),
    candidates=candidate_lists,
    node_start_ms=node_starts,
    spread=st.booleans(),
    container_milli=st.integers(0, 3_000),
    others_milli=st.integers(0, 3_000),
)
def test_first_feasible_candidate_and_its_gpus(
    ledger, candidates, node_start_ms, spread, container_milli, others_milli
):
    """Kernel and twin agree on the candidate that decides and on every node's GPU."""
    fleet = ledger.fleet
    placement = place(
        fleet,
        candidates,
        fleet.rows(NAMES),
        node_start_ms=node_start_ms,
        policy="spread" if spread else "pack",
        cpu=CpuRequest(container_milli, others_milli),
    )
    asks = [
        naive.Ask(
            fleet.model_number(c.gpu_model) if c.gpu_model in fleet.capacity.models else -99,
            c.configuration.gpu_percent,
            c.configuration.memory_mib,
            max(container_milli, c.configuration.cpu * 1_000) + others_milli,
            c.start_ms,
        )
        for c in candidates
    ]
    nodes = naive_nodes(ledger, NAMES, node_start_ms)
    candidate_index, rows = naive.first_feasible(nodes, asks, spread=spread)
    assert (candidate_index if candidate_index >= 0 else None) == placement.candidate_index
    assert rows == placement.gpu_rows.tolist()


@examples(200)
@given(
    ledger=fleets(),
    model=st.integers(0, 2),
    percent=st.integers(1, 100),
    memory_mib=st.integers(1, 8_000),
)
def test_nearest_gpu_of_each_node(ledger, model, percent, memory_mib):
    """Kernel and twin agree on the GPU that a refusal reports."""
    names = [name for name in (f"n{n}" for n in range(5)) if name in ledger.fleet.node_row]
    fleet = ledger.fleet
    nearest = np.empty(len(names), np.int64)
    free_max_mib = np.empty(len(names), np.int64)
    kernels.nearest_gpus(
        fleet.arrays, fleet.rows(names), model, percent, memory_mib, nearest, free_max_mib
    )
    ask = naive.Ask(model, percent, memory_mib, 0)
    nodes = [node for node in naive_nodes(ledger, names) if node is not None]
    expected = [naive.nearest_gpu(node, ask) for node in nodes]
    assert expected == list(zip(nearest.tolist(), free_max_mib.tolist(), strict=True))


@examples(200)
@given(
    ledger=fleets(),
    candidates=candidate_lists,
    node_start_ms=node_starts,
    budget_ms=st.none() | st.floats(0, 5_000),
)
def test_every_node_passes_or_has_a_reason(ledger, candidates, node_start_ms, budget_ms):
    """Every node either fits or has a reason."""
    fleet = ledger.fleet
    placement = place(fleet, candidates, fleet.rows(NAMES), node_start_ms=node_start_ms)
    refused = refusals(placement, NAMES, budget_ms)
    holding = {name for name, row in zip(NAMES, placement.gpu_rows, strict=True) if row >= 0}
    assert holding.isdisjoint(refused)
    assert holding | refused.keys() == set(NAMES)
    assert all(refusal.reason for refusal in refused.values())
    assert not refused["nowhere"].resolvable


@examples(200)
@given(ledger=fleets(), candidates=candidate_lists, node_start_ms=node_starts)
def test_what_fits_on_an_empty_node_is_resolvable(ledger, candidates, node_start_ms):
    """kube-scheduler may evict where some candidate would fit, for its GPU and its start."""
    fleet = ledger.fleet
    placement = place(fleet, candidates, fleet.rows(NAMES), node_start_ms=node_start_ms)
    refused = refusals(placement, NAMES)
    for i, name in enumerate(NAMES[:-1]):
        row = fleet.node_row.get(name)
        if name not in refused or row is None:
            continue
        start_ms = 0.0 if node_start_ms is None else node_start_ms[i]
        could = any(
            gpu.healthy
            and gpu.model == c.gpu_model
            and c.configuration.memory_mib <= gpu.memory_mib - ledger.limits.server_context_mib
            for gpu in fleet.nodes[row].gpus
            for c in candidates
            if c.start_ms >= start_ms
        )
        assert not could or refused[name].resolvable


@examples(200)
@given(ledger=fleets(), candidates=candidate_lists, spread=st.booleans())
def test_scores_are_whole_numbers_from_0_to_10(ledger, candidates, spread):
    """The predecessor's node has the highest score; a node where it does not fit has 0."""
    names = [f"n{n}" for n in range(5)]
    warm = WarmRows.of(ledger.fleet, frozenset({"n2", "gone"}))
    placement = place(
        ledger.fleet,
        candidates,
        ledger.fleet.rows(names),
        policy="spread" if spread else "pack",
        affinities=Affinities({"n1", "gone"}, warm.gpu_ready_ms, home_key="w/f"),
    )
    scores = placement.scores
    assert scores.dtype == np.int64
    for name, score, row in zip(names, scores.tolist(), placement.gpu_rows, strict=True):
        assert 0 <= score <= 10
        if row < 0:
            assert score == 0
        elif name == "n1":
            assert score == 10
        elif name == "n2":
            assert score == 8
    order = placement.best_first()
    assert placement.best == (order[0] if len(order) else None)
    assert sorted(order.tolist()) == np.flatnonzero(placement.gpu_rows >= 0).tolist()
    assert sorted(scores[order].tolist(), reverse=True) == scores[order].tolist()


@given(key=st.text(max_size=20), count=st.integers(1, 300))
def test_the_walk_from_home_reaches_every_node_once(key, count):
    """The stride is coprime with the number of nodes."""
    positions = walk_positions(key, np.arange(count), count)
    assert sorted(positions.tolist()) == list(range(count))
