"""A choice of shares as an order: a thread carries it out, because it takes tenths of a second."""

from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field

from scheduler.dispatch.run_times import Correction
from scheduler.dispatch.scaling.sizing import PodPrices, PodSize, Sizing, WorkflowLoad
from scheduler.model.documents import FunctionProfile


@dataclass(slots=True)
class ShareChoice:
    """A choice of the shares of a namespace's functions that is due.

    Attributes:
        namespace: namespace of the functions.
        loads: workflows of the namespace, with their rates.
        profiles: profile of each function, by name.
        corrections: correction of the run times of each function of the namespace.
        time_ratios: time that plans reserve for a run of each function, over the profile's.
        prices, refused: arguments of `Sizing`.
        rows_per_ms: rate of each function for which the choice is made.
    """

    namespace: str
    loads: Sequence[WorkflowLoad]
    profiles: Mapping[str, FunctionProfile]
    corrections: Mapping[str, Correction]
    time_ratios: Mapping[str, float]
    prices: PodPrices
    refused: AbstractSet[tuple[str, str, int, int]]
    rows_per_ms: dict[str, float] = field(default_factory=dict)

    def sizes(self) -> dict[str, PodSize]:
        """Choose. It takes tenths of a second; any thread may do it."""
        expected = {
            name: self.corrections[name].profile(self.profiles[name]) for name in self.corrections
        }
        sizing = Sizing(self.loads, expected, self.prices, self.refused)
        self.rows_per_ms = sizing.rows_per_ms
        return sizing.choice()
