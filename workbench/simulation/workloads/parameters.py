"""What every workload is: parameters with units, its mean rates, its arrivals."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import ClassVar

import numpy as np
from pydantic import BaseModel, ConfigDict
from pydantic.alias_generators import to_camel

from scheduler.model.reading import DocumentError, Problem
from workbench.simulation.workloads.arrivals import (
    UNLIMITED,
    ChunkedArrivals,
    Extent,
    WorkflowKey,
)


class Workload(BaseModel, ABC):
    """A workload's parameters: camelCase in YAML, snake_case here.

    Attributes:
        name: as the registry has it.
    """

    model_config = ConfigDict(
        frozen=True, extra="forbid", alias_generator=to_camel, populate_by_name=True
    )

    name: ClassVar[str]

    def arrivals(
        self,
        workflows: Sequence[WorkflowKey],
        *,
        seed: int | np.random.SeedSequence,
        extent: Extent = UNLIMITED,
    ) -> ChunkedArrivals:
        """The arrivals, for these workflows; nothing is drawn before they are iterated.

        Args:
            workflows: (namespace, name) of each, none of them twice.
            seed: of this workload alone.
            extent: how much is wanted; only what is read from a file, or counted, ends by itself.

        Raises:
            DocumentError: parameters do not fit the workflows, or a file is wrong.
        """
        sequence = (
            seed if isinstance(seed, np.random.SeedSequence) else np.random.SeedSequence(seed)
        )
        return self._arrivals(self._some(workflows), sequence, extent)

    def mean_rate_rps(self, workflows: Sequence[WorkflowKey]) -> dict[WorkflowKey, float]:
        """Requests a second of each workflow, whatever is wanted of it; 0 where it has none.

        Raises:
            DocumentError: parameters do not fit the workflows, or a file is wrong.
        """
        keys = self._some(workflows)
        return dict(zip(keys, self._rates_rps(keys), strict=True))

    @abstractmethod
    def _arrivals(
        self, workflows: tuple[WorkflowKey, ...], seed: np.random.SeedSequence, extent: Extent
    ) -> ChunkedArrivals:
        """As `arrivals`; there is at least one workflow."""

    @abstractmethod
    def _rates_rps(self, workflows: tuple[WorkflowKey, ...]) -> list[float]:
        """As `mean_rate_rps`, in the order of the workflows."""

    def problem(self, field: str, message: str) -> DocumentError:
        """What is wrong with a parameter, or with the whole."""
        place = to_camel(field) if field else "the parameters"
        return DocumentError([Problem(f"workload {self.name}", place, "", message)])

    def _some(self, workflows: Sequence[WorkflowKey]) -> tuple[WorkflowKey, ...]:
        if not workflows:
            raise self.problem("", "there is no workflow that requests could be of; give one")
        return tuple(workflows)
