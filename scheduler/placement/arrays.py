"""Array types of the room, and the named tuples of arrays that its kernels take.

Named tuples of arrays pass into Numba as they are; ``*_TYPE`` are their types for the kernels'
signatures.
"""

from typing import NamedTuple

import numpy as np
from numba import types
from numpy.typing import NDArray

Int32Array = NDArray[np.int32]
Int64Array = NDArray[np.int64]
Float64Array = NDArray[np.float64]


class FleetArrays(NamedTuple):
    """Free capacity of all nodes and GPUs; a node's GPUs are ``node_gpus`` consecutive rows.

    ``gpu_free_*`` are negative where the cluster grants more than a GPU has.
    """

    node_first_gpu: Int32Array  # (nodes,) row of its first GPU
    node_gpus: Int32Array  # (nodes,) number of its GPUs
    node_free_cpu_milli: Int64Array  # (nodes,)
    gpu_model: Int32Array  # (gpus,) model number; -1: not usable
    gpu_free_percent: Int32Array  # (gpus,)
    gpu_free_memory_mib: Int64Array  # (gpus,)
    gpu_free_clients: Int32Array  # (gpus,) MPS clients


class CandidateArrays(NamedTuple):
    """The k candidates of a plan, best first."""

    start_ms: Float64Array  # (k,) longest start that the candidate allows
    model: Int32Array  # (k,) model number
    gpu_percent: Int32Array  # (k,)
    memory_mib: Int64Array  # (k,)
    cpu_milli: Int64Array  # (k,)


class MixArrays(NamedTuple):
    """The m request classes of a mix, most frequent first."""

    cpu_milli: Int64Array  # (m,)
    gpu_percent: Int64Array  # (m,)
    memory_mib: Int64Array  # (m,)
    pods: Int64Array  # (m,) number of pods of the class


INT32_ARRAY = types.Array(types.int32, 1, "C")
INT64_ARRAY = types.Array(types.int64, 1, "C")
FLOAT64_ARRAY = types.Array(types.float64, 1, "C")
_TYPES = {Int32Array: INT32_ARRAY, Int64Array: INT64_ARRAY, Float64Array: FLOAT64_ARRAY}


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
