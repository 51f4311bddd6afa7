"""Valid requests: JSON, binary tensor data, and both in one."""

import json
import struct

import pytest

from scheduler.oip.errors import MessageError
from scheduler.oip.infer_request import RequestedOutput, parse_request


def body(document, *tail):
    header = json.dumps(document).encode()
    return b"".join([header, *tail]), str(len(header))


def values(tensor):
    (part,) = tensor.to_json().parts
    return part.values


def test_a_json_request():
    request = parse_request(
        b"""{
          "id": "42",
          "parameters": {"timeout": 250000, "temperature": 0.5},
          "inputs": [
            {"name": "image", "shape": [2, 2], "datatype": "UINT32", "data": [1, 2, 3, 4]},
            {"name": "label", "shape": [2], "datatype": "BOOL", "data": [true, false]}
          ],
          "outputs": [{"name": "score"}]
        }"""
    )
    assert (request.id, request.rows, request.timeout_us) == ("42", 2, 250_000)
    assert request.parameters == {"temperature": 0.5}
    assert request.outputs == (RequestedOutput("score", None, {}),)
    assert not request.binary_output
    assert [tensor.name for tensor in request.inputs] == ["image", "label"]
    assert values(request.inputs[0]) == [1, 2, 3, 4]


def test_a_binary_request():
    """The views follow each other without gaps, in the order of the inputs."""
    words = b"".join(struct.pack("<I", len(word)) + word for word in (b"ab", b"", b"\xff"))
    request = parse_request(
        *body(
            {
                "inputs": [
                    {
                        "name": "x",
                        "shape": [3, 1],
                        "datatype": "FP16",
                        "parameters": {"binary_data_size": 6},
                    },
                    {"name": "y", "shape": [3], "datatype": "INT8", "data": [1, 2, 3]},
                    {
                        "name": "z",
                        "shape": [3],
                        "datatype": "BYTES",
                        "parameters": {"binary_data_size": len(words)},
                    },
                ],
                "parameters": {"binary_data_output": True},
            },
            b"\x00\x01\x02\x03\x04\x05",
            words,
        )
    )
    x, y, z = request.inputs
    assert bytes(x.parts[0].content) == b"\x00\x01\x02\x03\x04\x05"
    assert bytes(z.slice(2, 3).parts[0].content) == b"\x01\x00\x00\x00\xff"
    assert request.binary_output
    assert y.is_binary is False
    assert bytes(y.to_binary().parts[0].content) == b"\x01\x02\x03"


@pytest.mark.parametrize("data", [[[[1], [2]], [[3], [4]]], [1, 2, 3, 4]], ids=["nested", "flat"])
def test_nested_and_flat_data_are_the_same(data):
    tensor = {"name": "x", "shape": [2, 2, 1], "datatype": "INT64", "data": data}
    assert values(parse_request(*body({"inputs": [tensor]})).inputs[0]) == [1, 2, 3, 4]


def test_no_timeout_is_written_as_zero():
    tensor = {"name": "x", "shape": [1], "datatype": "INT64", "data": [1]}
    document = {"inputs": [tensor], "parameters": {"timeout": 0}}
    assert parse_request(*body(document)).timeout_us is None


def test_unknown_fields_are_ignored():
    tensor = {"name": "x", "shape": [1], "datatype": "INT64", "data": [1], "note": [[]]}
    assert parse_request(*body({"inputs": [tensor], "version": 3})).rows == 1


def test_bytes_in_json_become_binary_with_lengths():
    tensor = {"name": "x", "shape": [2], "datatype": "BYTES", "data": ["é", ""]}
    request = parse_request(*body({"inputs": [tensor]})).in_form(binary=True)
    assert bytes(request.inputs[0].parts[0].content) == b"\x02\0\0\0\xc3\xa9\0\0\0\0"


@pytest.mark.parametrize(
    ("datatype", "content", "reason"),
    [
        ("FP16", bytes(2), "JSON has no FP16"),
        ("FP32", struct.pack("<f", float("nan")), "JSON has no NaN"),
        ("FP64", struct.pack("<d", float("inf")), "JSON has no NaN and no infinity"),
        ("BYTES", b"\x01\0\0\0\xff", "an element is not UTF-8"),
    ],
)
def test_what_json_cannot_carry_is_refused_before_it_joins_a_batch(datatype, content, reason):
    parameters = {"binary_data_size": len(content)}
    tensor = {"name": "x", "shape": [1], "datatype": datatype, "parameters": parameters}
    request = parse_request(*body({"inputs": [tensor]}, content))
    with pytest.raises(MessageError, match=rf"'x' cannot be sent as JSON: {reason}.*; use binary"):
        request.in_form(binary=False)
