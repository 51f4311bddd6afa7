"""Requests and answers as clients see them, encoded by the slow twin."""

import json

import numpy as np

from tests.oip import naive

INFER = "/v2/models/double/infer"
HEADER = "Inference-Header-Content-Length"


def rows_of(number, rows, width=4):
    """Return a tensor whose every element names its request and row."""
    values = 1000 * number + np.arange(rows)[:, None] + np.linspace(0, 0.5, width)[None, :]
    return values.astype(np.float32)


def infer_body(array, *, binary=True, **fields):
    """Return the body of a request, and its headers."""
    names = {"x"} if binary else frozenset()
    if binary:
        fields.setdefault("parameters", {"binary_data_output": True})
    body, length = naive.encode({"inputs": [("x", "FP32", array)]}, binary=names, **fields)
    return body, [] if length is None else [(HEADER, length)]


def infer_outputs(headers, body):
    """Return the arrays of an answer by name."""
    _, tensors = naive.decode(body, headers.get(HEADER.lower()), "outputs")
    return {name: array for name, (_, array) in tensors.items()}


def error_of(body):
    """Return the message of an error answer."""
    document = json.loads(body)
    assert set(document) == {"error"}
    return document["error"]
