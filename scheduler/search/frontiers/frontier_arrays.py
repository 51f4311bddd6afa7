"""Rows and queries of the kernel that ranks the configurations of a stage."""

from typing import NamedTuple

import numpy as np

UNLIMITED = 2**62  # a ceiling, as a machine word
ROUNDING = 1e-12  # relative; the order of summation changes a sum of 32 doubles by under 1e-14

# A configuration of the current stage. Plans use ``time_ms``; ``latency_ms`` is the mean time,
# which limits the throughput. ``tie`` is the order of equal configurations.
STAGE_ROW = np.dtype(
    [(name, np.float64) for name in ("time_ms", "latency_ms", "cost")]
    + [(name, np.int64) for name in ("batch", "cpu", "gpu_percent", "memory_mib", "tie")]
)
# A ranked configuration: its row, run time, time (with the start) and cost of its path, and start.
RANKED_ROW = np.dtype(
    [
        ("row", np.int64),
        ("stage_ms", np.float64),
        ("path_ms", np.float64),
        ("path_cost", np.float64),
        ("start_ms", np.float64),
    ]
)


class StageQuery(NamedTuple):
    """Number of candidates, ceilings of the current stage, and the rate that it must serve.

    ``interval_ms`` is 0; or the time between arrivals, for a pod that waits for a full batch and
    must serve them all.
    """

    k: int
    batch: int = UNLIMITED
    cpu: int = UNLIMITED
    gpu_percent: int = UNLIMITED
    memory_mib: int = UNLIMITED
    interval_ms: float = 0.0
    expansions_max: int = 0  # states that one A* search may expand
