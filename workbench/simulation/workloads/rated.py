"""Workloads with mean rates as parameters."""

from abc import abstractmethod
from collections.abc import Iterator, Mapping
from functools import partial
from typing import Annotated

import numpy as np
from pydantic import Discriminator, Field, Tag

from scheduler.model.message_text import quoted
from workbench.simulation.workload import CHUNK_MAX, Chunk
from workbench.simulation.workloads.arrivals import (
    ChunkedArrivals,
    Extent,
    Times,
    WorkflowKey,
)
from workbench.simulation.workloads.parameters import Workload
from workbench.simulation.workloads.streams import (
    assigned,
    block_sizes,
    generator_of,
    merge,
)
from workbench.simulation.workloads.workflow_names import unknown_workflow, workflow_indices

Rate = Annotated[  # at least one request in eleven days
    float, Field(ge=1e-6, le=1e6, allow_inf_nan=False, strict=True)
]
Rates = Annotated[
    Annotated[Rate, Tag("total")]
    | Annotated[dict[str, Rate], Field(min_length=1), Tag("workflows")],
    Discriminator(lambda value: "workflows" if isinstance(value, Mapping) else "total"),
]


class Rated(Workload):
    """A workload whose mean rates are a parameter."""

    rate_rps: Rates = Field(
        description="mean requests per second: a number for all workflows in equal parts; "
        "or the rate of each workflow by its name; the other workflows have none"
    )

    @abstractmethod
    def _blocks(self, rates_rps: list[float], seed: np.random.SeedSequence) -> Iterator[Chunk]:
        """Yield the requests of workflows with these rates, without end."""

    def _arrivals(
        self, workflows: tuple[WorkflowKey, ...], seed: np.random.SeedSequence, extent: Extent
    ) -> ChunkedArrivals:
        blocks = partial(self._blocks, self._rates_rps(workflows), seed)
        return ChunkedArrivals(workflows=workflows, blocks=blocks, extent=extent)

    def _rates_rps(self, workflows: tuple[WorkflowKey, ...]) -> list[float]:
        if not isinstance(self.rate_rps, dict):
            return [self.rate_rps / len(workflows)] * len(workflows)
        indices = workflow_indices(workflows)
        rates_rps = [0.0] * len(workflows)
        for name, rate_rps in self.rate_rps.items():
            if name not in indices:
                raise self.problem("rate_rps", unknown_workflow(name, workflows))
            if rates_rps[indices[name]]:
                raise self.problem(
                    "rate_rps", f"the workflow {quoted(name)} has two rates; remove one"
                )
            rates_rps[indices[name]] = rate_rps
        return rates_rps


class Streamed(Rated):
    """A workload with a stream per workflow, or one shared stream."""

    together: bool = Field(
        default=False,
        strict=True,
        description="one stream for all workflows, with a random workflow per request by its "
        "rate; otherwise one stream per workflow",
    )

    @abstractmethod
    def _stream(self, rate_rps: float, rng: np.random.Generator, size: int) -> Iterator[Times]:
        """Yield ascending times without end, about ``size`` at a time."""

    def _blocks(self, rates_rps: list[float], seed: np.random.SeedSequence) -> Iterator[Chunk]:
        if self.together:
            stream = self._stream(sum(rates_rps), generator_of(seed, 0), CHUNK_MAX)
            return assigned(stream, rates_rps, generator_of(seed, 1))
        return merge(
            [
                (index, self._stream(rate_rps, generator_of(seed, index), size))
                for index, (rate_rps, size) in enumerate(
                    zip(rates_rps, block_sizes(rates_rps), strict=True)
                )
                if rate_rps
            ]
        )
