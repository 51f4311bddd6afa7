"""Gamma gaps: any regularity at the same rate."""

from collections.abc import Iterator
from typing import ClassVar

import numpy as np
from pydantic import Field

from workbench.simulation.workloads.arrivals import Times
from workbench.simulation.workloads.rated import Streamed
from workbench.simulation.workloads.streams import cumulative_times


class Gamma(Streamed):
    """Gaps of a gamma distribution with a chosen coefficient of variation."""

    name: ClassVar[str] = "gamma"

    cv: float = Field(
        ge=0.01,
        le=100,
        allow_inf_nan=False,
        strict=True,
        description="coefficient of variation: standard deviation of the gaps over their mean; "
        "1 is Poisson, a smaller value is more regular, a larger one comes in clusters",
    )

    def _stream(self, rate_rps: float, rng: np.random.Generator, size: int) -> Iterator[Times]:
        shape = self.cv**-2
        scale_ms = 1000.0 / rate_rps / shape
        return cumulative_times(lambda count: rng.gamma(shape, scale_ms, count), size)
