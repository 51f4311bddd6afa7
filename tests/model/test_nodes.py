"""Nodes and their GPUs are parsed from raw JSON; an error names the field."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler.model.node import Gpu, Node, NodeError, checked_node, gpus_of, node_from_json
from tests.extender.factories import GROUP, gpu, node

GPUS = f"{GROUP}/gpus"


@given(
    cpu_milli=st.integers(0, 10**6),
    memory_mib=st.lists(st.integers(1, 16_777_216), max_size=8),
    healthy=st.booleans(),
)
def test_every_field_is_parsed(cpu_milli, memory_mib, healthy):
    """GPUs stand in the annotation, in its order, and vCPUs in the status, in thousandths."""
    rows = [gpu(i, "n", memory_mib=m, healthy=healthy) for i, m in enumerate(memory_mib)]
    raw = node("n", cpu=f"{cpu_milli}m", inventory=json.dumps(rows))
    assert node_from_json(raw) == Node("n", tuple(Gpu(**row) for row in rows), cpu_milli)


@pytest.mark.parametrize(
    ("status", "cpu_milli"),
    [
        ({"allocatable": {"cpu": "2"}, "capacity": {"cpu": "4"}}, 2_000),
        ({"capacity": {"cpu": "4"}}, 4_000),
        ({"allocatable": {"memory": "1Gi"}}, 0),
        ({"allocatable": {"cpu": "9e15"}}, 10**12),
        (None, 0),
    ],
)
def test_vcpus_are_those_that_pods_may_have(status, cpu_milli):
    """A node that does not tell what is allocatable has its capacity, within a machine word."""
    assert node_from_json({"metadata": {"name": "n"}, "status": status}).cpu_milli == cpu_milli


@pytest.mark.parametrize("metadata", [None, {}, {"name": ""}, {"name": 7}])
def test_a_node_needs_a_name(metadata):
    with pytest.raises(NodeError, match=r"metadata\.name is missing"):
        node_from_json({"metadata": metadata})


def test_an_invalid_quantity_is_named():
    with pytest.raises(NodeError, match=r"status\.allocatable\.cpu: 'many'"):
        node_from_json(node("n", cpu="many"))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{}", f"annotation {GPUS}: Input should be a valid array"),
        ("[{}]", rf"annotation {GPUS}\[0\].index: Field required"),
        (json.dumps([gpu(0, "n", memory_mib=0)]), rf"{GPUS}\[0\].memory_mib: .* greater than"),
        (json.dumps([gpu(0, "n"), gpu(0, "n")]), "two GPUs have the same uuid"),
    ],
)
def test_an_invalid_inventory_is_named(text, message):
    with pytest.raises(NodeError, match=message):
        gpus_of({GPUS: text})


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        (7, "document 3 is no Node with a metadata.name"),
        ({"metadata": []}, "document 3 is no Node with a metadata.name"),
        ({"metadata": {"name": 7}}, "document 3 is no Node with a metadata.name"),
        (
            {"metadata": {"name": "n", "annotations": "x"}},
            "Node 'n': metadata.annotations must be a mapping, not 'x'",
        ),
        ({"metadata": {"name": "n"}, "status": [1]}, "Node 'n': status must be a mapping"),
        (
            {"metadata": {"name": "n"}, "status": {"capacity": "16"}},
            "Node 'n': status.capacity must be a mapping, not '16'",
        ),
    ],
)
def test_a_document_of_another_form_is_no_node(raw, message):
    with pytest.raises(NodeError, match=message):
        checked_node(raw, 3)


def test_a_node_of_the_right_form_is_itself():
    assert checked_node(node("n"), 1) == node("n")
