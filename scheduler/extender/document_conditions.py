"""Conditions of Workflows and FunctionProfiles, by one process of the extender (ADR 46)."""

import asyncio
from collections.abc import Iterator
from contextlib import suppress

import structlog

from scheduler.cluster.errors import ClusterError
from scheduler.cluster.resource import FUNCTION_PROFILES, WORKFLOWS, Resource
from scheduler.cluster.status_writer import DesiredStatus
from scheduler.model.catalogue import UnknownDocumentError
from scheduler.model.documents import Workflow
from scheduler.model.fleet_capacity import FleetCapacity
from scheduler.model.message_text import listed
from scheduler.model.status import (
    ACCEPTED,
    NOT_ACCEPTED,
    ConditionState,
    ObservedDocument,
    rejected,
)
from scheduler.planning.service import PlanningService
from scheduler.search.attainment import attainment
from scheduler.search.errors import PlanningError
from scheduler.search.workflows import PreparedWorkflow

log = structlog.get_logger(__name__)
PERIOD_S = 2.0  # between two comparisons of all documents
_SLICE = 20  # workflows that are compared in one turn of the event loop
_SHOWN_MAX = 3  # workflows in one message
_NO_GPUS = ConditionState("Unknown", "NoGpuNodes", "no node has a GPU that the node agent reports")

_Attained = tuple[PreparedWorkflow, FleetCapacity, ConditionState]


class DocumentConditions:
    """Writes the conditions, as long as this process holds the Lease for that.

    Args:
        planning: documents and planner; nothing is written while it is not ready.
    """

    def __init__(self, planning: PlanningService) -> None:
        self._planning = planning
        self._documents = planning.state.documents
        self._attained: dict[tuple[str, str], _Attained] = {}
        self._settled: tuple[int, int, FleetCapacity | None] | None = None

    async def write(self) -> None:
        """Write what has changed since the last call."""
        link = self._planning.link
        if link.statuses is None or self._planning.not_ready_reason():
            return
        try:
            if link.status_lease is not None and not await link.status_lease.acquire():
                return
        except ClusterError as error:
            log.warning("the Lease of the writer of statuses is not kept", error=str(error))
            return
        documents = self._documents
        reports = documents.workflows.revision, documents.profiles.revision
        state = *reports, self._planning.planner.fleet()
        if state == self._settled:
            return
        are_compared = await self._compare_slos()
        is_settled = await link.statuses.write_all(self._statuses())
        self._settled = state if are_compared and is_settled and self._is_writer() else None

    async def release(self) -> None:
        """Let another process write at once."""
        if (lease := self._planning.link.status_lease) is not None:
            with suppress(ClusterError):
                await lease.release()

    def _is_writer(self) -> bool:
        lease = self._planning.link.status_lease
        return lease is None or lease.is_valid()

    def _statuses(self) -> Iterator[DesiredStatus]:
        """Yield each status when it is needed; what goes meanwhile is left out."""
        workflows, profiles = self._documents.workflows, self._documents.profiles
        for key in list(workflows.observed):
            if self._is_writer() and (observed := workflows.observed.get(key)) is not None:
                yield _desired(WORKFLOWS, *key, observed, self._workflow_conditions(key))
        for name in list(profiles.observed):
            if self._is_writer() and (observed := profiles.observed.get(name)) is not None:
                error = profiles.errors.get(name)
                accepted = ACCEPTED if error is None else rejected(error)
                conditions = {"Accepted": accepted, "Used": self._used(name)}
                yield _desired(FUNCTION_PROFILES, "", name, observed, conditions)

    def _workflow_conditions(self, key: tuple[str, str]) -> dict[str, ConditionState]:
        accepted = self._accepted(key)
        if accepted.status != "True":
            return {"Accepted": accepted, "Attainable": NOT_ACCEPTED}
        if self._planning.planner.fleet() is None:
            return {"Accepted": accepted, "Attainable": _NO_GPUS}
        attained = self._attained.get(key)
        if attained is None or attained[0] is not self._prepared(key):
            return {"Accepted": accepted}  # it is being prepared
        return {"Accepted": accepted, "Attainable": attained[2]}

    def _accepted(self, key: tuple[str, str]) -> ConditionState:
        if (error := self._documents.workflows.errors.get(key)) is not None:
            return rejected(error)
        workflow = self._documents.catalogue.workflows.get(key)
        missing = [] if workflow is None else self._missing(workflow)
        if missing:
            text = f"no valid FunctionProfile of {listed(missing)}; create them with these names"
            return ConditionState("False", "MissingProfile", text)
        return ACCEPTED

    def _missing(self, workflow: Workflow) -> list[str]:
        functions = dict.fromkeys(stage.function for stage in workflow.spec.stages)
        profiles = self._documents.catalogue.profiles
        return [function for function in functions if function not in profiles]

    def _used(self, function: str) -> ConditionState:
        users = sorted(map("/".join, self._documents.users(function)))
        if not users:
            return ConditionState("False", "Unused", "no Workflow has a stage of this function")
        return ConditionState("True", "InUse", f"by Workflow {listed(users, limit=_SHOWN_MAX)}")

    # -- service-level objectives ---------------------------------------------------------------

    async def _compare_slos(self) -> bool:
        """Compare the SLOs with the nodes, where workflows, profiles or nodes have changed.

        Return true if none has to wait until its workflow is prepared.
        """
        fleet, margin_ratio = self._planning.planner.fleet(), self._planning.settings.margin_ratio
        keys = list(self._documents.catalogue.workflows)
        for key in self._attained.keys() - set(keys):
            del self._attained[key]
        if fleet is None:
            return True
        are_compared = True
        for number, key in enumerate(keys):
            if number % _SLICE == 0:
                await asyncio.sleep(0)
            prepared = self._prepared(key)
            if prepared is None:
                continue
            if not prepared.is_prepared(fleet):
                are_compared = False
                continue
            before = self._attained.get(key)
            if before is None or before[0] is not prepared or before[1] != fleet:
                state = await asyncio.to_thread(_attainable, prepared, fleet, margin_ratio)
                self._attained[key] = prepared, fleet, state
        return are_compared

    def _prepared(self, key: tuple[str, str]) -> PreparedWorkflow | None:
        workflow = self._documents.catalogue.workflows.get(key)
        if workflow is None or self._missing(workflow):
            return None
        return self._planning.state.planner.workflow(*key)


def _attainable(
    prepared: PreparedWorkflow, fleet: FleetCapacity, margin_ratio: float | None
) -> ConditionState:
    try:
        attained = attainment(prepared, fleet, margin_ratio)
    except (PlanningError, UnknownDocumentError) as error:
        return ConditionState("False", "NoNode", str(error))
    text = f"{attained}, on {listed(list(fleet.models))}"
    if not attained.meets_latency:
        return ConditionState("False", "SloTooShort", text)
    if not attained.meets_objective:
        return ConditionState("False", "MarginTooLarge", text)
    return ConditionState("True", "SloMet", text)


def _desired(
    resource: Resource,
    namespace: str,
    name: str,
    observed: ObservedDocument,
    conditions: dict[str, ConditionState],
) -> DesiredStatus:
    return DesiredStatus(
        resource=resource,
        namespace=namespace,
        name=name,
        observed=observed,
        conditions=conditions,
        fields={"observedGeneration": observed.generation},
    )
