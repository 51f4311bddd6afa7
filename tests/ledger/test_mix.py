"""The mix of requests that the ledger reports is that of its reservations."""

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from scheduler.ledger.demand_mix import DemandCounter
from scheduler.ledger.ledger import Ledger
from scheduler.ledger.reservation import Reservation
from scheduler.model.node import Gpu, Node
from scheduler.placement.fragmentation import CLASSES_MAX, RequestClass, RequestMix
from tests.examples import examples

MODELS = ("A100", "T4")


def node(name: str, model: str) -> Node:
    gpus = tuple(
        Gpu(
            index=i,
            uuid=f"{name}-{i}",
            model=model,
            memory_mib=40_000,
            multiprocessors=108,
            healthy=True,
        )
        for i in range(2)
    )
    return Node(name, gpus, 64_000)


names = st.sampled_from(["n0", "n1"])
steps = st.lists(
    st.one_of(
        st.tuples(st.just("node"), names, st.sampled_from(MODELS)),
        st.tuples(st.just("no node"), names),
        st.tuples(
            st.just("hold"),
            st.builds(
                lambda uid, name, gpu, percent: Reservation(
                    uid, "d", uid, name, 1_000, gpu and f"{name}-{gpu}", percent, 100
                ),
                st.sampled_from("abcdef"),
                names,
                st.sampled_from([None, "0", "1", "gone"]),
                st.sampled_from([10, 50]),
            ),
        ),
        st.tuples(st.just("release"), st.sampled_from("abcdef")),
        st.tuples(st.just("look")),
    ),
    max_size=30,
)


def mix_of(ledger: Ledger, model: str) -> Counter:
    """Return the mix as a count of (vCPU, percent, memory)."""
    return counted(ledger.mix(model))


def counted(mix: RequestMix) -> Counter:
    rows = zip(*(column.tolist() for column in mix.arrays), strict=True)
    return Counter({(cpu, percent, mib): times for cpu, percent, mib, times in rows})


def expected(ledger: Ledger, model: str) -> Counter:
    fleet = ledger.fleet
    counts: Counter = Counter()
    for reservation in ledger.reservations():
        row = fleet.gpu_row(reservation.node, reservation.gpu_uuid) if reservation.gpu_uuid else -1
        if row >= 0 and fleet.gpus[row].model == model:
            counts[reservation.cpu_milli, reservation.gpu_percent, reservation.memory_mib] += 1
    return counts


@examples(200)
@given(steps=steps)
def test_mix_counts_reservations_on_existing_gpus(steps):
    """After any order of changes, before the first call of mix and after."""
    ledger = Ledger()
    for kind, *what in steps:
        match kind:
            case "node":
                ledger.set_node(node(*what))
            case "no node":
                ledger.remove_node(*what)
            case "hold":
                ledger.confirm(*what)
            case "release":
                ledger.release(*what)
            case "look":
                ledger.mix("A100")
    for model in MODELS:
        assert mix_of(ledger, model) == expected(ledger, model)


@examples(200)
@given(
    numbers=st.lists(st.integers(0, CLASSES_MAX + 4), max_size=120),
    removed=st.randoms(use_true_random=False),
)
def test_mix_has_the_most_frequent_classes(numbers, removed):
    """After each change, with more classes than a mix has, and some that request no share."""
    counter, pods = DemandCounter(), []
    for uid, number in enumerate(numbers):
        request = RequestClass(1_000, number, 100)
        counter.add(str(uid), "T4", request)
        pods.append((str(uid), request))
        if removed.random() < 0.45:
            gone = pods.pop(removed.randrange(len(pods)))
            counter.remove(gone[0])
        expected_mix = RequestMix.of(Counter(request for _, request in pods))
        assert counted(counter.mix("T4")) == counted(expected_mix)
