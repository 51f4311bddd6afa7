"""Workflows that no configurations serve in time, for ``esg check``."""

from collections.abc import Iterator, Mapping

from scheduler.model.catalogue import Catalogue
from scheduler.model.document_reader import Problem
from scheduler.model.fleet_capacity import FleetCapacity
from scheduler.search.attainment import attainment
from scheduler.search.planner import Planner, PlanningError
from scheduler.settings import Settings


def unattainable(
    catalogue: Catalogue,
    sources: Mapping[tuple[str, str], str],
    settings: Settings,
    fleet: FleetCapacity | None,
) -> Iterator[Problem]:
    """Find stages without a node, and SLOs that no configuration meets.

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
        if not attained.meets_objective:
            yield Problem(source, document, "spec.slo.latencyMs", str(attained), warning=True)
