"""Numba's types of the arrays of this package, for the signatures of kernels.

Numba takes named tuples of arrays and numbers as they are; `type_of` is their type in a signature.
A call from Python inspects every array of a tuple, some 0.2 us each: kernels that plans call take
arrays of records, and `records_type` is their type. Only kernels import this module, and with it
Numba.
"""

from typing import cast

import numpy as np
from numba import from_dtype, types

from scheduler.search.frontiers.arrays import Floats, IntegerMatrix, Integers, Matrix

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
