"""Placing against fragmentation: the kernels against their naive twins, and its effect."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from scheduler.ledger.ledger import Ledger
from scheduler.ledger.reservation import Reservation
from scheduler.model.node import Gpu, Node
from scheduler.model.plan import Candidate, Configuration
from scheduler.placement.candidates import CandidateTable, CpuRequest
from scheduler.placement.fragmentation import RequestClass, RequestMix
from scheduler.placement.options import Limits
from scheduler.placement.placement import Placer, place
from scheduler.placement.scores import FIT_MAX, HOME
from scheduler.placement.scoring import Affinities
from tests.examples import examples
from tests.placement import naive_fragmentation as naive

MODELS = ("A100", "T4")
NAMES = [f"n{n}" for n in range(4)]
LIMITS = Limits(server_context_mib=0, clients_max=4)

requests = st.builds(
    RequestClass,
    cpu_milli=st.sampled_from([0, 500, 1_000, 3_000, 4_000]),
    gpu_percent=st.sampled_from([1, 10, 19, 30, 47, 50, 81, 100]),
    memory_mib=st.sampled_from([0, 1, 500, 2_000]),
)
mixes = st.dictionaries(requests, st.integers(1, 50), min_size=1, max_size=6)


@st.composite
def ledgers(draw: st.DrawFn) -> Ledger:
    """A few nodes with GPUs of two models, partly taken."""
    ledger = Ledger(LIMITS)
    for name in NAMES[: draw(st.integers(1, len(NAMES)))]:
        gpus = tuple(
            gpu(f"{name}-{i}", i, draw(st.sampled_from(MODELS)), draw(st.booleans()))
            for i in range(draw(st.integers(0, 4)))
        )
        ledger.set_node(Node(name, gpus, draw(st.sampled_from([1_000, 6_000, 16_000]))))
        for device in gpus:
            percent = draw(st.sampled_from([0, 19, 20, 47, 81, 100, 120]))
            memory_mib = draw(st.sampled_from([0, 1_000, 3_900]))
            ledger.confirm(reserved(device.uuid, name, device.uuid, percent, memory_mib))
    return ledger


def gpu(uuid: str, index: int, model: str = "A100", healthy: bool = True) -> Gpu:
    return Gpu(
        index=index, uuid=uuid, model=model, memory_mib=4_000, multiprocessors=40, healthy=healthy
    )


def reserved(uid, node, gpu_uuid, percent, memory_mib=0, cpu_milli=0) -> Reservation:
    return Reservation(uid, "default", uid, node, cpu_milli, gpu_uuid, percent, memory_mib)


def candidate(request: RequestClass, model: str = "A100") -> Candidate:
    configuration = Configuration(1, 0, request.gpu_percent, request.memory_mib, 10.0)
    return Candidate(configuration, model, 10.0, 10.0, 1e-5)


def placed(ledger, request, mix, names=NAMES, model="A100", home_key=""):
    """Place the request with the mix and without."""
    fleet = ledger.fleet
    question = (fleet, [candidate(request, model)], fleet.rows(names))
    cpu = CpuRequest(container_milli=request.cpu_milli)
    affinities = Affinities(home_key=home_key)
    with_mix = place(
        *question, cpu=cpu, policy="defrag", mix_of=lambda _: mix, affinities=affinities
    )
    return with_mix, place(*question, cpu=cpu, affinities=affinities)


def naive_node(ledger: Ledger, name: str, model: str) -> naive.FreeNode:
    fleet = ledger.fleet
    row = fleet.node_row[name]
    first = int(fleet.arrays.node_first_gpu[row])
    gpus = tuple(
        naive.FreeGpu(
            gpu_row,
            0,
            int(fleet.arrays.gpu_free_percent[gpu_row]),
            int(fleet.arrays.gpu_free_memory_mib[gpu_row]),
            int(fleet.arrays.gpu_free_clients[gpu_row]),
        )
        for gpu_row in range(first, first + int(fleet.arrays.node_gpus[row]))
        if fleet.arrays.gpu_model[gpu_row] == fleet.model_number(model)
    )
    return naive.FreeNode(int(fleet.arrays.node_free_cpu_milli[row]), gpus)


@examples(300)
@given(ledger=ledgers(), request=requests, mix=mixes)
def test_growths_and_their_gpus(ledger, request, mix):
    """Kernel and twin agree on every node's GPU and on how much fragmentation grows there."""
    with_mix, without = placed(ledger, request, RequestMix.of(mix))
    assert with_mix.candidate_index == without.candidate_index
    assert ((with_mix.gpu_rows >= 0) == (without.gpu_rows >= 0)).all()
    if with_mix.candidate_index is None:
        assert with_mix.fragmentation is None
        return
    growths = with_mix.fragmentation
    for i, (name, row) in enumerate(zip(NAMES, with_mix.gpu_rows, strict=True)):
        if row >= 0:
            node = naive_node(ledger, name, "A100")
            assert (row, growths.growth[i]) == naive.least_growth(node, request, mix)
            assert growths.free_percent[i] == sum(max(gpu.percent, 0) for gpu in node.gpus)


@examples(300)
@given(data=st.data(), request=requests, mix=mixes)
def test_a_node_next_to_equal_ones_as_if_it_were_alone(data, request, mix):
    """The result for a node depends on no other one: many nodes are equal, or nearly so."""
    reservations = st.tuples(st.sampled_from([0, 19, 47]), st.sampled_from([0, 1_000]))
    kinds = data.draw(
        st.lists(st.lists(reservations, min_size=1, max_size=3), min_size=1, max_size=2)
    )
    ledger = Ledger(LIMITS)
    for name in NAMES:
        kind = data.draw(st.sampled_from(kinds))
        gpus = tuple(gpu(f"{name}-{i}", i) for i in range(len(kind)))
        ledger.set_node(Node(name, gpus, data.draw(st.sampled_from([6_000, 16_000]))))
        for device, (percent, memory_mib) in zip(gpus, kind, strict=True):
            ledger.confirm(reserved(device.uuid, name, device.uuid, percent, memory_mib))
    fleet = ledger.fleet
    ready_ms = np.full(len(fleet.arrays.gpu_model), np.inf)
    has_container = data.draw(st.lists(st.booleans(), min_size=12, max_size=12))
    ready_ms[: len(has_container)][has_container] = -np.inf
    table = CandidateTable(
        fleet,
        [candidate(request)._replace(start_ms=100.0)],
        CpuRequest(container_milli=request.cpu_milli),
    )

    def place_on(names):
        placer = Placer(
            fleet,
            "",
            node_rows=fleet.rows(names),
            cold_ms=100.0,
            policy="defrag",
            mix_of=lambda _: RequestMix.of(mix),
        )
        placer.place(table, np.zeros(len(names)), ready_ms, 0.0, np.empty(0, np.int64))
        delta = placer.fragmentation
        if delta is None:
            return placer.gpu_rows.tolist(), [None] * len(names)
        results = zip(delta.growth.tolist(), delta.free_percent.tolist(), strict=True)
        return placer.gpu_rows.tolist(), list(results)

    gpu_rows, results = place_on(NAMES)
    for i, name in enumerate(NAMES):
        [gpu_row], [result] = place_on([name])
        assert gpu_rows[i] == gpu_row
        assert gpu_row < 0 or results[i] == result


@examples(100)
@given(ledger=ledgers(), request=requests)
def test_without_a_mix_it_packs(ledger, request):
    """Without reservations there is no mix."""
    with_mix, without = placed(ledger, request, RequestMix.of({}))
    assert with_mix.fragmentation is None
    assert with_mix.gpu_rows.tolist() == without.gpu_rows.tolist()


@examples(200)
@given(ledger=ledgers(), request=requests, mix=mixes)
def test_the_least_growth_comes_first(ledger, request, mix):
    """Scores fall as growth rises, home excepted; then the node with the least free is first."""
    placement, _ = placed(ledger, request, RequestMix.of(mix), home_key="w/f")
    scores = placement.scores
    order = placement.best_first()
    assert placement.best == (order[0] if len(order) else None)
    assert sorted(order.tolist()) == np.flatnonzero(placement.gpu_rows >= 0).tolist()
    if not len(order):
        return
    assert scores[order].max() <= HOME
    away = [i for i in order.tolist() if scores[i] != HOME]
    delta = placement.fragmentation
    growths = [(int(delta.growth[i]), int(delta.free_percent[i])) for i in away]
    assert growths == sorted(growths)
    if growths and len(away) == len(order):
        assert scores[away[0]] == FIT_MAX


def test_a_grant_that_strands_nothing_is_preferred():
    """Usual pods request 50 % with 4 vCPUs: a small pod goes where half a GPU is of no use."""
    ledger = Ledger(LIMITS)
    ledger.set_node(Node("home", (), 8_000))
    ledger.set_node(Node("whole", (gpu("a", 0),), 8_000))
    ledger.set_node(Node("few-vcpus", (gpu("b", 0),), 5_000))
    names = ["home", "whole", "few-vcpus"]
    usual = RequestMix.of({RequestClass(4_000, 50, 0): 10})
    placement, _ = placed(ledger, RequestClass(1_000, 40, 0), usual, names)
    # "whole" loses one of two usable halves; "few-vcpus" had one, and still has it.
    assert placement.fragmentation.growth.tolist() == [0, 10 * (50 - 40), 10 * (10 - 50)]
    order = placement.best_first()
    assert [names[i] for i in order] == ["few-vcpus", "whole"]


def test_only_the_most_frequent_classes_count():
    """The mix has a limited number of classes; one without a share is in none."""
    counted = {RequestClass(1_000, percent, 0): percent for percent in range(1, 101)}
    mix = RequestMix.of(counted | {RequestClass(1_000, 0, 0): 1_000}, limit=3)
    assert mix.arrays.gpu_percent.tolist() == mix.arrays.pods.tolist() == [100, 99, 98]
