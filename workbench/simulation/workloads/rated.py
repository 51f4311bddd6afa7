"""Workloads that are told their mean rates."""

from abc import abstractmethod
from collections.abc import Iterator, Mapping
from functools import partial
from typing import Annotated

import numpy as np
from pydantic import Discriminator, Field, Tag

from scheduler.model.quoting import quoted
from workbench.simulation.workload import CHUNK_MAX, Chunk
from workbench.simulation.workloads.arrivals import (
    ChunkedArrivals,
    Extent,
    Times,
    WorkflowKey,
)
from workbench.simulation.workloads.parameters import Workload
from workbench.simulation.workloads.streams import (
    block_sizes,
    chance_of,
    merged,
    mixed,
)
from workbench.simulation.workloads.workflow_names import spellings, unknown

Rate = Annotated[  # from one request in eleven days on
    float, Field(ge=1e-6, le=1e6, allow_inf_nan=False, strict=True)
]
Rates = Annotated[
    Annotated[Rate, Tag("total")]
    | Annotated[dict[str, Rate], Field(min_length=1), Tag("workflows")],
    Discriminator(lambda given: "workflows" if isinstance(given, Mapping) else "total"),
]


class Rated(Workload):
    """Its mean rates are a parameter."""

    rate_rps: Rates = Field(
        description="mean requests a second: a number for all workflows together, in equal parts; "
        "or the rate of each workflow by its name, and none of the others"
    )

    def _rates_rps(self, workflows: tuple[WorkflowKey, ...]) -> list[float]:
        if not isinstance(self.rate_rps, dict):
            return [self.rate_rps / len(workflows)] * len(workflows)
        known = spellings(workflows)
        rates_rps = [0.0] * len(workflows)
        for name, rate_rps in self.rate_rps.items():
            if name not in known:
                raise self.problem("rate_rps", unknown(name, workflows))
            if rates_rps[known[name]]:
                raise self.problem("rate_rps", f"the workflow {quoted(name)} has two; keep one")
            rates_rps[known[name]] = rate_rps
        return rates_rps


class Streamed(Rated):
    """Each workflow has a stream of its own, or all of them share one."""

    together: bool = Field(
        default=False,
        strict=True,
        description="one stream for all workflows, each request being of one at random by its "
        "rate; else a stream for each workflow",
    )

    @abstractmethod
    def _stream(self, rate_rps: float, chance: np.random.Generator, size: int) -> Iterator[Times]:
        """Rising times without an end, about ``size`` of them at a time."""

    def _arrivals(
        self, workflows: tuple[WorkflowKey, ...], seed: np.random.SeedSequence, extent: Extent
    ) -> ChunkedArrivals:
        blocks = partial(self._blocks, self._rates_rps(workflows), seed)
        return ChunkedArrivals(workflows=workflows, blocks=blocks, extent=extent)

    def _blocks(self, rates_rps: list[float], seed: np.random.SeedSequence) -> Iterator[Chunk]:
        if self.together:
            stream = self._stream(sum(rates_rps), chance_of(seed, 0), CHUNK_MAX)
            return mixed(stream, rates_rps, chance_of(seed, 1))
        return merged(
            [
                (index, self._stream(rate_rps, chance_of(seed, index), size))
                for index, (rate_rps, size) in enumerate(
                    zip(rates_rps, block_sizes(rates_rps), strict=True)
                )
                if rate_rps
            ]
        )
