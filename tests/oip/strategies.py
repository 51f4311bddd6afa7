"""Random clients: joinable requests of any datatypes, rows and forms."""

from typing import Any, NamedTuple

import numpy as np
from hypothesis import strategies as st
from hypothesis.extra import numpy as np_st

from tests.oip import naive


class Column(NamedTuple):
    """Common part of one input of joinable requests."""

    name: str
    datatype: str
    tail: tuple[int, ...]


class Client(NamedTuple):
    """One request as its client sees it, and as bytes."""

    id: str | None
    tensors: dict[str, tuple[str, Any]]
    rows: int
    body: bytes
    header_length: str | None
    binary_output: bool


NAMES = st.text(min_size=1, max_size=4)


@st.composite
def columns(draw):
    names = draw(st.lists(NAMES, min_size=1, max_size=3, unique=True))
    datatypes = st.sampled_from([*naive.DTYPES, "BYTES"])
    tails = st.lists(st.integers(1, 3), max_size=2).map(tuple)
    return [Column(name, draw(datatypes), draw(tails)) for name in names]


def arrays(column, rows, *, any_bytes=False):
    """Return arrays of a column; without ``any_bytes``, JSON can carry all but FP16 and BF16."""
    shape = (rows, *column.tail)
    if column.datatype == "BYTES":
        count = int(np.prod(shape))
        item = st.binary(max_size=5) if any_bytes else st.text(max_size=4).map(str.encode)
        items = st.lists(item, min_size=count, max_size=count)
        return items.map(lambda values: naive.objects(values, shape))
    dtype = np.dtype(naive.DTYPES[column.datatype])
    elements = None
    if dtype.kind == "f" and not any_bytes:
        elements = {"allow_nan": False, "allow_infinity": False}
    return np_st.arrays(dtype, shape, elements=elements)


def binary_names(draw, group):
    """Choose the tensors that travel as binary data."""
    return {
        column.name
        for column in group
        if column.datatype in naive.BINARY_ONLY or draw(st.booleans())
    }


@st.composite
def clients(draw, group, *, any_bytes=False):
    rows = draw(st.integers(1, 5))
    tensors = [
        (column.name, column.datatype, draw(arrays(column, rows, any_bytes=any_bytes)))
        for column in group
    ]
    names = {column.name for column in group}
    binary = names if any_bytes else binary_names(draw, group)
    only_binary = any_bytes or any(column.datatype in naive.BINARY_ONLY for column in group)
    binary_output = only_binary or draw(st.booleans())
    request_id = draw(st.none() | st.text(max_size=5))
    fields = {} if request_id is None else {"id": request_id}
    body, header_length = naive.encode(
        {"inputs": tensors},
        binary=binary,
        nested={name for name in names if draw(st.booleans())},
        parameters={"binary_data_output": binary_output},
        **fields,
    )
    by_name = {name: (datatype, array) for name, datatype, array in tensors}
    return Client(request_id, by_name, rows, body, header_length, binary_output)
