"""Messages over gRPC against a twin: protobuf's own classes, as tritonclient has them."""

import struct
from contextlib import suppress

import numpy as np
import pytest
from google.protobuf.message import DecodeError
from hypothesis import given
from hypothesis import strategies as st
from tritonclient.grpc import service_pb2

from scheduler.oip.batch import row_ranges, split
from scheduler.oip.errors import MessageError
from scheduler.oip.grpc_messages import MODEL_METADATA, SERVER_METADATA
from scheduler.oip.grpc_request import join_grpc, model_of_request, parse_grpc_request
from scheduler.oip.grpc_response import parse_grpc_response, write_grpc_response
from scheduler.oip.infer_request import parse_request
from scheduler.protobuf import decode, encode
from tests.oip import grpc_twin, naive
from tests.oip.grpc_twin import Answer, Request
from tests.oip.strategies import arrays, columns

PARAMETERS = st.dictionaries(
    st.text(min_size=1, max_size=3),
    st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.text(max_size=3) | st.floats(-1, 1),
    max_size=3,
)


@st.composite
def requests(draw, group, parameters):
    """Return a message, and whether it has typed contents."""
    rows = draw(st.integers(1, 4))
    only_raw = any(column.datatype in naive.BINARY_ONLY for column in group)
    typed = not only_raw and draw(st.booleans())
    tensors = [
        (column.name, column.datatype, draw(arrays(column, rows, any_bytes=not typed)))
        for column in group
    ]
    return grpc_twin.message(
        Request,
        tensors,
        typed=typed,
        parameters=parameters,
        model_name="model",
        id=draw(st.text(max_size=4)),
    )


def contents(tensor):
    return b"".join(part.content for part in tensor.parts)


def serve(body, *, typed):
    """Play a model server whose outputs are its inputs, in the other order."""
    request = Request.FromString(body)
    tensors = [(name, *tensor) for name, tensor in grpc_twin.tensors_of(request).items()]
    answer = grpc_twin.message(Answer, tensors[::-1], typed=typed, model_name="model")
    return request, answer.SerializeToString()


@given(st.data())
def test_each_client_receives_its_own_rows(data):
    """All datatypes, row counts and batch sizes; raw and typed contents on both ends."""
    group, parameters = data.draw(columns()), data.draw(PARAMETERS)
    senders = data.draw(st.lists(requests(group, parameters), min_size=1, max_size=4))
    parsed = [parse_grpc_request(sender.SerializeToString()) for sender in senders]
    assert len({request.joinable for request in parsed}) == 1
    ranges = [item for request in parsed for item in row_ranges(request, 8)]
    rows = sum(item.rows for item in ranges)
    only_raw = any(column.datatype in naive.BINARY_ONLY for column in group)
    request, answer = serve(
        join_grpc(ranges, "other", timeout_us=7), typed=not only_raw and data.draw(st.booleans())
    )
    assert request.model_name == "other"
    assert grpc_twin.parameters_of(request.parameters) == {**parameters, "timeout": 7}
    outputs = parse_grpc_response(answer, rows=rows)
    for sender, (parent, *_), own in zip(senders, ranges, split(ranges, outputs), strict=True):
        answer = Answer.FromString(write_grpc_response("w", parent, own))
        assert (answer.model_name, answer.id) == ("w", sender.id)
        assert len(answer.raw_output_contents) == len(group)
        expected = grpc_twin.tensors_of(sender)
        for name, tensor in grpc_twin.tensors_of(answer).items():
            assert naive.same(tensor, expected.pop(name))
        assert not expected


@given(st.data())
def test_a_client_of_grpc_and_one_of_http_share_a_batch(data):
    column = data.draw(columns())[0]
    tensors = [(column.name, column.datatype, data.draw(arrays(column, 2, any_bytes=True)))]
    body, header_length = naive.encode({"inputs": tensors}, binary={column.name})
    message = grpc_twin.message(Request, tensors)
    first, second = (
        parse_request(body, header_length),
        parse_grpc_request(message.SerializeToString()),
    )
    assert first.joinable == second.joinable
    assert contents(first.inputs[0]) == contents(second.inputs[0])


def test_tensors_are_views_of_the_body():
    """Raw contents and packed floats are not copied when they are read."""
    array = np.arange(4, dtype=np.float32).reshape(2, 2)
    for typed in (False, True):
        body = grpc_twin.message(Request, [("x", "FP32", array)], typed=typed).SerializeToString()
        (part,) = parse_grpc_request(body).inputs[0].parts
        assert part.content.obj is body


def test_fields_of_a_request():
    message = grpc_twin.message(
        Request,
        [("x", "INT8", np.array([1, -1]))],
        typed=True,
        parameters={"timeout": 5, "priority": 3},
        outputs=["y"],
        id="a",
        model_name="m",
        model_version="2",
    )
    message.inputs[0].parameters["kind"].string_param = "é"
    body = message.SerializeToString()
    request = parse_grpc_request(body)
    assert model_of_request(body) == ("m", "2")
    assert (request.id, request.timeout_us, request.parameters) == ("a", 5, {"priority": 3})
    assert request.inputs[0].parameters == {"kind": "é"}
    assert [output.name for output in request.outputs] == ["y"]
    assert request.binary_output
    assert contents(request.inputs[0]) == b"\x01\xff"
    joined = Request.FromString(join_grpc(row_ranges(request, 8), "m"))
    assert grpc_twin.parameters_of(joined.inputs[0].parameters) == {"kind": "é"}
    assert [output.name for output in joined.outputs] == ["y"]


def test_repeated_numbers_may_come_one_by_one():
    """Protobuf allows it, and a message that comes in two pieces."""
    message = grpc_twin.message(Request, [("x", "INT16", np.array([300, -2]))], typed=True)
    entry = b"\x0a\x01x\x12\x05INT16\x18\x02"
    for numbers in (
        b"\x2a\x0e\x10\xac\x02\x10\xfe\xff\xff\xff\xff\xff\xff\xff\xff\x01",
        b"\x2a\x03\x10\xac\x02\x2a\x0b\x10\xfe\xff\xff\xff\xff\xff\xff\xff\xff\x01",
    ):
        body = b"\x2a" + bytes([len(entry + numbers)]) + entry + numbers
        assert Request.FromString(body) == message
        assert contents(parse_grpc_request(body).inputs[0]) == struct.pack("<2h", 300, -2)


def test_rows_without_elements_need_no_contents():
    """A detector that detects nothing answers with shape [rows, 0]."""
    for datatype in ("FP32", "BYTES", "INT8"):
        for typed in (False, True):
            array = np.empty((2, 0), object if datatype == "BYTES" else None)
            answer = grpc_twin.message(Answer, [("y", datatype, array)], typed=typed)
            (output,) = parse_grpc_response(answer.SerializeToString(), rows=2)
            assert (output.shape, contents(output)) == ((2, 0), b"")


TENSOR = ("x", "INT8", np.array([1, 2]))
VALID = grpc_twin.message(Request, [TENSOR], typed=True)


def changed(change, message=VALID):
    result = type(message)()
    result.CopyFrom(message)
    change(result)
    return result.SerializeToString()


def bad_parameter(message):
    message.parameters["a"].SetInParent()


def infinite_parameter(message):
    message.parameters["a"].double_param = float("inf")


BAD = {
    "field number": (b"\x00", "a field has number 0"),
    "no end of an integer": (b"\xff", "an integer in the message has no end"),
    "an integer of many bytes": (b"\xff" * 11, "an integer in the message has no end"),
    "half a field": (b"\x0a\x05ab", "field 1 has 5 bytes, more than the 2 after it"),
    "a gibibyte announced": (
        b"\x3a\x80\x80\x80\x80\x04",
        "has 1,073,741,824 bytes, more than the 0",
    ),
    "group": (b"\x0b\x0c", "field 1 has wire type 3"),
    "wrong wire type": (b"\x08\x01", "field model_name has wire type 0 instead of 2"),
    "wrong wire type of a message": (b"\x28\x01", "field inputs has wire type 0 instead of 2"),
    "not UTF-8": (b"\x1a\x01\xff", "a text is not UTF-8: .*; send texts in UTF-8"),
    "no inputs": (b"", "no inputs; send at least one tensor"),
    "JSON": (b'{"inputs": []}', "field 15 has wire type 3"),
    "typed contents of another type": (
        changed(lambda message: message.inputs[0].contents.fp32_contents.append(1)),
        "input 'x' is INT8 and has fp32_contents of wire type 2; send int_contents",
    ),
    "too few values": (
        changed(lambda message: message.inputs[0].contents.int_contents.pop()),
        "input 'x' has 1 bytes; its shape as INT8 needs 2",
    ),
    "a value out of range": (
        changed(lambda message: message.inputs[0].contents.int_contents.__setitem__(0, -129)),
        "input 'x' has -129; INT8 takes numbers from -128 to 127",
    ),
    "FP16 in typed contents": (
        changed(lambda message: setattr(message.inputs[0], "datatype", "FP16")),
        "input 'x' has FP16; send it as raw contents",
    ),
    "raw and typed": (
        changed(lambda message: message.raw_input_contents.append(b"12")),
        "input 'x' has both raw and typed contents",
    ),
    "raw contents for some": (
        changed(lambda message: message.raw_input_contents.extend([b"12", b"12"])),
        "raw contents for 2 tensors instead of 1; send them for all tensors or for none",
    ),
    "a parameter without value": (changed(bad_parameter), "parameter 'a' of the request is None"),
    "an infinite parameter": (changed(infinite_parameter), "parameter 'a' of the request is inf"),
    "no shape": (
        changed(lambda message: message.inputs[0].ClearField("shape")),
        "shape of input 'x' is None",
    ),
    "negative dimension": (
        changed(lambda message: message.inputs[0].shape.append(-1)),
        "a dimension of input 'x' is -1",
    ),
    "no name": (
        changed(lambda message: message.inputs[0].ClearField("name")),
        r"name of inputs\[0\] is None",
    ),
    "an integer of contents has no end": (
        b"\x2a\x14\x0a\x01x\x12\x04INT8\x1a\x01\x01\x2a\x06\x12\x01\xff\x12\x01\xff",
        "an integer of input 'x' has no end",
    ),
}


@pytest.mark.parametrize(("body", "pattern"), BAD.values(), ids=BAD)
def test_a_bad_request_gets_a_sentence(body, pattern):
    with pytest.raises(MessageError, match=pattern) as caught:
        parse_grpc_request(body)
    assert caught.value.status == 400
    assert len(str(caught.value)) < 300


def test_a_bad_answer_is_an_error_of_the_server():
    answer = grpc_twin.message(Answer, [TENSOR]).SerializeToString()
    with pytest.raises(MessageError, match=r"server's answer is invalid: .* has 2 rows") as caught:
        parse_grpc_response(answer, rows=3)
    assert caught.value.status == 502
    with pytest.raises(MessageError, match=r"server's answer is invalid: .*wire type"):
        parse_grpc_response(b"<html>", rows=1)


def attempt(body):
    """Read any bytes: an error, or what protobuf reads, if protobuf accepts the bytes, too."""
    with suppress(MessageError):
        parse_grpc_response(body, rows=2)
    try:
        request = parse_grpc_request(body)
    except MessageError:
        return
    try:
        twin = Request.FromString(body)
    except DecodeError:
        return
    assert (request.id or "") == twin.id
    assert model_of_request(body) == (twin.model_name, twin.model_version)
    for tensor, (name, (datatype, array)) in zip(
        request.inputs, grpc_twin.tensors_of(twin).items(), strict=True
    ):
        assert (tensor.name, tensor.datatype.name, tensor.shape) == (name, datatype, array.shape)
        assert contents(tensor) == naive.to_bytes(datatype, array)


@given(st.binary())
def test_any_bytes_are_read_or_refused(body):
    attempt(body)


@given(st.data())
def test_a_damaged_request_is_read_or_refused(data):
    """Some bytes of a valid request change, or its end is missing, or a part comes twice."""
    sender = data.draw(requests(data.draw(columns()), data.draw(PARAMETERS)))
    damaged = bytearray(sender.SerializeToString())
    index = data.draw(st.integers(0, len(damaged) - 1))
    end = data.draw(st.integers(index, len(damaged)))
    match data.draw(st.sampled_from(["change", "cut", "double"])):
        case "change":
            damaged[index] = data.draw(st.integers(0, 255))
        case "cut":
            del damaged[index:end]
        case _:
            damaged[end:end] = damaged[index:end]
    attempt(bytes(damaged))


@given(st.data())
def test_every_valid_request_is_read(data):
    sender = data.draw(requests(data.draw(columns()), {}))
    body = sender.SerializeToString()
    attempt(body)
    parse_grpc_request(body)


METADATA = {
    "name": "m",
    "versions": ["1", "2"],
    "platform": "onnx",
    "inputs": [{"name": "x", "datatype": "FP32", "shape": [-1, 3]}],
    "outputs": [{"name": "y", "datatype": "BYTES", "shape": [-1]}],
}


def test_metadata_of_a_model():
    body = encode(MODEL_METADATA, METADATA)
    twin = service_pb2.ModelMetadataResponse.FromString(body)
    assert list(twin.inputs[0].shape) == [-1, 3]
    assert twin.SerializeToString() == body
    assert decode(MODEL_METADATA, memoryview(body)) == METADATA


def test_metadata_of_a_server():
    metadata = {"name": "s", "version": "1", "extensions": ["a", "b"]}
    body = encode(SERVER_METADATA, metadata)
    assert body == service_pb2.ServerMetadataResponse(**metadata).SerializeToString()
