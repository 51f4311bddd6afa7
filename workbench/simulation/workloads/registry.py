"""Workloads by name."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from scheduler.model.document_reader import DocumentError, Problem
from scheduler.model.message_text import quoted
from workbench.simulation.workloads.azure import Azure
from workbench.simulation.workloads.bursts import Bursts
from workbench.simulation.workloads.gamma import Gamma
from workbench.simulation.workloads.generated import Generated
from workbench.simulation.workloads.paper import Paper
from workbench.simulation.workloads.parameters import Workload
from workbench.simulation.workloads.per_second import PerSecond
from workbench.simulation.workloads.periodic import Periodic
from workbench.simulation.workloads.poisson import Poisson
from workbench.simulation.workloads.request_log import RequestLog
from workbench.simulation.workloads.requests import Requests

WORKLOADS: Mapping[str, type[Workload]] = MappingProxyType(
    {
        kind.name: kind
        for kind in (
            Paper,
            Poisson,
            Periodic,
            Gamma,
            Bursts,
            Azure,
            RequestLog,
            PerSecond,
            Generated,
            Requests,
        )
    }
)


def parse_workload(name: str, parameters: Mapping[str, Any], source: str) -> Workload:
    """Return the workload of that name with these parameters, by their names in camelCase.

    Args:
        name: key of WORKLOADS.
        parameters: parameters from YAML or from a command.
        source: origin of the parameters, for messages.

    Raises:
        DocumentError: there is no such workload, or a parameter is wrong; it lists all faults.
    """
    if name not in WORKLOADS:
        message = f"{quoted(name)} is unknown; it is one of {', '.join(WORKLOADS)}"
        raise DocumentError([Problem(source, "the workload", "", message)])
    try:
        return WORKLOADS[name].model_validate(parameters, by_alias=True, by_name=False)
    except ValidationError as error:
        raise DocumentError(
            Problem(source, f"workload {name}", _field(detail["loc"]), _message(detail))
            for detail in error.errors(include_url=False)
        ) from None


def _field(location: tuple[int | str, ...]) -> str:
    """The parameter and the key in it; the part between them is the variant that pydantic chose."""
    return ".".join(str(part) for part in (location[0], *location[2:]))


def _message(detail: ErrorDetails) -> str:
    if detail["type"] == "missing":
        return "is missing"
    if detail["type"] == "extra_forbidden":
        return "unknown parameter; remove or rename it"
    return f"{detail['msg']} (given: {quoted(detail['input'])})"
