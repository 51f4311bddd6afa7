"""Array types of this package: C-contiguous, one dtype per meaning.

Numba takes named tuples of arrays and numbers as they are; `type_of` is their type in a signature.
A call from Python inspects every array of a tuple, some 0.2 us each: kernels that plans call take
arrays of records, and `records_type` is their type.
"""

from typing import NamedTuple, NewType, cast

import numpy as np
from numba import from_dtype, types
from numpy.typing import NDArray

Floats = NDArray[np.float64]  # times in ms, costs in dollars per request
Integers = NDArray[np.int64]  # indices and counts
Matrix = NewType("Matrix", NDArray[np.float64])  # floats in two dimensions
IntegerMatrix = NewType("IntegerMatrix", NDArray[np.int64])  # indices in two dimensions
Records = NDArray[np.void]  # rows of named fields


class Points(NamedTuple):
    """Points of a frontier: times strictly rising, costs strictly falling."""

    time_ms: Floats
    cost: Floats


_TYPES = {
    Floats: types.Array(types.float64, 1, "C"),
    Integers: types.Array(types.int64, 1, "C"),
    Matrix: types.Array(types.float64, 2, "C"),
    IntegerMatrix: types.Array(types.int64, 2, "C"),
    float: types.float64,
    int: types.int64,
}


def type_of(tuple_class: type) -> types.BaseTuple:
    """Return Numba's type of a named tuple of arrays and numbers."""
    fields = [_TYPES[kind] for kind in tuple_class.__annotations__.values()]
    return cast("types.BaseTuple", types.BaseTuple.from_types(fields, tuple_class))  # type: ignore[no-untyped-call]


def records_type(row: np.dtype[np.void]) -> types.Array:
    """Return Numba's type of an array of records."""
    return types.Array(from_dtype(row), 1, "C")
