"""Array types of this package: C-contiguous, one dtype per meaning."""

from typing import NamedTuple, NewType

import numpy as np
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
