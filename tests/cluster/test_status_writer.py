"""Writer of statuses: one write for a change, over the version that was read."""

import asyncio

import pytest
from aiohttp import web

from scheduler.cluster.resource import WORKFLOWS
from scheduler.cluster.status_writer import FIELDS_S, RETRY_S, DesiredStatus, StatusWriter
from scheduler.model.status import ACCEPTED, ConditionState, ObservedDocument
from tests.raw_documents import WORKFLOW

MISSING = ConditionState("False", "MissingProfile", "no FunctionProfile of f")
FOREIGN = {
    "type": "Ready",
    "status": "True",
    "reason": "Served",
    "message": "",
    "observedGeneration": 1,
    "lastTransitionTime": "2026-01-01T00:00:00Z",
}


class Bed:
    """A Workflow on an API server, and a writer of its status.

    Attributes:
        now_s: time of all clocks.
        events: type, reason and message of the Events.
    """

    def __init__(self, api, server):
        self.now_s = 1_000.0
        self.events = []
        self.server = server
        self.writer = self.new_writer(api)
        metadata = {**WORKFLOW["metadata"], "generation": 1}
        server.put(WORKFLOWS, {**WORKFLOW, "metadata": metadata})

    def new_writer(self, api):
        return StatusWriter(
            api,
            lambda _, *, type, reason, message: self.events.append((type, reason, message)),  # noqa: A006
            monotonic=lambda: self.now_s,
            wall_clock=lambda: self.now_s,
        )

    def stored(self):
        return self.server.store.get(WORKFLOWS.path, ("default", "w"))

    def observed(self):
        return ObservedDocument.of(self.stored())

    def conditions(self):
        return {c["type"]: c for c in self.stored()["status"]["conditions"]}

    def patches(self):
        return len(self.server.seen("PATCH", "/workflows/w/status"))

    async def write(self, state, *, observed=None, **fields):
        desired = DesiredStatus(
            resource=WORKFLOWS,
            namespace="default",
            name="w",
            observed=observed or self.observed(),
            conditions={"Accepted": state},
            fields=fields,
        )
        await self.writer.write_all([desired])


@pytest.fixture
def bed(api, server):
    return Bed(api, server)


async def test_a_change_is_one_write(bed, api):
    """Nothing that the document has already is written again, by a new process neither."""
    await bed.write(ACCEPTED)
    await bed.write(ACCEPTED)
    bed.writer = bed.new_writer(api)
    await bed.write(ACCEPTED)
    assert bed.patches() == 1
    condition = bed.conditions()["Accepted"]
    assert (condition["status"], condition["reason"]) == ("True", "Accepted")
    assert condition["observedGeneration"] == 1


async def test_the_time_is_that_of_a_change_of_the_state(bed):
    """Another message has the time of the transition before it."""
    await bed.write(MISSING)
    first = bed.conditions()["Accepted"]["lastTransitionTime"]
    bed.now_s += 60
    await bed.write(ConditionState("False", "MissingProfile", "no FunctionProfile of f, g"))
    assert bed.conditions()["Accepted"]["message"].endswith("g")
    assert bed.conditions()["Accepted"]["lastTransitionTime"] == first
    await bed.write(ACCEPTED)
    assert bed.conditions()["Accepted"]["lastTransitionTime"] != first


async def test_a_new_spec_is_judged_again(bed):
    """The same state of another generation is written, so that `kubectl wait` ends."""
    await bed.write(ACCEPTED)
    stored = bed.stored()
    stored = {**stored, "metadata": {**stored["metadata"], "generation": 2}}
    bed.server.put(WORKFLOWS, stored)
    await bed.write(ACCEPTED)
    assert bed.conditions()["Accepted"]["observedGeneration"] == 2


async def test_conditions_of_others_stay(bed):
    """A write keeps the conditions that another program has written."""
    bed.server.put(WORKFLOWS, {**bed.stored(), "status": {"conditions": [FOREIGN]}})
    await bed.write(ACCEPTED)
    assert bed.conditions().keys() == {"Accepted", "Ready"}
    assert bed.conditions()["Ready"] == FOREIGN


async def test_a_write_over_an_older_version_changes_nothing(bed):
    """Somebody else has written meanwhile: the server refuses the write, and the next one has both.

    The refusal is no fault: nothing waits.
    """
    before = bed.observed()
    bed.server.put(WORKFLOWS, {**bed.stored(), "status": {"conditions": [FOREIGN]}})
    await bed.write(ACCEPTED, observed=before)
    assert bed.conditions().keys() == {"Ready"}
    await bed.write(ACCEPTED)
    assert bed.conditions().keys() == {"Accepted", "Ready"}


async def test_nothing_is_written_before_the_watch_reports_the_last_write(bed):
    """A late watch causes no second write of the same change."""
    before = bed.observed()
    await bed.write(ACCEPTED, observed=before)
    await bed.write(ACCEPTED, observed=before)
    assert bed.patches() == 1


async def test_numbers_alone_are_written_seldom(bed):
    """Numbers of pods change with the load; a condition takes them along at once."""
    await bed.write(ACCEPTED, replicas=1)
    await bed.write(ACCEPTED, replicas=2)
    assert bed.stored()["status"]["replicas"] == 1
    await bed.write(MISSING, replicas=3)
    assert bed.stored()["status"]["replicas"] == 3
    await bed.write(MISSING, replicas=4)
    bed.now_s += FIELDS_S
    await bed.write(MISSING, replicas=4)
    assert bed.stored()["status"]["replicas"] == 4
    assert bed.patches() == 3


async def test_a_refused_write_waits(bed):
    """A document without the subresource, or a missing right, is tried again after a minute."""

    async def forbid(_):
        return web.json_response({"reason": "Forbidden", "message": "no"}, status=403)

    bed.server.fault("PATCH", "/workflows/w/status", forbid)
    await bed.write(ACCEPTED)
    await bed.write(ACCEPTED)
    assert bed.patches() == 1
    bed.now_s += RETRY_S
    await bed.write(ACCEPTED)
    assert bed.conditions()["Accepted"]["status"] == "True"


async def test_an_event_for_each_transition(bed):
    """False is a warning with its reason; true is an Event only after false."""
    await bed.write(ACCEPTED)
    assert bed.events == []
    await bed.write(MISSING)
    await bed.write(ConditionState("False", "MissingProfile", "another text"))
    await bed.write(ACCEPTED)
    assert bed.events == [
        ("Warning", "MissingProfile", "Accepted: no FunctionProfile of f"),
        ("Normal", "Accepted", "Accepted"),
    ]


async def test_other_tasks_run_between_documents(bed):
    """A comparison of many documents does not block the event loop."""
    await bed.write(ACCEPTED)
    turns = 0

    async def count():
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    counting = asyncio.create_task(count())
    desired = DesiredStatus(
        resource=WORKFLOWS,
        namespace="default",
        name="w",
        observed=bed.observed(),
        conditions={"Accepted": ACCEPTED},
        fields={},
    )
    await bed.writer.write_all([desired] * 1_000)
    counting.cancel()
    assert turns >= 40
