"""Workload and settings of the ESG paper's evaluation, as reconstructed.

Gaps are uniform in a range, and each request is of a random workflow. The paper says that the
ranges follow "an Azure Functions pattern"; how they were derived from it is not known to us.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import product
from typing import ClassVar, Literal

import numpy as np
from pydantic import Field

from workbench.simulation.workload import Chunk
from workbench.simulation.workloads.arrivals import ChunkedArrivals, Extent, WorkflowKey
from workbench.simulation.workloads.parameters import Workload
from workbench.simulation.workloads.streams import assigned, cumulative_times, generator_of

Load = Literal["light", "normal", "heavy"]

GAPS_MS: Mapping[Load, tuple[float, float]] = {  # minimum and maximum
    "light": (40.0, 67.2),
    "normal": (20.0, 33.6),
    "heavy": (10.0, 16.8),
}
SLO_FACTORS: Mapping[str, float] = {"strict": 0.8, "moderate": 1.0, "relaxed": 1.2}


@dataclass(frozen=True, slots=True)
class Setting:
    """One setting of the evaluation.

    Attributes:
        slo_factor: SLO over L, the time of all stages at the minimum configuration.
        load: rate of the requests.
    """

    slo_factor: float
    load: Load


SETTINGS: Mapping[str, Setting] = {
    f"{slo}-{load}": Setting(factor, load)
    for (slo, factor), load in product(SLO_FACTORS.items(), GAPS_MS)
}
PAPER_SETTINGS = (
    "strict-light",
    "moderate-normal",
    "relaxed-heavy",
)  # the settings that the paper reports


class Paper(Workload):
    """Gaps uniform in the load's range, random workflows."""

    name: ClassVar[str] = "paper"

    load: Load = Field(
        description="gaps in ms: light 40 to 67.2, normal 20 to 33.6, heavy 10 to 16.8"
    )

    def _rates_rps(self, workflows: tuple[WorkflowKey, ...]) -> list[float]:
        return [1000.0 / (sum(GAPS_MS[self.load]) / 2) / len(workflows)] * len(workflows)

    def _arrivals(
        self, workflows: tuple[WorkflowKey, ...], seed: np.random.SeedSequence, extent: Extent
    ) -> ChunkedArrivals:
        blocks = partial(self._blocks, len(workflows), seed)
        return ChunkedArrivals(workflows=workflows, blocks=blocks, extent=extent)

    def _blocks(self, workflows: int, seed: np.random.SeedSequence) -> Iterator[Chunk]:
        gaps, workflow_rng = generator_of(seed, 0), generator_of(seed, 1)
        shortest_ms, longest_ms = GAPS_MS[self.load]
        stream = cumulative_times(lambda size: gaps.uniform(shortest_ms, longest_ms, size))
        return assigned(stream, [1.0] * workflows, workflow_rng)
