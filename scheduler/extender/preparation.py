"""Preparation of workflows for planning, in a worker thread.

Tables and frontiers of one workflow take some 10 to 300 ms, which would delay every other call on
the event loop. So a thread prepares all workflows, after each change of the documents that they
depend on and of the fleet's largest nodes. A request whose workflow is not prepared yet goes first
and waits. The event loop alone looks documents up and discards what was prepared from old ones; the
thread works on prepared workflows, which have their own view of the documents.
"""

import asyncio
from collections.abc import Callable, Iterable

from scheduler.extender.document_store import DocumentStore
from scheduler.model.catalogue import UnknownDocumentError
from scheduler.model.fleet_capacity import FleetCapacity
from scheduler.model.pod import FunctionPod
from scheduler.search.workflows import PreparedFunction, PreparedWorkflow

_Prepared = PreparedWorkflow | PreparedFunction


class Preparation:
    """Prepares workflows while `run` runs; before and after that, planning prepares them itself."""

    def __init__(self, documents: DocumentStore, fleet: Callable[[], FleetCapacity | None]) -> None:
        """Create it for the documents; ``fleet`` returns the capacity of the nodes."""
        self._documents = documents
        self._current_fleet = fleet
        self._fleet: FleetCapacity | None = None  # for which all workflows were queued
        self._queue: dict[tuple[str, str], None] = {}  # namespace and name; a set in order
        self._awaited: dict[_Prepared, asyncio.Event] = {}  # by requests; they go first
        self._work = asyncio.Event()
        self._running = False
        documents.on_discard = self.add

    def add(self, workflows: Iterable[tuple[str, str]]) -> None:
        """Queue workflows that are not prepared any more."""
        self._queue |= dict.fromkeys(workflows)
        self._work.set()

    def follow_fleet(self) -> None:
        """Queue all workflows if the fleet's largest nodes have changed."""
        fleet = self._current_fleet()
        if fleet != self._fleet:
            self._fleet = fleet
            self.add(self._documents.catalogue.workflows)

    async def wait_for(self, pod: FunctionPod) -> None:
        """Wait until the pod's workflow is prepared; at once if it is, or is unknown."""
        self.follow_fleet()
        try:
            prepared = self._documents.planner.prepared(pod.namespace, pod.workflow, pod.stage)
        except UnknownDocumentError:
            return
        if self._running and not prepared.is_prepared(self._fleet):
            self._work.set()
            await self._awaited.setdefault(prepared, asyncio.Event()).wait()

    async def run(self) -> None:
        """Prepare what is queued, until cancelled."""
        self._running = True
        self.follow_fleet()
        try:
            while True:
                await self._next()
        finally:
            self._running = False
            for event in self._awaited.values():
                event.set()

    async def _next(self) -> None:
        """Do the next piece of work, or wait for one."""
        if self._awaited:
            prepared = next(iter(self._awaited))
            await self._prepare(prepared)
            self._awaited.pop(prepared).set()
        elif self._queue:
            key = next(iter(self._queue))
            del self._queue[key]
            if key in self._documents.catalogue.workflows:
                await self._prepare(self._documents.planner.workflow(*key))
        else:
            self._work.clear()
            await self._work.wait()

    async def _prepare(self, prepared: _Prepared) -> None:
        if not prepared.is_prepared(self._fleet):
            await asyncio.to_thread(prepared.prepare, self._fleet)
