"""Report of the configurations that no node can hold, for Events on Workflows."""

import asyncio
from collections.abc import Iterable

from scheduler.model.documents import FunctionProfile, Workflow
from scheduler.model.fleet_capacity import FleetCapacity
from scheduler.planning.state import State

CHANGES_MAX = 20  # in one call, so that these Events do not delay others


class CapacityReport:
    """Compares the profiles with the nodes, and returns each Workflow's report when it changes.

    Attributes:
        reported: present report of each Workflow that has one, as it was returned.
    """

    def __init__(self, state: State) -> None:
        self._state = state
        self._fleet: FleetCapacity | None = None
        self._excess: dict[str, tuple[FunctionProfile, str]] = {}  # by function
        self.reported: dict[tuple[str, str], str] = {}

    async def changes(self) -> list[tuple[Workflow, str]]:
        """Return Workflows with configurations that no node can hold, and the report of each.

        A Workflow is returned again when its report has changed.
        """
        catalogue, fleet = self._state.documents.catalogue, self._state.ledger.fleet.capacity
        if fleet != self._fleet:
            self._excess.clear()
            self._fleet = fleet
        changed = [
            profile
            for function, profile in catalogue.profiles.items()
            if function not in self._excess or self._excess[function][0] is not profile
        ]
        if changed:
            self._excess |= await asyncio.to_thread(_excess, changed, fleet)
        reports = {w.key: (w, self._text(w)) for w in catalogue.workflows.values()}
        before = self.reported
        self.reported = {k: text for k, (_, text) in reports.items() if before.get(k) == text}
        changes = [
            report for key, report in reports.items() if report[1] and key not in self.reported
        ]
        del changes[CHANGES_MAX:]
        self.reported |= {workflow.key: text for workflow, text in changes}
        return changes

    def _text(self, workflow: Workflow) -> str:
        profiles = self._state.documents.catalogue.profiles
        functions = dict.fromkeys(stage.function for stage in workflow.spec.stages)
        texts = (self._excess[f][1] for f in functions if f in profiles and f in self._excess)
        return "; ".join(text for text in texts if text)


def _excess(
    profiles: Iterable[FunctionProfile], fleet: FleetCapacity
) -> dict[str, tuple[FunctionProfile, str]]:
    texts = {}
    for profile in profiles:
        name = profile.metadata.name
        text = "; ".join(f"function {name}: {text}" for text in fleet.excess(profile))
        texts[name] = profile, text
    return texts
