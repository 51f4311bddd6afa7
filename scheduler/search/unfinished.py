"""Unfinished stages of an instance, as bit masks: what is planned together."""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Self

from scheduler.search.dag import Dag, members


@dataclass(frozen=True, slots=True)
class UnfinishedStages:
    """An instance without its ended stages.

    Attributes:
        mask: bit mask of all stages that have not ended, the planned one among them; with a stage
            it contains all successors of the stage.
        running_ms: time until a running stage ends, by its number.
        running: running stages as a bit mask.
        begun: stages that no plan can help if they are late: the running ones, or all where the
            progress is not known.
    """

    mask: int
    running_ms: Mapping[int, float]
    running: int
    begun: int

    @classmethod
    def of(
        cls,
        dag: Dag,
        stage: int,
        ended: int = 0,
        running_ms: Mapping[int, float] = MappingProxyType({}),
        *,
        is_known: bool = True,
    ) -> Self:
        """Derive the unfinished stages when ``stage`` is planned; ``ended`` is a bit mask."""
        open_stages = 1 << stage | dag.following[stage]
        begun = {v: max(0.0, ms) for v, ms in running_ms.items() if not open_stages >> v & 1}
        for v in (stage, *begun, *members(ended)):
            ended |= dag.preceding[v]
        mask = open_stages | ((1 << len(dag.before)) - 1) & ~ended
        begun = {v: ms for v, ms in begun.items() if mask >> v & 1}
        running = sum(1 << v for v in begun)
        return cls(mask, begun, running, running if is_known else mask)
