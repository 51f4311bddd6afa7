"""Workflows that no configurations serve in time, for ``esg check``."""

from collections.abc import Iterator, Mapping

from scheduler.model.catalogue import Catalogue
from scheduler.model.document_reader import Problem
from scheduler.model.fleet_capacity import FleetCapacity
from scheduler.search.attainment import Attainment, attainment
from scheduler.search.planner import Planner, PlanningError
from scheduler.settings import Settings

_MARGIN_SHARE_MAX = 0.5


def unattainable(
    catalogue: Catalogue,
    sources: Mapping[tuple[str, str], str],
    settings: Settings,
    fleet: FleetCapacity | None,
) -> Iterator[Problem]:
    """Find stages without a node, and SLOs that no configuration meets, or that are mostly margin.

    A latency that is too short for any configuration is an error, the others are warnings.

    Args:
        catalogue: documents.
        sources: files of the workflows to look at, by namespace and name.
        settings: settings of the service.
        fleet: nodes; None: any configuration fits.
    """
    planner = Planner(catalogue, settings.rules)
    for (namespace, name), source in sources.items():
        document = f"Workflow {namespace}/{name}"
        try:
            prepared = planner.workflow(namespace, name)
            attained = attainment(prepared, fleet, settings.margin_ratio)
        except PlanningError as error:
            yield Problem(source, document, "spec.stages", str(error))
            continue
        field, is_late = "spec.slo.latencyMs", not attained.meets_latency
        if not attained.meets_objective:
            yield Problem(source, document, field, str(attained), warning=not is_late)
        elif attained.margin_share > _MARGIN_SHARE_MAX:
            yield Problem(source, document, field, _margin_text(attained), warning=True)


def _margin_text(attained: Attainment) -> str:
    slo = attained.slo
    return (
        f"the margin for an objective of {slo.objective:g} takes "
        f"{100 * attained.margin_share:.0f} % of {slo.latency_ms:g} ms, because p95Ms is far above "
        f"latencyMs in its profiles; {slo.latency_ms / (1 + attained.margin_ratio):.0f} ms are "
        "planned with. Measure again, or lower the objective"
    )
