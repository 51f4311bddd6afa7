"""Options of placement, in a module that imports no compiler: settings and help text read them."""

from dataclasses import dataclass
from typing import Literal

PlacementPolicy = Literal["pack", "spread", "defrag"]
"""``pack``: the GPU with the least free share that fits. ``spread``: the emptiest GPU. ``defrag``:
the GPU where a grant adds least to fragmentation."""


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of one GPU: sum of shares, memory reserved for the MPS server, and MPS clients."""

    percent_max: int = 100
    server_context_mib: int = 1024
    clients_max: int = 48
