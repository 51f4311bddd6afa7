"""A slow twin of the gateway's messages: it decodes everything with numpy and json."""

import json
import struct
from math import prod

import numpy as np

DTYPES = {
    "BOOL": "?",
    "UINT8": "<u1",
    "UINT16": "<u2",
    "UINT32": "<u4",
    "UINT64": "<u8",
    "INT8": "<i1",
    "INT16": "<i2",
    "INT32": "<i4",
    "INT64": "<i8",
    "FP16": "<f2",
    "BF16": "<u2",  # numpy has no bfloat16; its bits are enough
    "FP32": "<f4",
    "FP64": "<f8",
}
BINARY_ONLY = {"FP16", "BF16"}


def to_bytes(datatype, array) -> bytes:
    if datatype == "BYTES":
        return b"".join(struct.pack("<I", len(item)) + item for item in array.flat)
    return array.astype(DTYPES[datatype]).tobytes()


def from_bytes(datatype, shape, content):
    if datatype != "BYTES":
        return np.frombuffer(content, DTYPES[datatype]).reshape(shape)
    items = []
    while content:
        end = 4 + int.from_bytes(content[:4], "little")
        items.append(content[4:end])
        content = content[end:]
    return objects(items, shape)


def objects(items, shape):
    array = np.empty(prod(shape), dtype=object)
    array[:] = items
    return array.reshape(shape)


def encode(entries, *, binary=frozenset(), nested=frozenset(), **fields):
    """Write a body; ``entries`` maps ``inputs`` or ``outputs`` to (name, datatype, array)."""
    document, tail = dict(fields), b""
    for key, tensors in entries.items():
        document[key] = []
        for name, datatype, array in tensors:
            entry = {"name": name, "shape": list(array.shape), "datatype": datatype}
            if name in binary:
                content = to_bytes(datatype, array)
                entry["parameters"] = {"binary_data_size": len(content)}
                tail += content
            else:
                values = array if name in nested else array.reshape(-1)
                if datatype == "BYTES":
                    values = objects([item.decode() for item in values.flat], values.shape)
                entry["data"] = values.tolist()
            document[key].append(entry)
    header = json.dumps(document).encode()
    return header + tail, str(len(header)) if binary else None


def decode(body, header_length, key):
    """Return the fields of a body, and its tensors by name as (datatype, array)."""
    length = len(body) if header_length is None else int(header_length)
    document, tail = json.loads(body[:length]), body[length:]
    tensors = {}
    for entry in document.pop(key):
        datatype, shape = entry["datatype"], entry["shape"]
        if "data" in entry:
            values = entry["data"]
            if datatype == "BYTES":
                array = objects([value.encode() for value in values], shape)
            else:
                array = np.array(values, DTYPES[datatype]).reshape(shape)
        else:
            size = entry["parameters"]["binary_data_size"]
            array, tail = from_bytes(datatype, shape, tail[:size]), tail[size:]
        tensors[entry["name"]] = (datatype, array)
    assert not tail
    return document, tensors


def sent(message):
    """Return the body of a message and the header length as text, as a socket transfers them."""
    body = b"".join([message.header, *message.buffers])
    assert len(body) == message.content_length
    return body, None if message.header_length is None else str(message.header_length)


def same(first, second) -> bool:
    """Compare tensors bit by bit."""
    (datatype, array), (second_datatype, second_array) = first, second
    return (
        datatype == second_datatype
        and array.shape == second_array.shape
        and to_bytes(datatype, array) == to_bytes(datatype, second_array)
    )
