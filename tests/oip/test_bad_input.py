"""Invalid messages: an error that says what, where and what to do, and no other exception."""

import json
from contextlib import suppress

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler.oip.errors import MessageError
from scheduler.oip.infer_request import parse_request
from scheduler.oip.infer_response import parse_response
from tests.oip import naive
from tests.oip.strategies import clients, columns

X = {"name": "x", "shape": [2, 2], "datatype": "INT8", "data": [1, 2, 3, 4]}
BINARY = {"name": "x", "shape": [1], "datatype": "INT8", "parameters": {"binary_data_size": 1}}


def of(document, tail=b"", length=""):
    header = json.dumps(document).encode()
    return header + tail, length or (str(len(header)) if tail else None)


def inputs(*tensors, **fields):
    return of({"inputs": list(tensors), **fields})


def words(content, shape=(1,)):
    size = {"binary_data_size": len(content)}
    tensor = {"name": "x", "shape": list(shape), "datatype": "BYTES", "parameters": size}
    return of({"inputs": [tensor]}, content)


BAD = {
    "empty": ((b"", None), "JSON header is invalid: EOF"),
    "not UTF-8": ((b'{"id": "\xff"}', None), "JSON header is invalid: .*send JSON in UTF-8"),
    "byte order mark": ((b"\xef\xbb\xbf{}", None), "JSON header is invalid"),
    "lone surrogate": ((b'{"id": "\\ud800"}', None), "JSON header is invalid"),
    "NaN": ((b'{"inputs": [NaN]}', None), "JSON header is invalid"),
    "nested too deep": ((b"[" * 100_000, None), "recursion limit exceeded"),
    "a number of a megabyte": ((b"1" * 1_000_000, None), "number out of range"),
    "not an object": ((b"[1]", None), "JSON header is a list; send an object"),
    "length too large": (of({}, b"x", "99"), "Content-Length is '99'; .* at most the body's 3"),
    "length of a gibibyte": (of({}, b"x", str(2**30)), "Content-Length is '1073741824'"),
    "length of many digits": (of({}, b"x", "9" * 9999), r"\(9,999 long\)"),
    "negative length": (of({}, b"x", "-1"), "Content-Length is '-1'"),
    "length in other digits": (of({}, b"x", "²"), "Content-Length is '²'"),
    "length too small": (of({"inputs": []}, b"x", "5"), "JSON header is invalid"),
    "id": (inputs(X, id=3), "id is 3; send a text"),
    "no inputs": (of({}), "no inputs"),
    "inputs are no list": (of({"inputs": {}}), "inputs is a dict; send a list"),
    "an input is no object": (inputs(7), r"inputs\[0\] is 7; send an object"),
    "no name": (inputs({**X, "name": None}), r"name of inputs\[0\] is None"),
    "same name": (inputs(X, X), "inputs has 'x' twice"),
    "same output": (inputs(X, outputs=[{"name": "y"}] * 2), "outputs has 'y' twice"),
    "different rows": (
        inputs(X, {**X, "name": "y", "shape": [1, 4]}),
        "input 'y' has 1 rows instead of 2",
    ),
    "no datatype": (inputs({**X, "datatype": None}), "datatype of input 'x' is None; use one of"),
    "datatype": (inputs({**X, "datatype": "int8"}), "is 'int8'; use one of BOOL, UINT8"),
    "no shape": (inputs({**X, "shape": None}), "shape of input 'x' is None"),
    "scalar": (inputs({**X, "shape": []}), "is 0 dimensions; send a list of 1 to 64"),
    "too many dimensions": (inputs({**X, "shape": [1] * 100_000}), "is 100000 dimensions"),
    "negative dimension": (inputs({**X, "shape": [-2, -2]}), "dimension of input 'x' is -2"),
    "no rows": (inputs({**X, "shape": [0], "data": []}), "is 0; use integers from 1"),
    "huge dimension": (inputs({**X, "shape": [2**63]}), "dimension of input 'x' is 9223"),
    "product of huge dimensions": (
        inputs({**X, "shape": [2**62] * 64}),
        "has 4 values; its shape needs a number of 3,969 bits",
    ),
    "dimension is a float": (inputs({**X, "shape": [2.0, 2]}), "dimension of input 'x' is 2.0"),
    "dimension is a boolean": (inputs({**X, "shape": [True]}), "dimension of input 'x' is True"),
    "no data": (
        inputs({"name": "x", "shape": [1], "datatype": "INT8"}),
        "input 'x' has no data; send",
    ),
    "data is a text": (inputs({**X, "data": "1234"}), "data of input 'x' is '1234'; send a list"),
    "too few values": (inputs({**X, "data": [1]}), "has 1 values; its shape needs 4"),
    "ragged": (inputs({**X, "data": [[1, 2], [3]]}), "dimension 1 is not 2 everywhere"),
    "nested not enough": (inputs({**X, "data": [[1, 2], 3]}), "not nested like its shape"),
    "nested too much": (
        inputs({**X, "data": [[[1], 2], [3, 4]]}),
        "element 0 of input 'x' is a list; send JSON values of INT8",
    ),
    "text for a number": (inputs({**X, "data": [1, 2, 3, "4"]}), "element 3 of input 'x' is '4'"),
    "float for an integer": (inputs({**X, "data": [1, 2, 3, 4.0]}), "element 3 .* is 4.0"),
    "boolean for an integer": (inputs({**X, "data": [1, 2, 3, True]}), "element 3 .* is True"),
    "integer for a boolean": (inputs({**X, "datatype": "BOOL"}), "element 0 of input 'x' is 1"),
    "null": (inputs({**X, "data": [None] * 4}), "element 0 of input 'x' is None"),
    "out of range": (
        inputs({**X, "data": [1, 2, 3, 128]}),
        "has 128; INT8 takes numbers from -128 to 127",
    ),
    "float out of range": (
        inputs({**X, "datatype": "FP32", "data": [1, 2, 3, 1e39]}),
        "has 1e.39; FP32 takes",
    ),
    "float overflow": (
        (b'{"inputs":[{"name":"x","shape":[1],"datatype":"FP64","data":[1e999]}]}', None),
        "has inf; FP64 takes",
    ),
    "FP16 as JSON": (inputs({**X, "datatype": "FP16"}), "FP16 as JSON, .*; send binary data"),
    "data twice": (
        of({"inputs": [{**X, "parameters": {"binary_data_size": 4}}]}, b"1234"),
        "input 'x' has both data and binary_data_size",
    ),
    "a gibibyte announced": (
        of({"inputs": [{**BINARY, "parameters": {"binary_data_size": 2**30}}]}, b"x"),
        "is 1073741824, more than the rest of the body",
    ),
    "negative size": (
        of({"inputs": [{**BINARY, "parameters": {"binary_data_size": -1}}]}, b"x"),
        "binary_data_size of input 'x' is -1",
    ),
    "size is a text": (
        of({"inputs": [{**BINARY, "parameters": {"binary_data_size": "1"}}]}, b"x"),
        "binary_data_size of input 'x' is '1'",
    ),
    "size does not match": (
        of({"inputs": [{**BINARY, "shape": [2]}]}, b"x"),
        "has 1 bytes; its shape as INT8 needs 2",
    ),
    "bytes left over": (of({"inputs": [BINARY]}, b"xy"), "1 bytes of binary data belong to no"),
    "length not announced": (of({"inputs": [BINARY]}), "send the header Inference-Header-Content"),
    "BYTES without length": (words(b"ab"), "not 1 elements; send a 4-byte little-endian length"),
    "BYTES too long": (words(b"\x03\0\0\0ab"), "6 bytes of input 'x' are not 1 elements"),
    "BYTES too many": (words(b"\0\0\0\0\0\0\0\0"), "not 1 elements"),
    "BYTES with a half length": (words(b"\x02\0\0\0ab\0\0", (2,)), "not 2 elements"),
    "parameters are no object": (inputs(X, parameters=[1]), "parameters of the request is a list"),
    "parameter is a list": (inputs(X, parameters={"a": []}), "parameter 'a' of the request is a"),
    "parameter is too large": (
        inputs(X, parameters={"a": 2**64}),
        "parameter 'a' of the request is 1844.*; send integers from -922",
    ),
    "parameter is infinite": (
        (b'{"parameters": {"a": 1e999}}', None),
        "parameter 'a' of the request is inf",
    ),
    "timeout is a text": (inputs(X, parameters={"timeout": "1"}), "timeout is '1'; send micro"),
    "timeout is negative": (inputs(X, parameters={"timeout": -1}), "timeout is -1"),
    "binary_data_output": (
        inputs(X, parameters={"binary_data_output": 1}),
        "binary_data_output is 1; send true or false",
    ),
    "binary_data": (
        inputs(X, outputs=[{"name": "y", "parameters": {"binary_data": "yes"}}]),
        "binary_data is 'yes'",
    ),
    "shared memory": (
        inputs({**X, "parameters": {"shared_memory_region": "r"}}),
        "input 'x' uses shared memory, which the gateway cannot reach",
    ),
}


@pytest.mark.parametrize(("message", "pattern"), BAD.values(), ids=BAD)
def test_a_bad_request_gets_a_sentence(message, pattern):
    """The text is short whatever the request contains."""
    with pytest.raises(MessageError, match=pattern) as caught:
        parse_request(*message)
    assert caught.value.status == 400
    assert len(str(caught.value)) < 500
    assert json.loads(caught.value.body()) == {"error": str(caught.value)}


Y = {"name": "y", "shape": [2], "datatype": "INT8", "data": [1, 2]}
BAD_ANSWERS = {
    "not JSON": ((b"<html>", None), "JSON header is invalid"),
    "no outputs": (of({"outputs": []}), "it has no outputs"),
    "too few rows": (of({"outputs": [{**Y, "shape": [1], "data": [1]}]}), "has 1 rows instead"),
    "too many rows": (of({"outputs": [{**Y, "shape": [2**62, 0]}]}), "rows instead of 2"),
    "bytes left over": (of({"outputs": [Y]}, b"x"), "belong to no tensor"),
    "nested": (of({"outputs": [{**Y, "data": [[1], 2]}]}), "element 0 of output 'y' is a list"),
}


@pytest.mark.parametrize(("message", "pattern"), BAD_ANSWERS.values(), ids=BAD_ANSWERS)
def test_a_bad_answer_of_a_server_gets_a_sentence(message, pattern):
    with pytest.raises(
        MessageError, match=f"model server's answer is invalid: .*{pattern}"
    ) as caught:
        parse_response(*message, rows=2)
    assert caught.value.status == 502


def test_an_answer_may_have_rows_without_elements():
    """A detector that detects nothing answers with shape [rows, 0]."""
    empty = [("y", "FP32", np.empty((2, 0))), ("z", "BYTES", np.empty((2, 0), object))]
    for binary in (set(), {"y", "z"}):
        body, length = naive.encode({"outputs": empty}, binary=binary, nested={"y"})
        for output in parse_response(body, length, rows=2):
            for form in (output.to_binary(), output.to_json()):
                assert form.slice(1, 2).shape == (1, 0)
                assert not len(form.slice(1, 2).parts[0].content)


def attempt(body, header_length):
    """Read a body as request and as answer; only the package's own error may come out."""
    for read in (parse_request, lambda *message: parse_response(*message, rows=2)):
        with suppress(MessageError):
            read(body, header_length)


@given(st.binary(), st.none() | st.text(max_size=8) | st.integers(-1, 40).map(str))
def test_any_bytes_are_read_or_refused(body, header_length):
    attempt(body, header_length)


SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=4)
KEYS = st.sampled_from(
    ["id", "name", "shape", "datatype", "data", "parameters", "binary_data_size", "timeout"]
)
VALUES = st.recursive(
    SCALARS | st.sampled_from([*naive.DTYPES, "BYTES"]),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(KEYS, inner, max_size=5),
    max_leaves=12,
)
ENTRIES = st.lists(
    st.fixed_dictionaries(
        {"name": st.sampled_from("xyz") | VALUES, "shape": st.lists(st.integers(0, 3)) | VALUES},
        optional={
            "datatype": st.sampled_from([*naive.DTYPES, "BYTES"]),
            "data": VALUES,
            "parameters": st.fixed_dictionaries({"binary_data_size": st.integers(0, 9) | VALUES}),
        },
    )
)


@given(
    st.fixed_dictionaries({"inputs": ENTRIES, "outputs": ENTRIES}, optional={"parameters": VALUES}),
    st.binary(max_size=20),
)
def test_any_json_is_read_or_refused(document, tail):
    header = json.dumps(document).encode()
    attempt(header + tail, str(len(header)))
    attempt(header, None)


@given(st.data())
def test_a_damaged_request_is_read_or_refused(data):
    """One byte of a valid request changes, or its end is missing."""
    sender = data.draw(clients(data.draw(columns())))
    damaged = bytearray(sender.body)
    index = data.draw(st.integers(0, len(damaged) - 1))
    if data.draw(st.booleans()):
        damaged[index] = data.draw(st.integers(0, 255))
    else:
        del damaged[index:]
    attempt(bytes(damaged), sender.header_length)
