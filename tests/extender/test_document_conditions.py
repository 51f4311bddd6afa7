"""Conditions of Workflows and FunctionProfiles, by the documents and the nodes."""

import asyncio
from contextlib import AsyncExitStack, asynccontextmanager

import pytest

from scheduler.cluster.api import connect
from scheduler.cluster.link import LiveCluster
from scheduler.cluster.resource import FUNCTION_PROFILES, WORKFLOWS
from scheduler.extender.document_conditions import DocumentConditions
from scheduler.model.documents import to_manifest
from scheduler.planning.service import PlanningService
from scheduler.settings import Settings
from tests.cluster.api_server import ApiServer
from tests.cluster.factories import kubeconfig_for
from tests.extender.embedded_cluster import EmbeddedCluster
from tests.extender.factories import node, profile, workflow
from tests.raw_documents import PROFILE, WORKFLOW, changed
from tests.waiting import until


class Statuses:
    """Records what would be written, by kind and name."""

    def __init__(self):
        self.last = {}
        self.comparisons = 0
        self.is_settled = False

    async def write_all(self, statuses):
        self.comparisons += 1
        self.last = {(d.resource.kind, d.name): d.conditions for d in statuses}
        return self.is_settled


class Lease:
    """A Lease that this process has or not."""

    def __init__(self):
        self.is_own = True

    async def acquire(self):
        return self.is_own

    def is_valid(self):
        return self.is_own


class Bed:
    """A planning service over an embedded cluster, and the conditions that it writes."""

    def __init__(self, nodes):
        self.link = EmbeddedCluster(nodes)
        self.link.statuses = self.statuses = Statuses()
        self.planning = PlanningService(Settings(), self.link)
        self.conditions = DocumentConditions(self.planning)

    def put(self, *documents):
        """Add or change documents, or raw ones."""
        store = self.planning.state.documents
        for document in documents:
            raw = document if isinstance(document, dict) else to_manifest(document)
            is_workflow = "stages" in raw["spec"]
            (store.workflows if is_workflow else store.profiles).upsert(raw)

    async def written(self, name, kind="Workflow"):
        """Write, and return status and reason of each condition of a document."""
        await self.conditions.write()
        states = self.statuses.last[kind, name]
        return {condition: (state.status, state.reason) for condition, state in states.items()}

    async def until(self, name, condition, expected):
        """Write until a condition of a Workflow has this status and reason; return its message."""
        async with asyncio.timeout(60):
            while (await self.written(name)).get(condition) != expected:  # noqa: ASYNC110 - a thread
                await asyncio.sleep(0.01)
        return self.statuses.last["Workflow", name][condition].message


@asynccontextmanager
async def bed(*nodes):
    """Run the service until it is ready."""
    whole = Bed(nodes)
    async with whole.planning.running():
        await until(lambda: not whole.planning.not_ready_reason())
        yield whole


CYCLE = [{"name": n, "function": "f", "after": [b]} for n, b in (("a", "b"), ("b", "a"))]
UNKNOWN = [{"name": "a", "function": "f", "after": ["z"]}]


@pytest.mark.parametrize(
    ("stages", "reason", "text"),
    [
        (CYCLE, "Cycle", "spec: stages: a cycle, a after b after a"),
        (UNKNOWN, "UnknownStage", "'a' comes after 'z'"),
        ([], "Invalid", "spec.stages"),
    ],
)
async def test_an_invalid_workflow_says_why(stages, reason, text):
    """The reason of a fault is one word, and the message is that of `esg check`."""
    async with bed(node("n1")) as world:
        world.put(changed(WORKFLOW, "spec.stages", stages))
        states = await world.written("w")
        assert states == {
            "Accepted": ("False", reason),
            "Attainable": ("Unknown", "NotAccepted"),
        }
        assert text in world.statuses.last["Workflow", "w"]["Accepted"].message


async def test_a_workflow_without_profiles_is_mended_by_them():
    """The message names the missing ones; with them the SLO is compared with the nodes."""
    async with bed(node("n1")) as world:
        world.put(workflow("w", 1_000, "half", "elastic"), profile("half", (50, 100)))
        assert (await world.written("w"))["Accepted"] == ("False", "MissingProfile")
        assert "elastic" in world.statuses.last["Workflow", "w"]["Accepted"].message

        world.put(profile("elastic", (20, 400), (90, 100)))
        message = await world.until("w", "Attainable", ("True", "SloMet"))
        assert (await world.written("w"))["Accepted"] == ("True", "Accepted")
        assert "take 200 ms" in message
        assert "of 1000 ms, on NVIDIA A100-SXM4-80GB" in message


async def test_settled_documents_are_not_compared_again():
    """Only a report of a document or of other nodes is a reason to compare them all."""
    async with bed(node("n1")) as world:
        world.put(workflow("w", 1_000, "half"), profile("half", (50, 100)))
        await world.until("w", "Attainable", ("True", "SloMet"))
        await world.conditions.write()
        before = world.statuses.comparisons
        await world.conditions.write()
        assert world.statuses.comparisons == before + 1, "a write is not reported yet"

        world.statuses.is_settled = True
        await world.conditions.write()
        await world.conditions.write()
        await world.conditions.write()
        assert world.statuses.comparisons == before + 2

        world.put(workflow("w", 50, "half"))
        await world.until("w", "Attainable", ("False", "SloTooShort"))


@pytest.mark.parametrize(
    ("slo_ms", "reason", "text"),
    [
        (50, "SloTooShort", "no configuration meets 50 ms; the fastest takes 100 ms"),
        (100, "MarginTooLarge", "100 ms are too few for an objective of 0.99"),
    ],
)
async def test_an_slo_that_cannot_be_met(slo_ms, reason, text):
    """Latency and margin are different reasons, and each message has its numbers."""
    configuration = changed(PROFILE, "spec.gpus.0.model", "NVIDIA A100-SXM4-80GB")
    configuration = changed(configuration, "spec.gpus.0.configurations.0.p95Ms", 140)
    async with bed(node("n1")) as world:
        world.put(configuration, workflow("w", slo_ms, "f"))
        assert text in await world.until("w", "Attainable", ("False", reason))


async def test_an_slo_without_nodes_is_unknown(monkeypatch):
    """Without a GPU nothing is said about the SLO, and a node that is too small is a reason."""
    monkeypatch.setattr("scheduler.planning.service.UPKEEP_S", 0.01)
    async with bed() as world:
        world.put(workflow("w", 500, "half"), profile("half", (50, 100)))
        assert (await world.written("w"))["Attainable"] == ("Unknown", "NoGpuNodes")
        world.planning.state.nodes.upsert(node("small", cpu="500m"))
        message = await world.until("w", "Attainable", ("False", "NoNode"))
        assert "half" in message


async def test_a_profile_says_if_a_workflow_uses_it():
    """Used names Workflows; an invalid profile is not accepted, and is missed by its Workflow."""
    async with bed(node("n1")) as world:
        world.put(profile("half", (50, 100)))
        assert await world.written("half", "FunctionProfile") == {
            "Accepted": ("True", "Accepted"),
            "Used": ("False", "Unused"),
        }
        world.put(workflow("w", 500, "half"))
        states = await world.written("half", "FunctionProfile")
        assert states["Used"] == ("True", "InUse")
        assert "default/w" in world.statuses.last["FunctionProfile", "half"]["Used"].message

        world.put(changed(changed(PROFILE, "metadata.name", "half"), "spec.gpus", []))
        states = await world.written("half", "FunctionProfile")
        assert states["Accepted"] == ("False", "Invalid")
        assert (await world.written("w"))["Accepted"] == ("False", "MissingProfile")


async def test_one_process_writes():
    """A process without the Lease writes nothing, nor one that loses it between two documents."""
    async with bed(node("n1")) as world:
        world.link.status_lease = lease = Lease()
        lease.is_own = False
        world.put(profile("half", (50, 100)), profile("whole", (100, 100)))
        await world.conditions.write()
        assert world.statuses.last == {}

        lease.is_own = True

        async def lose(statuses):
            written = []
            for status in statuses:
                written.append(status.name)
                lease.is_own = False
            world.statuses.last = written

        world.statuses.write_all = lose
        await world.conditions.write()
        assert world.statuses.last == ["half"]


@pytest.mark.usefixtures("loopback_http")
async def test_two_processes_write_each_change_once(tmp_path):
    """One of two replicas over an API server writes; after its end the other one does."""
    server = ApiServer()
    await server.start()
    for resource, raw in ((FUNCTION_PROFILES, PROFILE), (WORKFLOWS, WORKFLOW)):
        server.put(resource, raw)
    kubeconfig = kubeconfig_for(server.url, tmp_path)
    async with AsyncExitStack() as stack:
        stack.push_async_callback(server.stop)
        writers, plannings = [], []
        for _ in range(2):
            api = await stack.enter_async_context(connect(kubeconfig))
            planning = PlanningService(Settings(), LiveCluster(api, lease_namespace="esg"))
            await stack.enter_async_context(planning.running())
            await until(lambda planning=planning: not planning.not_ready_reason())
            plannings.append(planning)
            writers.append(DocumentConditions(planning))
        for _ in range(3):
            await asyncio.gather(*(writer.write() for writer in writers))
        assert len(server.seen("PATCH", "/status")) == 2
        await writers[0].release()
        server.remove(FUNCTION_PROFILES, "f")
        await until(lambda: "f" not in plannings[1].state.documents.catalogue.profiles)
        await writers[1].write()
        assert len(server.seen("PATCH", "/status")) == 3
        [accepted, _] = server.store.get(WORKFLOWS.path, ("default", "w"))["status"]["conditions"]
        assert (accepted["status"], accepted["reason"]) == ("False", "MissingProfile")


async def test_nothing_is_written_by_an_old_cache():
    """A service that is not ready writes nothing."""
    async with bed(node("n1")) as world:
        world.put(profile("half", (50, 100)))
        world.planning.fatal_error = "a task died"
        await world.conditions.write()
        assert world.statuses.last == {}
