"""Attainment of a workflow's SLO on a fleet: the fastest configurations, and the margin."""

from dataclasses import dataclass

from scheduler.model.documents import Slo
from scheduler.model.fleet_capacity import FleetCapacity
from scheduler.search.ranking import with_rounding_ms
from scheduler.search.workflows import PreparedWorkflow


@dataclass(frozen=True, slots=True)
class Attainment:
    """End-to-end time of a workflow at its fastest, and the margin of its objective.

    Attributes:
        fastest_ms: time with every stage at its fastest.
        margin_ratio: margin that plans keep, as a ratio of the planned time.
    """

    slo: Slo
    fastest_ms: float
    margin_ratio: float

    @property
    def meets_latency(self) -> bool:
        """True if the latency can be met, without a margin."""
        return self.fastest_ms <= with_rounding_ms(self.slo.latency_ms)

    @property
    def margin_share(self) -> float:
        """Part of the SLO's latency that is margin."""
        return self.margin_ratio / (1 + self.margin_ratio)

    @property
    def meets_objective(self) -> bool:
        """True if the latency can be met with the margin."""
        return self.fastest_ms <= with_rounding_ms(self.slo.latency_ms / (1 + self.margin_ratio))

    def __str__(self) -> str:
        """Compare the numbers."""
        slo, margin = self.slo, f"{100 * self.margin_ratio:.3g} %"
        if not self.meets_latency:
            return (
                f"no configuration meets {slo.latency_ms:g} ms; the fastest takes "
                f"{self.fastest_ms:g} ms"
            )
        if not self.meets_objective:
            return (
                f"{slo.latency_ms:g} ms are too few for an objective of {slo.objective:g}: the "
                f"fastest takes {self.fastest_ms:g} ms, and its margin is {margin}"
            )
        return (
            f"the fastest configurations take {self.fastest_ms:g} ms, with the margin of {margin} "
            f"{self.fastest_ms * (1 + self.margin_ratio):g} ms of {slo.latency_ms:g} ms"
        )


def attainment(
    prepared: PreparedWorkflow, fleet: FleetCapacity | None, margin_ratio: float | None
) -> Attainment:
    """Compute the attainment on a fleet; None: nodes of any size, with all profiled GPU models.

    Args:
        prepared: workflow.
        fleet: capacity of the nodes.
        margin_ratio: margin of all plans; None: that of the objective.

    Raises:
        UnknownDocumentError: the profile of a function is not known.
        PlanningError: no node can hold any configuration of a stage.
    """
    fastest_ms = prepared.fastest_ms(fleet)
    if margin_ratio is None:
        margin_ratio = prepared.whole_margin(fleet).ratio
    return Attainment(prepared.workflow.spec.slo, fastest_ms, margin_ratio)
