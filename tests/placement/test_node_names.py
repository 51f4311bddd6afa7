"""Names of nodes that are looked up in the text of a call, against a twin that parses it."""

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler.model.node import Gpu, Node
from scheduler.placement.fleet import Fleet
from scheduler.placement.name_kernels import add_to_hash
from scheduler.placement.node_names import NameIndex, NodeNames
from tests.examples import examples

names_of_nodes = st.one_of(
    st.from_regex(r"[a-z0-9]([-a-z0-9.]{0,20}[a-z0-9])?", fullmatch=True),
    st.sampled_from(["n1", "n2", "n12", "N1", "", " ", "nöde", 'a"b', "a\\b", "a\tb", "]}", '","']),
)
spaces = st.text(" \t\n\r", max_size=2)


def index_of(names) -> NameIndex:
    return NameIndex({name: row for row, name in enumerate(names)}, len(names))


def naive_rows(names, text: str):
    """Rows of the list that ends an object; None where it is none, or has a doubtful name."""
    try:
        listed = json.loads('{"names":[' + text)["names"]
    except (ValueError, KeyError):
        return None
    if not all(name in names for name in listed) or len(set(listed)) < len(listed):
        return None
    return [names.index(name) for name in listed]


@examples(300)
@given(st.lists(names_of_nodes, unique=True), st.lists(st.integers(0, 9)), st.data())
def test_known_names_are_found_in_their_order(names, order, data):
    """Plain names have their rows, in any order and with any white space between them."""
    plain = [n for n in names if n.isascii() and json.dumps(n) == f'"{n}"']
    listed = list(dict.fromkeys(plain[i] for i in order if i < len(plain)))
    gaps = [data.draw(spaces) for _ in range(4)]
    text = (gaps[0] + "," + gaps[1]).join(f'"{name}"' for name in listed)
    whole = f"{gaps[2]}{text}{gaps[3]}]{gaps[0]}}}{gaps[1]}".encode()
    rows = index_of(names).find(b"..." + whole, 3)
    assert rows is not None
    assert [names.index(name) for name in listed] == rows.tolist()


@examples(500)
@given(
    st.lists(names_of_nodes, unique=True, max_size=4),
    st.lists(
        st.sampled_from(['"n1"', '"n2"', '"n1', "n2", ",", " ", "]", "}", "]}", "\\", "1", '"'])
        | names_of_nodes.map(json.dumps)
        | names_of_nodes.map(lambda name: f'"{name}"'),
        max_size=8,
    ),
)
def test_any_text_is_found_as_it_is_parsed_or_not_at_all(names, parts):
    """Rows are those of the names that a parser reads; the rest is left to the parser."""
    text = "".join(parts)
    rows = index_of(names).find(text.encode(), 0)
    if rows is not None:
        assert rows.tolist() == naive_rows(names, text)


def hash_of(name: str) -> int:
    hashed = 0
    for character in name.encode():
        hashed = add_to_hash(hashed, character)
    return hashed


@pytest.mark.parametrize(
    "form", ["node-{}", "node-{:05}", "n{:06}", "gpu-{:04}.example.com", "vmss{:06x}"]
)
def test_numbered_names_rarely_have_the_same_slot(form):
    """Names that differ in their digits alone fill the table as random ones would: 93 % of them."""
    slots = {hash_of(form.format(number)) & 0x7FFF for number in range(5_000)}
    assert len(slots) > 0.9 * 5_000


def gpu(index: int, memory_mib: int = 8_000) -> Gpu:
    uuid = f"GPU-{index}"
    return Gpu(
        index=index, uuid=uuid, model="A", memory_mib=memory_mib, multiprocessors=1, healthy=True
    )


def test_a_change_of_rows_gives_another_index():
    """Rows that were looked up before are looked up again; a change of a node's state is none."""
    fleet = Fleet()
    for name in ("n1", "n2"):
        fleet.set_node(Node(name, (gpu(0),), 1_000))
    nodes = NodeNames.of_rows(fleet.index, fleet.index.find(b'"n2","n1"]}', 0))
    first = fleet.index
    fleet.set_node(Node("n1", (gpu(0),), 2_000))
    assert fleet.index is first
    assert nodes.rows(fleet).tolist() == [1, 0]

    fleet.remove_node("n1")
    assert fleet.index.find(b'"n2","n1"]}', 0) is None
    assert nodes.rows(fleet).tolist() == [1, -1]
    assert list(nodes) == ["n2", "n1"]

    fleet.set_node(Node("n3", (gpu(0),), 1_000))  # in the row of n1
    assert fleet.index.find(b'"n3"]}', 0).tolist() == [0]
    second = fleet.index
    fleet.set_node(Node("n3", (gpu(0), gpu(1)), 1_000))  # its GPUs move
    assert fleet.index is not second
    fleet.compact()
    assert nodes.rows(fleet).tolist() == [1, -1]
    assert nodes.at(np.array([1])) == ["n1"]
    assert nodes[0] == "n2"


def test_nodes_with_the_same_gpus_are_alike():
    """The number tells apart what a refusal of an empty node tells apart."""
    fleet = Fleet()
    for number in range(100):
        fleet.set_node(Node(f"n{number}", (gpu(0, 8_000 + number % 3),), number))
    numbers = fleet.shape_number[:100]
    assert len(set(numbers.tolist())) == 3
    assert all(numbers[row] == numbers[row % 3] for row in range(100))
