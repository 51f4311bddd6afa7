"""Options of placement, in a module that imports no compiler: settings and help text read them."""

from dataclasses import dataclass
from typing import Literal

FitPolicy = Literal["pack", "spread"]
"""``pack``: the GPU with the least free share that fits. ``spread``: the emptiest GPU."""


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of one GPU: sum of shares, memory reserved for the MPS server, and MPS clients."""

    percent_max: int = 100
    server_context_mib: int = 1024
    clients_max: int = 48
