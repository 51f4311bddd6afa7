"""Node names that are read from the text of a call, and answers that are written as text."""

import json

import pytest
from fastapi import HTTPException
from hypothesis import given
from hypothesis import strategies as st

from scheduler.extender.wire import ExtenderArgs, read_args, reasons_json
from scheduler.placement.node_names import NameIndex
from scheduler.server.messages import Reader
from tests.examples import examples
from tests.extender.factories import nodes_and_documents, pod
from tests.extender.harness import embedded

KNOWN = ["n1", "n2", "n3"]
PLAIN = Reader(ExtenderArgs)
strings = st.sampled_from(
    ["", "n1", "NodeNames", '"NodeNames"', ',"NodeNames":["n1"]}', 'x,"', "ö"]
)
values = st.recursive(
    strings | st.integers(0, 9) | st.none(),
    lambda children: st.lists(children, max_size=3) | st.dictionaries(strings, children),
    max_leaves=8,
)
name_lists = st.none() | st.lists(st.sampled_from([*KNOWN, "ghost", 'n"1', "nö"]), max_size=5)


def parsed(read, body):
    """Return the arguments that are read of a body, or the error's status and text."""
    try:
        args, names = read(body)
    except HTTPException as error:
        return error.status_code, error.detail
    return args.Pod, args.Nodes, args.NodeNames is None, list(names)


def plain(body):
    args = PLAIN.parse(body)
    return args, args.names()


@examples(500)
@given(
    values,
    name_lists,
    st.sampled_from([(",", ":"), (", ", ": ")]),
    st.permutations(["Pod", "Nodes", "NodeNames", "Other", 'x,"NodeNames']),
    st.integers(-3, 3),
    st.sampled_from([b"", b" ", b"}", b"]", b',"NodeNames":["n1"]}']),
)
def test_arguments_are_read_as_a_parser_reads_them(value, names, separators, order, cut, suffix):
    """Any order of fields, any nesting, cut or followed by anything: as a parse of the whole."""
    fields = {
        "Pod": {"metadata": {"name": "p"}, "spec": {"x": value}},
        "Nodes": None,
        "NodeNames": names,
        "Other": value,
        'x,"NodeNames': ["n3"],
    }
    text = json.dumps({key: fields[key] for key in order}, separators=separators).encode()
    body = (text[:cut] if cut < 0 else text) + suffix
    index = NameIndex({name: row for row, name in enumerate(KNOWN)}, len(KNOWN))
    assert parsed(plain, body) == parsed(lambda body: read_args(body, index), body)


@pytest.mark.parametrize("names", [["n1", "n2", "bare"], ["n2"], [], ["n1", "ghost"], ["n1", "n1"]])
def test_both_ways_have_the_same_answers(names):
    """Names that are last in the call, and names that are not, are filtered alike."""
    with embedded(**nodes_and_documents()) as extender:
        pending = pod("half")
        last = extender.post("filter", {"Pod": pending, "Nodes": None, "NodeNames": names})
        first = extender.post("filter", {"NodeNames": names, "Nodes": None, "Pod": pending})
        assert last == first
        assert {*last["NodeNames"], *last["FailedNodes"], *last["FailedAndUnresolvableNodes"]} == {
            *names
        }


texts = st.text() | st.sampled_from(["", '"', ",", '","', "\\", '\\","', "a", "b"])


@examples(300)
@given(st.dictionaries(texts, texts, max_size=8))
def test_reasons_are_written_as_an_encoder_writes_them(by_name):
    """Equal reasons are written by copying, whatever names and reasons contain."""
    groups: dict[str, list[str]] = {}
    for name, reason in by_name.items():
        groups.setdefault(reason, []).append(name)
    assert by_name == json.loads(reasons_json(groups.items()))
