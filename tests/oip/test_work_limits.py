"""Requests whose reading would take long are refused; megabytes of binary tensors are not."""

import json

import pytest

from scheduler.oip import work_limits as limits
from scheduler.oip.errors import MessageError
from scheduler.oip.grpc_messages import INFER_REQUEST
from scheduler.oip.grpc_request import model_of_request, parse_grpc_request
from scheduler.oip.infer_request import parse_request
from scheduler.protobuf import encode, length_prefix, write_varint

NAME = encode(INFER_REQUEST, {"model_name": "m"})
MIB = 2**20


def tensor(datatype, shape, **fields):
    return {"name": "x", "datatype": datatype, "shape": shape, **fields}


def whole(*inputs, **fields):
    """Return a body of JSON alone."""
    return json.dumps({"inputs": inputs, **fields}).encode(), None


def binary(content, *inputs):
    header = json.dumps({"inputs": inputs}).encode()
    return header + content, str(len(header))


def sized(datatype, shape, size_bytes, name="x"):
    entry = tensor(datatype, shape, parameters={"binary_data_size": size_bytes})
    return {**entry, "name": name}


def grpc_tensor(datatype, shape, contents):
    fields = {number: field for number, field in INFER_REQUEST[5].kind.items() if number <= 3}
    entry = encode(fields, tensor(datatype, shape)) + length_prefix(5, len(contents)) + contents
    return NAME + length_prefix(5, len(entry)) + entry


def empty_texts(number):
    return bytes(4 * number)


X = tensor("FP32", [1], data=[1])
MANY = limits.VALUES_MAX + 1
REFUSED = {
    "values": (whole(tensor("FP32", [1, MANY], data=[1] * MANY)), "values of JSON"),
    "values that are no JSON": ((b"," * MANY, None), "values of JSON"),
    "empty lists": ((b"[]" * MANY, None), "values of JSON"),
    "empty objects": ((b"{}" * MANY, None), "values of JSON"),
    "values in the header of binary data": (
        (b"," * MANY + b"x", str(MANY)),
        "values of JSON",
    ),
    "inputs": (
        whole(*(X | {"name": str(i)} for i in range(limits.TENSORS_MAX + 1))),
        "inputs has 257 items; send 256 at most",
    ),
    "outputs": (
        whole(X, outputs=[{"name": str(i)} for i in range(limits.TENSORS_MAX + 1)]),
        "outputs has 257 items; send 256 at most",
    ),
    "parameters": (
        whole(X, parameters=dict.fromkeys(map(str, range(limits.PARAMETERS_MAX + 1)), 1)),
        "parameters of the request has 257 items; send 256 at most",
    ),
    "texts": (
        whole(tensor("BYTES", [1, limits.TEXTS_MAX + 1], data=[""] * (limits.TEXTS_MAX + 1))),
        "BYTES elements",
    ),
    "binary texts": (
        binary(
            empty_texts(limits.TEXTS_MAX + 2),
            sized("BYTES", [1, limits.TEXTS_MAX], 4 * limits.TEXTS_MAX),
            sized("BYTES", [1, 2], 8, "y"),
        ),
        "BYTES elements",
    ),
    "texts of a huge shape": (binary(b"", sized("BYTES", [2**62, 2**62], 0)), "BYTES elements"),
    "rows of nothing": (
        binary(b"", sized("BYTES", [limits.TEXTS_MAX + 1, 1], 0)),
        "BYTES elements",
    ),
}
OVER_GRPC = {
    "unknown fields": NAME + (write_varint(15 << 3) + b"\1") * (limits.FIELDS_MAX + 1),
    "fields of tensors": NAME
    + length_prefix(5, 2 * limits.FIELDS_MAX)
    + (write_varint(15 << 3) + b"\1") * limits.FIELDS_MAX,
    "dimensions": NAME
    + length_prefix(5, limits.FIELDS_MAX + 5)
    + length_prefix(3, limits.FIELDS_MAX + 1)
    + b"\1" * (limits.FIELDS_MAX + 1),
    "texts": grpc_tensor("BYTES", [1, 2], length_prefix(8, 0) * (limits.FIELDS_MAX + 1)),
    "integers of their own": grpc_tensor(
        "INT32", [1, 2], (write_varint(2 << 3) + b"\1") * (limits.FIELDS_MAX + 1)
    ),
}


@pytest.mark.parametrize(("message", "words"), REFUSED.values(), ids=REFUSED)
def test_what_takes_long_to_read_is_refused(message, words):
    """413 and a sentence; values are counted before the JSON is parsed."""
    with pytest.raises(MessageError, match=words) as caught:
        parse_request(*message)
    assert caught.value.status == 413
    assert len(str(caught.value)) < 500


@pytest.mark.parametrize("body", OVER_GRPC.values(), ids=OVER_GRPC)
def test_what_takes_long_to_read_over_grpc_is_refused(body):
    """Each field is read by itself, known or not."""
    with pytest.raises(MessageError, match="more than 32,768 fields") as caught:
        parse_grpc_request(body)
    assert caught.value.status == 413


def test_many_fields_are_refused_before_the_model_is_known():
    with pytest.raises(MessageError, match="more than 32,768 fields"):
        model_of_request(OVER_GRPC["unknown fields"])


def test_long_typed_integers_are_refused():
    """They grow eightfold when they are read; raw contents do not."""
    size = limits.TYPED_BYTES_MAX // 2 + 1
    packed = length_prefix(2, size) + b"\1" * size
    body = grpc_tensor("INT32", [1, size], packed)
    assert parse_grpc_request(body).inputs[0].shape == (1, size)
    with pytest.raises(MessageError, match="send raw contents") as caught:
        parse_grpc_request(body + body[len(NAME) :].replace(b"\1x", b"\1y", 1))
    assert caught.value.status == 413


def test_as_much_as_the_limits_allow():
    """One value less is read."""
    values = limits.VALUES_MAX - 100
    request = parse_request(*whole(tensor("FP32", [1, values], data=[1] * values)))
    assert request.inputs[0].shape == (1, values)
    texts = limits.TEXTS_MAX
    content = empty_texts(texts)
    assert parse_request(*binary(content, sized("BYTES", [1, texts], len(content)))).rows == 1


def test_another_limit_of_values():
    """A gateway whose JSON may be longer takes more of them."""
    message = whole(tensor("FP32", [1, MANY], data=[1] * MANY))
    assert parse_request(*message, values_max=2 * MANY).rows == 1
    with pytest.raises(MessageError, match="values of JSON"):
        parse_request(*message, values_max=1000)


def test_binary_tensors_are_as_large_as_the_body():
    """Nothing reads their elements."""
    content = bytes(32 * MIB)
    request = parse_request(*binary(content, sized("FP32", [8, MIB], len(content))))
    assert request.in_form(binary=True).inputs[0].shape == (8, MIB)
    raw = NAME + length_prefix(7, len(content)) + content
    entry = encode(
        {k: v for k, v in INFER_REQUEST[5].kind.items() if k <= 3}, tensor("FP32", [8, MIB])
    )
    assert parse_grpc_request(raw + length_prefix(5, len(entry)) + entry).rows == 8


def test_a_large_binary_tensor_does_not_become_json():
    """A model server that takes JSON alone would have each value written."""
    content = bytes(4 * MANY)
    request = parse_request(*binary(content, sized("FP32", [1, MANY], len(content))))
    with pytest.raises(MessageError, match="takes tensors as JSON") as caught:
        request.in_form(binary=False)
    assert caught.value.status == 413
