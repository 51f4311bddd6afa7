"""Workflows that no configurations serve in time, for ``esg check``."""

from collections.abc import Iterator, Mapping

from scheduler.model.catalogue import Catalogue
from scheduler.model.document_reader import Problem
from scheduler.model.documents import Slo
from scheduler.model.fleet_capacity import FleetCapacity
from scheduler.search.planner import Planner, PlanningError
from scheduler.search.ranking import with_rounding_ms
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
            fastest_ms = planner.fastest_ms(namespace, name, fleet)
        except PlanningError as error:
            yield Problem(source, document, "spec.stages", str(error))
            continue
        margin = settings.margin_ratio
        if margin is None:
            margin = planner.workflow(namespace, name).whole_margin(fleet).ratio
        slo = catalogue.workflows[namespace, name].spec.slo
        message = _out_of_reach(slo, fastest_ms, margin)
        if message:
            yield Problem(source, document, "spec.slo.latencyMs", message, warning=True)


def _out_of_reach(slo: Slo, fastest_ms: float, margin_ratio: float) -> str:
    """Return why an objective cannot be met; empty if it can."""
    if fastest_ms > with_rounding_ms(slo.latency_ms):
        return f"no configuration meets {slo.latency_ms:g} ms; the fastest takes {fastest_ms:g} ms"
    if fastest_ms > with_rounding_ms(slo.latency_ms / (1 + margin_ratio)):
        return (
            f"{slo.latency_ms:g} ms are too few for an objective of {slo.objective:g}: the "
            f"fastest takes {fastest_ms:g} ms, and its margin is {100 * margin_ratio:.3g} %"
        )
    return ""
