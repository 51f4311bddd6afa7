"""Interface of a workload: parameters with units, mean rates, arrivals."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import ClassVar

import numpy as np
from pydantic import BaseModel, ConfigDict
from pydantic.alias_generators import to_camel

from scheduler.model.document_reader import DocumentError, Problem
from workbench.simulation.workloads.arrivals import (
    UNLIMITED,
    ChunkedArrivals,
    Extent,
    WorkflowKey,
)


class Workload(BaseModel, ABC):
    """A workload's parameters: camelCase in YAML, snake_case here.

    Attributes:
        name: key in the registry.
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
        """Return the arrivals for these workflows; nothing is drawn before they are iterated.

        Args:
            workflows: (namespace, name) of each workflow, without duplicates.
            seed: seed of this workload.
            extent: limits of the arrivals; only workloads from files or counts end by themselves.

        Raises:
            DocumentError: parameters do not fit the workflows, or a file is wrong.
        """
        sequence = (
            seed if isinstance(seed, np.random.SeedSequence) else np.random.SeedSequence(seed)
        )
        return self._arrivals(self._non_empty(workflows), sequence, extent)

    def mean_rate_rps(self, workflows: Sequence[WorkflowKey]) -> dict[WorkflowKey, float]:
        """Return the requests per second of each workflow, without an extent; 0 if it has none.

        Raises:
            DocumentError: parameters do not fit the workflows, or a file is wrong.
        """
        keys = self._non_empty(workflows)
        return dict(zip(keys, self._rates_rps(keys), strict=True))

    @abstractmethod
    def _arrivals(
        self, workflows: tuple[WorkflowKey, ...], seed: np.random.SeedSequence, extent: Extent
    ) -> ChunkedArrivals:
        """Implement `arrivals`; there is at least one workflow."""

    @abstractmethod
    def _rates_rps(self, workflows: tuple[WorkflowKey, ...]) -> list[float]:
        """Implement `mean_rate_rps`, in the order of the workflows."""

    def problem(self, field: str, message: str) -> DocumentError:
        """Return the error for a parameter, or for all of them."""
        place = to_camel(field) if field else "the parameters"
        return DocumentError([Problem(f"workload {self.name}", place, "", message)])

    def _non_empty(self, workflows: Sequence[WorkflowKey]) -> tuple[WorkflowKey, ...]:
        if not workflows:
            raise self.problem("", "there is no workflow; give at least one")
        return tuple(workflows)
