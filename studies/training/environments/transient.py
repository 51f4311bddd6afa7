"""Environment ``transient``: that of Pollux on nodes that leave and return.

Such nodes are those that a batch system leaves idle for a while (BFTrainer, 2021). Changes take
effect at the end of a round. Jobs on a node that has left hold no GPU until the policy places them
again, and lose no progress but a restart. Times are drawn, or read from a file.
"""

from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from math import inf
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
from pydantic import Field

from studies.training.environment import WorkloadSource
from studies.training.environments.pollux import PolluxEnvironment, PolluxEnvironmentParameters
from studies.training.policy import RunParameters
from workbench.files.csv_table import file_error, table_rows

COLUMNS = ("node", "leave_s", "return_s")


class TransientParameters(PolluxEnvironmentParameters):
    """Times of absence."""

    present_s: float = Field(default=3600.0, gt=0, description="mean time until a node leaves")
    absent_s: float = Field(default=1200.0, gt=0, description="mean time until it returns")
    absences: Path | None = Field(
        default=None, description=f"CSV with {', '.join(COLUMNS)} in place of drawn times"
    )


class TransientEnvironment(PolluxEnvironment):
    """Jobs of a Pollux workload; `cluster` has the nodes that are absent now."""

    parameters_type: ClassVar[type[RunParameters]] = TransientParameters

    _changes_s: Sequence[Iterator[float]] = ()
    _next_s: list[float]

    @classmethod
    def load(cls, parameters: Any, source: WorkloadSource) -> Self:
        """Read a workload, and the times of absence; see `JobEnvironment.load`."""
        environment = super().load(parameters, source)
        nodes = len(environment.cluster.nodes)
        if parameters.absences is None:
            changes_s = [_drawn_changes_s(parameters, source.seed, node) for node in range(nodes)]
        else:
            changes_s = [iter(times_s) for times_s in read_changes_s(parameters.absences, nodes)]
        environment.set_changes(changes_s)
        return environment

    def set_changes(self, changes_s: Sequence[Iterator[float]]) -> None:
        """Set the times at which each node leaves and returns, in turn."""
        self._changes_s = changes_s
        self._next_s = [next(times_s, inf) for times_s in changes_s]

    def advance(self, now_s: float, next_s: float) -> None:
        """Let all placed jobs run for a round, then let nodes leave and return."""
        super().advance(now_s, next_s)
        absent = set(self.cluster.absent)
        for node, times_s in enumerate(self._changes_s):
            while self._next_s[node] <= next_s:
                absent ^= {node}
                self._next_s[node] = next(times_s, inf)
        if absent != self.cluster.absent:
            self.cluster = replace(self.cluster, absent=frozenset(absent))


def _drawn_changes_s(parameters: TransientParameters, seed: int, node: int) -> Iterator[float]:
    """Yield the times at which a node leaves and returns, in turn."""
    random = np.random.Generator(np.random.PCG64(np.random.SeedSequence([seed, 3, node])))
    now_s = 0.0
    while True:
        for mean_s in (parameters.present_s, parameters.absent_s):
            now_s += random.exponential(mean_s)
            yield now_s


def read_changes_s(file: Path, nodes: int) -> list[list[float]]:
    """Read the times at which each node leaves and returns, in turn.

    Raises:
        DocumentError: the file cannot be read, or a row is wrong; names file, line and column.
    """
    changes_s: list[list[float]] = [[] for _ in range(nodes)]
    with closing(table_rows(file, COLUMNS)) as table:
        for row in table:
            times_s = changes_s[row.whole("node", limit=nodes - 1)]
            leave_s, return_s = row.number("leave_s"), row.number("return_s")
            if times_s and leave_s < times_s[-1]:
                message = f"is before the node's return at {times_s[-1]:g} s in an earlier row"
                raise row.error("leave_s", message)
            if return_s <= leave_s:
                raise row.error("return_s", f"must be after the node leaves at {leave_s:g} s")
            times_s += [leave_s, return_s]
    if not any(changes_s):
        raise file_error(file, "has no absence below the columns' names")
    return changes_s
