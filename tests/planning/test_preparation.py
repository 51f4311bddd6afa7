"""Workflows are prepared in a thread: requests go first, and nothing else waits."""

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager

import pytest

from scheduler.model.documents import FunctionProfile, Workflow, to_manifest
from scheduler.model.fleet_capacity import FleetCapacity
from scheduler.planning.document_store import DocumentStore
from scheduler.planning.preparation import Preparation
from scheduler.search.planner import Planner
from scheduler.search.rules import Rules
from scheduler.search.workflows import PreparedWorkflow
from tests.extender.factories import DOCUMENTS, MODEL, nodes_and_documents, pod, profile, workflow
from tests.extender.harness import embedded

CHAIN = ("default", "chain", "half")
LONE = ("default", "lone-stage", "elastic")
FUNCTION = ("default", None, "half")
UNPROFILED = ("default", "unprofiled", "nobody-knows")


class Recorder:
    """Records preparations, and holds them up until they are released."""

    def __init__(self, monkeypatch):
        self.names = []
        self.threads = set()
        self.released = threading.Event()
        self.released.set()
        self.held = None  # the only name that is held up; None: all
        self.error = None
        self._begun = threading.Semaphore(0)
        original = PreparedWorkflow.prepare

        def prepare(prepared, fleet):
            name = prepared.workflow.metadata.name
            self.names.append(name)
            self.threads.add(threading.get_ident())
            self._begun.release()
            if self.held in {None, name}:
                assert self.released.wait(30)
            if self.error is not None:
                raise self.error
            original(prepared, fleet)

        monkeypatch.setattr(PreparedWorkflow, "prepare", prepare)

    async def begun(self, count=1):
        """Wait until this number of further preparations has begun."""
        for _ in range(count):
            assert await asyncio.to_thread(self._begun.acquire, timeout=60)

    async def holds_up(self):
        """Wait until the preparation that is held up has begun."""
        while self.held not in self.names:
            await self.begun()


class Bed:
    """Documents, a fleet, and their preparation."""

    def __init__(self):
        self.fleet = FleetCapacity.of_models([MODEL])
        self.documents = DocumentStore(
            stages_max=32, on_workflow=lambda _: None, on_profile=lambda _: None
        )
        self.planner = Planner(self.documents.catalogue, Rules())
        self.documents.on_discard.append(self.planner.discard)
        self.preparation = Preparation(self.documents, self.planner, lambda: self.fleet)
        for handler, kind in (
            (self.documents.workflows, Workflow),
            (self.documents.profiles, FunctionProfile),
        ):
            handler.replace(to_manifest(d) for d in DOCUMENTS if isinstance(d, kind))

    def is_prepared(self, stage):
        """Tell if the stage's workflow is prepared for the fleet."""
        return self.planner.prepared(*stage).is_prepared(self.fleet)

    @asynccontextmanager
    async def running(self):
        """Run the preparation."""
        task = asyncio.create_task(self.preparation.run())
        await asyncio.sleep(0)
        try:
            yield task
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


@pytest.fixture
def recorder(monkeypatch):
    return Recorder(monkeypatch)


@pytest.fixture
def bed(recorder):
    return Bed()


async def test_every_workflow_is_prepared_in_a_thread(bed, recorder):
    """Before any request, each once, and not on the event loop's thread."""
    async with bed.running():
        await recorder.begun(3)
        await bed.preparation.wait_for(*CHAIN)
        await bed.preparation.wait_for(*UNPROFILED)
    assert sorted(recorder.names) == ["chain", "lone-stage", "unprofiled"]
    assert threading.get_ident() not in recorder.threads
    assert bed.is_prepared(CHAIN)


@pytest.mark.parametrize("awaited", [False, True])
async def test_a_request_waits_for_its_own_workflow_alone(bed, recorder, awaited):
    """Not for another one that takes long, whether or not a request waits for that, too."""
    recorder.held = "unprofiled"
    recorder.released.clear()
    async with bed.running():
        await recorder.holds_up()
        if awaited:
            large = asyncio.create_task(bed.preparation.wait_for(*UNPROFILED))
            await asyncio.sleep(0)
        bed.documents.workflows.upsert(to_manifest(workflow("new", 500, "tenth")))
        new = ("default", "new", "tenth")
        await bed.preparation.wait_for(*new)
        assert bed.is_prepared(new)
        assert not bed.is_prepared(UNPROFILED)
        recorder.released.set()
        if awaited:
            await large


async def test_a_function_alone_and_an_unknown_workflow(bed):
    """A function is prepared when it is requested; what is unknown is not waited for."""
    async with bed.running():
        assert not bed.is_prepared(FUNCTION)
        await bed.preparation.wait_for(*FUNCTION)
        assert bed.is_prepared(FUNCTION)
        await bed.preparation.wait_for("default", "unknown", "s")


async def test_requests_of_one_workflow_wait_for_one_preparation(bed, recorder):
    """A request that is cancelled meanwhile does not end the wait of the others."""
    recorder.released.clear()
    async with bed.running():
        waiting = [asyncio.create_task(bed.preparation.wait_for(*CHAIN)) for _ in range(3)]
        await recorder.begun()
        waiting[0].cancel()
        recorder.released.set()
        await asyncio.gather(*waiting[1:])
        assert bed.is_prepared(CHAIN)
    assert recorder.names.count("chain") == 1


async def test_a_change_prepares_what_it_concerns(bed, recorder):
    """A profile: the workflows that use it. A workflow: itself. A cold start: nothing."""
    async with bed.running():
        await recorder.begun(3)
        bed.documents.profiles.upsert(to_manifest(profile("elastic", (20, 300), (90, 100))))
        await recorder.begun(2)
        bed.documents.profiles.upsert(to_manifest(profile("half", (50, 100), cold_start_ms=50)))
        bed.documents.workflows.upsert(to_manifest(workflow("new", 500, "tenth")))
        await recorder.begun()
        await bed.preparation.wait_for("default", "new", "tenth")
    assert sorted(recorder.names[3:5]) == ["chain", "lone-stage"]
    assert recorder.names[5:] == ["new"]


async def test_a_profile_changes_while_a_request_waits(bed, recorder):
    """The request waits for what is prepared from the profile that counts now."""
    recorder.held = "chain"
    recorder.released.clear()
    async with bed.running():
        await recorder.holds_up()
        waiting = asyncio.create_task(bed.preparation.wait_for(*CHAIN))
        await asyncio.sleep(0)
        bed.documents.profiles.upsert(to_manifest(profile("half", (20, 300), (50, 100))))
        assert not bed.is_prepared(CHAIN)
        recorder.released.set()
        await waiting
        assert bed.is_prepared(CHAIN)


async def test_a_workflow_deleted_before_its_turn_is_left_out(bed, recorder):
    """The thread finds no work for it."""
    recorder.released.clear()
    async with bed.running():
        await recorder.begun()
        bed.documents.workflows.upsert(to_manifest(gone := workflow("gone", 500, "tenth")))
        bed.documents.workflows.upsert(to_manifest(workflow("last", 500, "tenth")))
        bed.documents.workflows.delete(to_manifest(gone))
        recorder.released.set()
        await recorder.begun(3)
    assert sorted(recorder.names) == ["chain", "last", "lone-stage", "unprofiled"]


async def test_a_new_gpu_model_prepares_every_workflow(bed, recorder):
    """For the nodes that the fleet has now; an unchanged fleet prepares nothing."""
    async with bed.running():
        await recorder.begun(3)
        bed.preparation.follow_fleet()
        bed.fleet = FleetCapacity.of_models([MODEL, "another"])
        await bed.preparation.wait_for(*CHAIN)
        assert bed.is_prepared(CHAIN)
        await recorder.begun(3)
    assert sorted(recorder.names[3:]) == ["chain", "lone-stage", "unprofiled"]


async def test_the_fleet_changes_while_a_workflow_is_prepared(bed, recorder):
    """A request waits until its workflow is prepared for the nodes that the fleet has now."""
    recorder.held = "chain"
    recorder.released.clear()
    async with bed.running():
        await recorder.holds_up()
        bed.fleet = FleetCapacity.of_models([MODEL, "another"])
        waiting = asyncio.create_task(bed.preparation.wait_for(*CHAIN))
        await asyncio.sleep(0)
        recorder.released.set()
        await waiting
        assert bed.is_prepared(CHAIN)


async def test_without_a_thread_nothing_waits(bed, recorder):
    """Before it runs and after its end, planning prepares what it needs itself."""
    await bed.preparation.wait_for(*CHAIN)
    recorder.released.clear()
    async with bed.running():
        waiting = asyncio.create_task(bed.preparation.wait_for(*CHAIN))
        await recorder.begun()
    await waiting
    recorder.released.set()
    await bed.preparation.wait_for(*LONE)


async def test_an_error_ends_it(bed, recorder):
    """The error is that of its task, which the service reports; requests go on."""
    recorder.error = RuntimeError("a defect")
    async with bed.running() as task:
        await bed.preparation.wait_for(*CHAIN)
        with pytest.raises(RuntimeError, match="a defect"):
            await task


def test_only_the_request_itself_waits(recorder):
    """While one workflow is prepared, other calls are answered, with the documents as they are."""
    with embedded(**nodes_and_documents()) as extender, ThreadPoolExecutor(1) as pool:
        prepared = pod("tenth")
        assert extender.filter(prepared, "n1")["NodeNames"] == ["n1"]
        recorder.released.clear()
        changed = to_manifest(workflow("chain", 2_000, "half", "elastic"))
        extender.on_loop(extender.service.state.documents.workflows.upsert, changed)
        waiting = pool.submit(extender.filter, pod(workflow="chain", stage="half"), "n1")
        extender.get("/healthz")
        assert extender.filter(prepared, "n1")["NodeNames"] == ["n1"]
        assert not waiting.done()
        recorder.released.set()
        assert waiting.result(30)["NodeNames"] == ["n1"]
