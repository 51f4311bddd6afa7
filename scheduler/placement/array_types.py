"""Numba's types of the arrays of the room, for the signatures of kernels.

Named tuples of arrays pass into Numba as they are; ``*_TYPE`` are their types. Only kernels import
this module, and with it Numba.
"""

from numba import types

from scheduler.placement.arrays import (
    CandidateArrays,
    FleetArrays,
    Float64Array,
    Int32Array,
    Int64Array,
    MixArrays,
    NameArrays,
    Uint8Array,
)

INT32_ARRAY = types.Array(types.int32, 1, "C")
INT64_ARRAY = types.Array(types.int64, 1, "C")
FLOAT64_ARRAY = types.Array(types.float64, 1, "C")
UINT8_ARRAY = types.Array(types.uint8, 1, "C", readonly=True)  # bytes, which nobody may change
_TYPES = {
    Int32Array: INT32_ARRAY,
    Int64Array: INT64_ARRAY,
    Float64Array: FLOAT64_ARRAY,
    Uint8Array: UINT8_ARRAY,
}


def type_of(tuple_class: type) -> types.BaseTuple:
    """Return Numba's type of a named tuple of arrays."""
    arrays = [_TYPES[kind] for kind in tuple_class.__annotations__.values()]
    # Where all arrays are alike, Numba has another type.
    numba_type: types.BaseTuple = types.BaseTuple.from_types(  # type: ignore[no-untyped-call]
        arrays, tuple_class
    )
    return numba_type


FLEET_TYPE = type_of(FleetArrays)
CANDIDATES_TYPE = type_of(CandidateArrays)
MIX_TYPE = type_of(MixArrays)
NAMES_TYPE = type_of(NameArrays)
