"""Rows that were joined and split again are those of their request."""

from itertools import chain

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler.oip.batch import RowRange, join, reunite, row_ranges, split
from scheduler.oip.errors import MessageError
from scheduler.oip.infer_request import parse_request
from scheduler.oip.infer_response import parse_response, write_response
from scheduler.oip.stage_inputs import stage_inputs
from tests.oip import naive
from tests.oip.strategies import binary_names, clients, columns


def serve(body, header_length, binary):
    """Play a model server whose outputs are its inputs, in the other order."""
    _, tensors = naive.decode(body, header_length, "inputs")
    outputs = [(name, datatype, array) for name, (datatype, array) in tensors.items()]
    return naive.encode({"outputs": outputs[::-1]}, binary=binary, nested=set(tensors))


def batches(ranges, rows_max):
    """Group row ranges in their order into batches of at most ``rows_max`` rows."""
    batch = []
    for item in ranges:
        if sum(member.rows for member in batch) + item.rows > rows_max:
            yield batch
            batch = []
        batch.append(item)
    yield batch


def run_stage(requests, rows_max, server_binary, answer_binary):
    """Send joinable requests through batches; return the outputs for each of them."""
    assert len({request.joinable for request in requests}) == 1
    numbered = [
        (index, item)
        for index, request in enumerate(requests)
        for item in row_ranges(request.in_form(binary=server_binary), rows_max)
    ]
    pieces = [[] for _ in requests]
    positions = iter([index for index, _ in numbered])
    for batch in batches([item for _, item in numbered], rows_max):
        body, header_length = naive.sent(join(batch, binary=server_binary))
        answer = serve(body, header_length, answer_binary)
        outputs = parse_response(*answer, rows=sum(member.rows for member in batch))
        for part in split(batch, outputs):
            pieces[next(positions)].append(part)
    return [reunite(parts) for parts in pieces]


def exchange(senders, stages):
    """Send requests of clients through stages; return the answers as the clients decode them."""
    requests = [parse_request(sender.body, sender.header_length) for sender in senders]
    outputs = run_stage(requests, *stages[0])
    for stage in stages[1:]:
        inputs = [stage_inputs([], {"earlier": tensors}) for tensors in outputs]
        later = zip(requests, inputs, strict=True)
        outputs = run_stage([request.at_stage(tensors, []) for request, tensors in later], *stage)
    return [
        naive.decode(*naive.sent(write_response("w", request, tensors)), "outputs")
        for request, tensors in zip(requests, outputs, strict=True)
    ]


def check(senders, answers):
    for sender, (fields, tensors) in zip(senders, answers, strict=True):
        assert fields.get("id") == sender.id
        assert fields["model_name"] == "w"
        assert tensors.keys() == sender.tensors.keys()
        for name, tensor in tensors.items():
            assert naive.same(tensor, sender.tensors[name])


@given(st.data())
def test_each_request_receives_its_own_rows(data):
    """All datatypes, row counts and batch sizes, one or two stages; all mixtures of both forms."""
    group = data.draw(columns())
    senders = data.draw(st.lists(clients(group), min_size=1, max_size=4))
    only_binary = any(column.datatype in naive.BINARY_ONLY for column in group)
    stages = [
        (
            data.draw(st.integers(1, 8)),
            only_binary or data.draw(st.booleans()),
            binary_names(data.draw, group),
        )
        for _ in range(data.draw(st.integers(1, 2)))
    ]
    check(senders, exchange(senders, stages))


@given(st.data())
def test_binary_tensors_pass_bit_by_bit(data):
    """NaN with any payload, and BYTES that are no text."""
    group = data.draw(columns())
    senders = data.draw(st.lists(clients(group, any_bytes=True), min_size=1, max_size=3))
    names = {column.name for column in group}
    sizes = data.draw(st.lists(st.integers(1, 8), min_size=1, max_size=2))
    check(senders, exchange(senders, [(size, True, names) for size in sizes]))


def request_of(rows, *, name="x", dtype="FP32", width=2, first=0.0, **fields):
    array = (first + np.arange(rows * width)).reshape(rows, width)
    return naive.encode({"inputs": [(name, dtype, array)]}, binary={name}, **fields)


def ranges_of(*bodies):
    requests = [parse_request(*body) for body in bodies]
    return [RowRange(request, 0, request.rows) for request in requests]


def test_a_joined_request_is_header_and_views():
    """No byte of a tensor is copied: the buffers are views of the bodies."""
    bodies = [request_of(1), request_of(2, first=10)]
    message = join(ranges_of(*bodies), binary=True)
    assert [view.obj for view in message.buffers] == [body for body, _ in bodies]
    assert all(view.obj is body for view, (body, _) in zip(message.buffers, bodies, strict=True))
    fields, tensors = naive.decode(*naive.sent(message), "inputs")
    assert tensors["x"][1].tolist() == [[0, 1], [10, 11], [12, 13]]
    assert fields == {"parameters": {"binary_data_output": True}}


def test_an_answer_is_views_of_the_servers_answer():
    ranges = ranges_of(request_of(1), request_of(2))
    body, length = naive.encode(
        {"outputs": [("y", "INT64", np.arange(3).reshape(3, 1))]}, binary={"y"}
    )
    answers = split(ranges, parse_response(body, length, rows=3))
    contents = [part.content for (output,) in answers for part in output.parts]
    assert all(view.obj is body for view in contents)
    assert list(map(len, contents)) == [8, 16]


@pytest.mark.parametrize(
    "body",
    [
        request_of(1, name="z"),
        request_of(1, dtype="FP64"),
        request_of(1, width=3),
        request_of(1, parameters={"priority": 1}),
        request_of(1, outputs=[{"name": "y"}]),
    ],
    ids=["name", "datatype", "shape", "parameters", "outputs"],
)
def test_requests_that_differ_are_not_joinable(body):
    assert parse_request(*request_of(1)).joinable != parse_request(*body).joinable


def test_parameters_of_different_json_types_are_not_joinable():
    """In Python 1, 1.0 and True are equal; for a model server they may differ."""
    keys = {
        parse_request(*request_of(1, parameters={"flag": value})).joinable
        for value in (1, 1.0, True)
    }
    assert len(keys) == 3


def test_rows_id_timeout_and_form_of_the_answer_do_not_matter():
    first = parse_request(*request_of(1))
    parameters = {"timeout": 5, "binary_data_output": True}
    second = parse_request(*request_of(7, id="b", parameters=parameters))
    assert first.joinable == second.joinable


def test_a_request_larger_than_the_largest_batch_is_cut():
    request = parse_request(*request_of(7))
    assert [item[1:] for item in row_ranges(request, 3)] == [(0, 3), (3, 6), (6, 7)]


@pytest.mark.slow
def test_work_grows_linearly_with_rows():
    """A request cut into single rows, reunited and cut again: hours if slicing were linear."""
    rows = 50_000
    request = parse_request(*request_of(rows))
    (tensor,) = request.inputs
    (united,) = reunite([[tensor.slice(row, row + 1)] for row in range(rows)])
    again = [united.slice(row, row + 2) for row in range(0, rows, 2)]
    contents = [bytes(part.content) for pair in again for part in pair.parts]
    assert b"".join(contents) == bytes(tensor.parts[0].content)


def test_the_server_receives_parameters_outputs_and_its_own_timeout():
    body = request_of(
        1,
        parameters={"priority": 2, "timeout": 900_000},
        outputs=[{"name": "y", "parameters": {"classification": 3, "binary_data": False}}],
    )
    fields, _ = naive.decode(
        *naive.sent(join(ranges_of(body), binary=True, timeout_us=500)), "inputs"
    )
    assert fields == {
        "parameters": {"priority": 2, "timeout": 500},
        "outputs": [{"name": "y", "parameters": {"classification": 3, "binary_data": True}}],
    }


def test_parameters_of_inputs_reach_the_server():
    tensor = {"name": "x", "shape": [1], "datatype": "BYTES", "data": ["a"]}
    body = {"inputs": [{**tensor, "parameters": {"content_type": "str"}}]}
    message = join(ranges_of((naive.json.dumps(body).encode(), None)), binary=False)
    document = naive.json.loads(message.header)
    assert document["inputs"][0]["parameters"] == {"content_type": "str"}


def test_a_request_gets_the_outputs_it_requests_in_its_order():
    wanted = [{"name": "b", "parameters": {"binary_data": True}}, {"name": "a"}]
    ranges = ranges_of(request_of(1, outputs=wanted))
    outputs = [(name, "INT8", np.array([[index]])) for index, name in enumerate("abc")]
    answers = split(ranges, parse_response(*naive.encode({"outputs": outputs}), rows=1))
    message = write_response("w", ranges[0].request, answers[0])
    document = naive.json.loads(message.header[: message.header_length])
    assert [output["name"] for output in document["outputs"]] == ["b", "a"]
    assert document["outputs"][0]["parameters"] == {"binary_data_size": 1}
    assert document["outputs"][1]["data"] == [0]
    assert bytes(chain.from_iterable(message.buffers)) == b"\x01"


def test_servers_of_one_request_may_answer_in_different_forms():
    ranges = row_ranges(parse_request(*request_of(3)), 2)
    answers = [
        parse_response(
            *naive.encode({"outputs": [("y", "BYTES", words)]}, binary=binary), rows=len(words)
        )
        for words, binary in (
            (naive.objects([b"a", b""], (2,)), {"y"}),
            (naive.objects([b"b"], (1,)), frozenset()),
        )
    ]
    (output,) = reunite(answers)
    assert [part.values for part in output.to_json().parts] == [["a", ""], ["b"]]
    contents = b"".join(part.content for part in output.to_binary().parts)
    assert contents == b"\x01\0\0\0a\0\0\0\0\x01\0\0\0b"
    message = write_response("w", ranges[0].request, [output])
    assert naive.json.loads(message.header)["outputs"][0]["data"] == ["a", "", "b"]


def test_a_missing_output_is_an_error_of_the_server():
    ranges = ranges_of(request_of(1, outputs=[{"name": "y"}]))
    outputs = parse_response(*naive.encode({"outputs": [("z", "INT8", np.array([1]))]}), rows=1)
    with pytest.raises(MessageError, match="lacks output 'y'; it has 'z'") as caught:
        split(ranges, outputs)
    assert caught.value.status == 502


def test_parts_of_one_answer_have_the_same_outputs():
    first, second = (
        parse_response(*naive.encode({"outputs": [("y", kind, np.array([1]))]}), rows=1)
        for kind in ("INT8", "INT16")
    )
    with pytest.raises(MessageError, match=r"'y' INT8 \(\), and 'y' INT16 \(\)") as caught:
        reunite([first, second])
    assert caught.value.status == 502
