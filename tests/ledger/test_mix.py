"""What is held is what usually asks: the mix that the ledger tells."""

from collections import Counter

from hypothesis import given, settings
from hypothesis import strategies as st

from scheduler.ledger.ledger import Ledger
from scheduler.ledger.reservation import Reservation
from scheduler.model.node import Gpu, Node

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


def asked(ledger: Ledger, model: str) -> Counter:
    """What the mix says, as a count of (vCPU, percent, memory)."""
    mix = ledger.mix(model)
    rows = zip(*(column.tolist() for column in mix.arrays), strict=True)
    return Counter({(cpu, percent, mib): times for cpu, percent, mib, times in rows})


def expected(ledger: Ledger, model: str) -> Counter:
    fleet = ledger.fleet
    found: Counter = Counter()
    for held in ledger.reservations():
        row = fleet.gpu_row(held.node, held.gpu_uuid) if held.gpu_uuid else -1
        if row >= 0 and fleet.gpus[row].model == model:
            found[held.cpu_milli, held.gpu_percent, held.memory_mib] += 1
    return found


@settings(max_examples=200, deadline=None)
@given(steps=steps)
def test_the_mix_is_what_is_held_on_gpus_that_are_there(steps):
    """Whatever came, changed and went, before the first question and after."""
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
        assert asked(ledger, model) == expected(ledger, model)
