"""Array types of the room, and the named tuples of arrays that its kernels take."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Int32Array = NDArray[np.int32]
Int64Array = NDArray[np.int64]
Float64Array = NDArray[np.float64]
Uint8Array = NDArray[np.uint8]
BoolArray = NDArray[np.bool_]


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
    gpu_index: Int32Array  # (gpus,) number of the GPU on its node, for people


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


class NameArrays(NamedTuple):
    """Names of nodes in one text, and a hash table of their rows with open addressing."""

    text: Uint8Array  # (bytes,) the names, one after the other
    begins: Int64Array  # (rows,) of the name of each row in the text
    ends: Int64Array  # (rows,)
    slots: Int32Array  # (a power of two,) rows by the hash of their name; -1: empty
