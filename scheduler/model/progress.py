"""Progress of one workflow instance, as far as it is known when one of its stages is planned."""

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class InstanceProgress:
    """Stages of an instance that have ended or run; all others have not begun.

    Attributes:
        ended: names of ended stages. Predecessors of a stage that is planned, runs or has ended
            have ended as well and may be left out.
        running_ms: predicted time until a running stage ends, by its name.
        is_known: false if other stages may have begun or ended without a report. They are then
            planned as far as the time allows, and never make a plan infeasible.
    """

    ended: frozenset[str] = frozenset()
    running_ms: Mapping[str, float] = field(default_factory=dict)
    is_known: bool = True


NOTHING_BEGUN = InstanceProgress()
UNKNOWN_PROGRESS = InstanceProgress(is_known=False)
