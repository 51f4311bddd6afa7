"""Preparation of workflows for planning, in worker threads.

Tables and frontiers of one workflow take some 10 to 300 ms, and seconds for large orders that are
not series-parallel, which would delay every other call on the event loop. So a thread prepares all
workflows, after each change of the documents that they depend on and of the fleet's largest nodes.
A request whose workflow is not prepared yet waits for that workflow alone: other threads serve
requests. The event loop alone looks documents up and discards what was prepared from old ones; the
threads work on prepared workflows, which have their own view of the documents.
"""

import asyncio
from collections.abc import Callable, Iterable

from scheduler.model.catalogue import UnknownDocumentError
from scheduler.model.fleet_capacity import FleetCapacity
from scheduler.planning.document_store import DocumentStore
from scheduler.search.planner import Planner
from scheduler.search.workflows import PreparedWorkflow

REQUEST_THREADS = 2  # a large workflow occupies one for seconds; they share the interpreter's lock


class Preparation:
    """Prepares workflows while `run` runs; before and after that, planning prepares them itself.

    Args:
        documents: documents of the workflows.
        planner: planner over the documents; it discards what is outdated first.
        fleet: returns the capacity of the nodes.
    """

    def __init__(
        self,
        documents: DocumentStore,
        planner: Planner,
        fleet: Callable[[], FleetCapacity | None],
    ) -> None:
        self._workflows = documents.catalogue.workflows
        self._planner = planner
        self._current_fleet = fleet
        self._fleet: FleetCapacity | None = None  # for which all workflows were queued
        self._queue: dict[tuple[str, str], None] = {}  # namespace and name; a set in order
        self._awaited: dict[PreparedWorkflow, asyncio.Event] = {}  # by requests
        self._in_progress: set[PreparedWorkflow] = set()
        self._work = asyncio.Event()
        self._requests = asyncio.Event()
        self._running = False
        documents.on_discard.append(lambda workflows, _: self.add(workflows))

    def add(self, workflows: Iterable[tuple[str, str]]) -> None:
        """Queue workflows that are not prepared any more."""
        self._queue |= dict.fromkeys(workflows)
        self._work.set()

    def follow_fleet(self) -> None:
        """Queue all workflows if the fleet's largest nodes have changed."""
        fleet = self._current_fleet()
        if fleet != self._fleet:
            self._fleet = fleet
            self.add(self._workflows)

    async def wait_for(self, namespace: str, workflow: str | None, stage: str) -> None:
        """Wait until a stage's workflow is prepared; at once if it is, or is unknown.

        Without a workflow, ``stage`` is the name of a function.
        """
        self.follow_fleet()
        while True:
            try:  # the documents may change meanwhile
                prepared = self._planner.prepared(namespace, workflow, stage)
            except UnknownDocumentError:
                return
            if not self._running or prepared.is_prepared(self._fleet):
                return
            self._requests.set()
            await self._awaited.setdefault(prepared, asyncio.Event()).wait()

    async def run(self) -> None:
        """Prepare what is queued and what requests wait for, until cancelled."""
        self._running = True
        self.follow_fleet()
        workers = [
            self._prepare_queued(),
            *(self._prepare_awaited() for _ in range(REQUEST_THREADS)),
        ]
        tasks = [asyncio.create_task(worker) for worker in workers]
        try:
            await asyncio.gather(*tasks)
        finally:
            self._running = False
            for task in tasks:
                task.cancel()
            for event in self._awaited.values():
                event.set()

    async def _prepare_queued(self) -> None:
        while True:
            while self._queue:
                key = next(iter(self._queue))
                del self._queue[key]
                if key in self._workflows:
                    await self._prepare(self._planner.workflow(*key))
            self._work.clear()
            await self._work.wait()

    async def _prepare_awaited(self) -> None:
        while True:
            waiting = (p for p in self._awaited if p not in self._in_progress)
            if (prepared := next(waiting, None)) is not None:
                await self._prepare(prepared)
            else:
                self._requests.clear()
                await self._requests.wait()

    async def _prepare(self, prepared: PreparedWorkflow) -> None:
        """Prepare it in a thread, unless another one does, and let its requests go on."""
        if prepared in self._in_progress:
            return
        self._in_progress.add(prepared)
        try:
            while not prepared.is_prepared(self._fleet):  # the fleet may change meanwhile
                await asyncio.to_thread(prepared.prepare, self._fleet)
        finally:
            self._in_progress.discard(prepared)
        if (event := self._awaited.pop(prepared, None)) is not None:
            event.set()
