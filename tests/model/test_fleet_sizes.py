"""Sizes of the nodes of a fleet: what some node can hold, and what the messages say."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler.model.fleet_capacity import FleetCapacity, NodeSize
from scheduler.model.plan import Configuration
from workbench.profiles.builders import profile

sizes = st.builds(NodeSize, st.integers(0, 4).map(lambda cpu: 1000 * cpu), st.integers(0, 4))
fleets = st.lists(st.tuples(st.sampled_from("ab"), sizes), max_size=6)


def demand(cpu, memory_mib, percent=10):
    return Configuration(1, cpu, percent, memory_mib, 1.0)


@given(fleet=fleets, model=st.sampled_from("abc"), cpu=st.integers(0, 5), mib=st.integers(0, 5))
def test_a_fleet_holds_what_one_of_its_nodes_holds(fleet, model, cpu, mib):
    """No two nodes together, and none of another GPU model."""
    fits = [s for name, s in fleet if name == model and cpu * 1000 <= s[0] and mib <= s[1]]
    assert FleetCapacity.of(fleet).holds(model, demand(cpu, mib)) is bool(fits)


@given(fleet=fleets, number=st.randoms(use_true_random=False))
def test_smaller_nodes_make_no_other_fleet(fleet, number):
    """Nor does the order, so that plans are made again only if the largest nodes change."""
    smaller = [(model, NodeSize(s.cpu_milli - 1, s.memory_mib)) for model, s in fleet]
    shuffled = [*fleet, *smaller]
    number.shuffle(shuffled)
    assert FleetCapacity.of(shuffled) == FleetCapacity.of(fleet)
    assert set(FleetCapacity.of(fleet).models) == {model for model, _ in fleet}


def test_nodes_of_any_size_hold_all():
    fleet = FleetCapacity.of_models(["b", "a", "a"])
    assert fleet.models == ("a", "b")
    assert fleet.holds("a", demand(1_024, 16_777_216, 100))
    assert not fleet.holds("c", demand(1, 1))


@pytest.mark.parametrize(
    ("other_cpu_milli", "percent", "holds"), [(0, 50, True), (1, 50, False), (0, 51, False)]
)
def test_other_containers_and_the_largest_share_count(other_cpu_milli, percent, holds):
    fleet = FleetCapacity.of([("a", NodeSize(4_000, 100))], percent_max=50)
    assert fleet.beside(other_cpu_milli).holds("a", demand(4, 100, percent)) is holds


def test_a_refusal_compares_the_smallest_configuration_with_the_largest_nodes():
    """It says what else counts against it."""
    nodes = [("a", NodeSize(4_500, 1_000)), ("a", NodeSize(2_000, 40_960))]
    fleet = FleetCapacity.of(nodes, percent_max=80)
    text = (
        "its smallest configuration takes 8 vCPU, 10 % GPU and 2,000 MiB on a, and the largest "
        "node with that GPU has 4.5 vCPU and 1,000 MiB or 2 vCPU and 40,960 MiB"
    )
    demands = [demand(16, 1), demand(8, 3_000), demand(8, 2_000)]
    assert fleet.refusal("a", demands) == f"{text}, and grants 80 % GPU"
    others = ", 0.5 vCPU of it for the pod's other containers"
    assert FleetCapacity.of(nodes).beside(500).refusal("a", demands) == text + others


def test_configurations_that_no_node_holds_are_listed():
    """On models of the fleet; one that it does not have is another problem."""
    rows = [(1, cpu, 50, 10.0) for cpu in range(1, 10)]
    document = profile("f", {"a": rows, "b": rows[:1], "c": rows})
    texts = FleetCapacity.of([("a", NodeSize(2_000, 100)), ("b", NodeSize(2_000, 100))]).excess(
        document
    )
    first = ", ".join(f"({cpu} vCPU, 50 % GPU and 100 MiB)" for cpu in range(3, 8))
    (text,) = texts
    assert text == (
        f"no node can hold 7 of 9 configurations on a: {first} and 2 more; the largest node with "
        "that GPU has 2 vCPU and 100 MiB"
    )
