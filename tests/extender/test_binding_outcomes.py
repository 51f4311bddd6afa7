"""Outcome of a Binding while the watch delivers events, and while it does not.

The Bindings go to an API server. What the watch hears of it, and when, is the tests' to say.
"""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from aiohttp import web

from scheduler.cluster.api import connect
from scheduler.cluster.link import Handlers, LiveCluster
from scheduler.cluster.resource import PODS
from scheduler.extender.state import State
from scheduler.metrics import Metrics
from scheduler.model.documents import Workflow, to_manifest
from scheduler.settings import Settings
from tests.cluster.api_server import ApiServer, hang, refuse, status
from tests.cluster.factories import kubeconfig_for
from tests.extender.bindings import Story
from tests.extender.factories import DOCUMENTS, node, pod
from tests.extender.harness import Clock

TTL_S = 75.0


@pytest.fixture
def wall() -> Clock:
    return Clock()


@pytest.fixture
def monotonic() -> Clock:
    return Clock(1_000.0)


@pytest.fixture
async def story(
    wall: Clock, monotonic: Clock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Story]:
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    settings = Settings(assumed_ttl_s=TTL_S)
    state = State(settings, Metrics(settings.prices), clock=wall, monotonic=monotonic)
    state.nodes.replace([node("n1"), node("n2")])
    state.documents.workflows.replace(to_manifest(d) for d in DOCUMENTS if isinstance(d, Workflow))
    state.documents.profiles.replace(
        to_manifest(d) for d in DOCUMENTS if not isinstance(d, Workflow)
    )
    server = ApiServer()
    await server.start()
    async with connect(kubeconfig_for(server.url, tmp_path), timeout_s=30.0) as api:
        yield Story(server, state, LiveCluster(api, Handlers(state.nodes, state.pods)))
    await server.stop()


def counted(story: Story) -> dict[str, float]:
    """Count the outcomes of bind calls: each has one."""
    [family] = [f for f in story.state.metrics.registry.collect() if f.name == "esg_bind"]
    totals = [s for s in family.samples if s.name == "esg_bind_total" and s.value]
    return {sample.labels["result"]: sample.value for sample in totals}


async def test_another_replica_was_first_and_the_watch_says_so(story: Story) -> None:
    """Our Binding is refused; the reservation that the watch has confirmed is not released."""
    pending = story.create()
    story.server.fault("POST", "binding", story.outrun(pending, "n2"))
    assert await story.bind(pending, "n1") == "the pod is bound to node n2"
    assert story.held(pending) == ("n2", "confirmed")
    assert story.offered() == ["n1"]


async def test_another_replica_was_first_and_the_watch_is_silent(story: Story) -> None:
    """The state read after our refusal is reserved until the watch shows another."""
    pending = story.create()
    story.server.fault("POST", "binding", story.before(lambda: story.others_bind(pending, "n2")))
    assert await story.bind(pending, "n1") == "the pod is bound to node n2"
    assert story.held(pending) == ("n2", "assumed")
    assert story.offered() == ["n1"]
    story.hears(pending)
    assert story.held(pending) == ("n2", "confirmed")


async def test_another_replica_was_first_on_the_same_node(story: Story, monotonic: Clock) -> None:
    """The watch has confirmed its grant; our later read does not make it an assumption again."""
    pending = story.create()
    story.server.fault("POST", "binding", story.outrun(pending, "n1", percent=60))
    assert await story.bind(pending, "n1") == ""
    assert story.held(pending) == ("n1", "confirmed")
    story.server.requests.clear()
    monotonic.now_s += TTL_S + 1
    await story.binder.reconcile_lost_bindings()
    assert story.server.requests == []


async def test_an_ordinary_pod_that_was_bound_before(story: Story) -> None:
    """It was never assumed; the reservation that the watch has confirmed remains."""
    pending = story.create(None)
    story.server.fault("POST", "binding", story.outrun(pending, "n2"))
    assert await story.bind(pending, "n1") == "the pod is bound to node n2"
    assert story.held(pending) == ("n2", "confirmed")


async def test_the_pod_ends_before_its_conflict_is_looked_into(story: Story) -> None:
    """The read is older than the watch: nothing is reserved for a pod that is gone."""
    pending = story.create()

    async def late(_request: web.Request) -> web.Response:
        seen = web.json_response(story.stored(pending))
        story.state.pods.delete(story.stored(pending))
        return seen

    story.server.fault("POST", "binding", story.before(lambda: story.others_bind(pending, "n2")))
    story.server.fault("GET", pending["metadata"]["name"], late)
    assert await story.bind(pending, "n1") == "the pod is bound to node n2"
    assert story.held(pending) is None
    assert story.offered() == ["n1", "n2"]


async def test_another_replica_is_faster_than_our_refusal(story: Story) -> None:
    """The pod was read unbound, and bound before the answer came: its reservation stays."""
    pending = story.create()

    story.server.fault("POST", "binding", refuse(409, "Conflict", "it has scheduling gates"))
    story.server.fault("GET", pending["metadata"]["name"], story.outdated(pending, "n2"))
    assert await story.bind(pending, "n1") == "it has scheduling gates"
    assert story.held(pending) == ("n2", "confirmed")


async def test_another_replica_is_faster_than_our_first_read(story: Story) -> None:
    """The watch delivers the pod for the first time together with its Binding elsewhere."""
    pending = story.create(observed=False)
    story.server.fault("GET", pending["metadata"]["name"], story.outdated(pending, "n2"))
    assert await story.bind(pending, "n1") == (
        "node n1: the pod has a reservation on node n2: its Binding is in progress or done"
    )
    assert story.held(pending) == ("n2", "confirmed")
    assert story.server.seen("POST", "binding") == []


async def test_an_heir_of_the_name_is_bound(story: Story) -> None:
    """The read shows another pod: ours can never be bound, and its reservation is released."""
    pending = story.create()
    name = pending["metadata"]["name"]

    def recreate() -> None:
        story.server.remove(PODS, name, "default")
        heir = story.server.put(PODS, pod("whole", name=name))
        story.others_bind(heir, "n2")
        story.hears(heir)

    story.server.fault("POST", "binding", story.before(recreate))
    assert "recreated with another UID" in await story.bind(pending, "n1")
    assert story.held(pending) is None
    assert story.offered() == ["n1"]


async def test_nobody_can_say_who_was_first(story: Story) -> None:
    """A conflict that cannot be read keeps its share until a later call has read the pod."""
    pending = story.create()
    name = pending["metadata"]["name"]
    story.others_bind(pending, "n1")
    story.server.fault("GET", name, refuse(500, "InternalError", "etcd"), times=20)
    with story.hurried():
        assert await story.bind(pending, "n1")
    assert story.held(pending) == ("n1", "assumed")
    assert story.offered() == ["n2"]
    assert counted(story) == {"unknown": 1}
    story.server.forgive()
    assert await story.bind(pending, "n1") == ""
    assert counted(story) == {"unknown": 1, "repeated": 1}


async def test_a_refused_binding_frees_its_share(story: Story) -> None:
    """The assumed reservation is released at once where the watch delivered nothing else."""
    pending = story.create()
    story.server.fault("POST", "binding", refuse(403, "Forbidden", "no"))
    assert "RBAC" in await story.bind(pending, "n1")
    assert story.held(pending) is None
    assert story.offered("whole") == ["n1", "n2"]
    assert counted(story) == {"refused": 1}


async def test_a_late_binding_lands_while_it_is_asked_about(story: Story, monotonic: Clock) -> None:
    """The pod was read unbound, but the watch has shown more since: its reservation stays."""
    pending = story.create()
    await story.lose(pending, "n1")

    story.server.fault("GET", pending["metadata"]["name"], story.outdated(pending, "n1"))
    monotonic.now_s += TTL_S + 1
    await story.binder.reconcile_lost_bindings()
    assert story.held(pending) == ("n1", "confirmed")
    assert story.offered() == ["n2"]


@pytest.mark.parametrize("step_s", [-86_400.0, 86_400.0])
async def test_a_clock_that_is_set(
    story: Story, wall: Clock, monotonic: Clock, step_s: float
) -> None:
    """An assumption lasts its time, whatever happens to the time of day."""
    pending = story.create()
    await story.lose(pending, "n1")
    wall.now_s += step_s
    monotonic.now_s += TTL_S - 1
    await story.binder.reconcile_lost_bindings()
    assert story.held(pending) == ("n1", "assumed")
    assert story.server.requests == []
    monotonic.now_s += 2
    await story.binder.reconcile_lost_bindings()
    assert story.held(pending) is None


@pytest.mark.parametrize("end", ["gone", "made anew", "ended"])
async def test_a_pod_that_is_no_more(story: Story, monotonic: Clock, end: str) -> None:
    """Its Binding was lost, and its end is read, not delivered: nothing stays reserved."""
    pending = story.create()
    name = pending["metadata"]["name"]
    await story.lose(pending, "n1")
    if end == "ended":
        story.others_bind(pending, "n1")
        ended = {**story.stored(pending), "status": {"phase": "Succeeded"}}
        story.server.put(PODS, ended)
    else:
        story.server.remove(PODS, name, "default")
    if end == "made anew":
        story.server.put(PODS, pod("whole", name=name))
    monotonic.now_s += TTL_S + 1
    await story.binder.reconcile_lost_bindings()
    assert story.held(pending) is None
    assert story.offered("whole") == ["n1", "n2"]


async def test_a_later_call_asks_first(story: Story) -> None:
    """While the Binding may have arrived nothing else is tried; a deleted pod needs nothing."""
    pending = story.create()
    await story.lose(pending, "n1")
    assert "may have arrived" in await story.bind(pending, "n2")
    assert story.held(pending) == ("n1", "assumed")
    story.server.remove(PODS, pending["metadata"]["name"], "default")
    assert "not found" in await story.bind(pending, "n2")
    assert story.held(pending) is None


async def test_a_binding_that_landed_unseen(story: Story, monotonic: Clock) -> None:
    """It is read and reserved, and read again only after the same time."""
    pending = story.create()
    await story.lose(pending, "n1")
    story.others_bind(pending, "n2")
    monotonic.now_s += TTL_S + 1
    await story.binder.reconcile_lost_bindings()
    await story.binder.reconcile_lost_bindings()
    assert story.held(pending) == ("n2", "assumed")
    assert len(story.server.seen("GET", pending["metadata"]["name"])) == 1
    monotonic.now_s += TTL_S + 1
    await story.binder.reconcile_lost_bindings()
    assert len(story.server.seen("GET", pending["metadata"]["name"])) == 2


async def test_a_binding_that_takes_longer_than_an_assumption(
    story: Story, monotonic: Clock
) -> None:
    """While its call is in progress a Binding is not lost, however long that may be."""
    pending = story.create()

    async def ask(_request: web.Request) -> None:
        monotonic.now_s += TTL_S + 1
        await story.binder.reconcile_lost_bindings()

    story.server.fault("POST", "binding", ask)
    assert await story.bind(pending, "n1") == ""
    assert story.held(pending) == ("n1", "assumed")


async def test_one_answer_that_stays_away_holds_up_no_other(story: Story, monotonic: Clock) -> None:
    """Lost Bindings are read concurrently; the reservation of an unreadable pod stays."""
    hidden, visible = story.create(), story.create()
    await story.lose(hidden, "n1")
    await story.lose(visible, "n2")

    async def until_the_other_is_asked_about(_request: web.Request) -> None:
        await story.server.until(
            lambda: bool(story.server.seen("GET", visible["metadata"]["name"]))
        )

    story.server.fault("GET", hidden["metadata"]["name"], until_the_other_is_asked_about)
    monotonic.now_s += TTL_S + 1
    await story.binder.reconcile_lost_bindings()
    assert (story.held(hidden), story.held(visible)) == (None, None)


@pytest.mark.parametrize("lost_before", [False, True])
async def test_a_bind_call_ends_in_its_time(story: Story, lost_before: bool) -> None:
    """A read waits no longer than a Binding would."""
    pending = story.create(observed=lost_before)
    if lost_before:
        await story.lose(pending, "n1")
    story.server.fault("GET", pending["metadata"]["name"], hang)
    with story.hurried():
        async with asyncio.timeout(20):
            assert await story.bind(pending, "n1")
    assert story.server.seen("POST", "binding") == []


async def test_settling_ends_in_its_time(story: Story, monotonic: Clock) -> None:
    """A read without an answer is not waited for; the reservation stays."""
    pending = story.create()
    await story.lose(pending, "n1")
    story.server.fault("GET", pending["metadata"]["name"], hang)
    monotonic.now_s += TTL_S + 1
    with story.hurried():
        async with asyncio.timeout(20):
            await story.binder.reconcile_lost_bindings()
    assert story.held(pending) == ("n1", "assumed")


@pytest.mark.parametrize("function", ["whole", None])
async def test_nothing_is_bound_after_the_time_of_the_call(
    story: Story, monotonic: Clock, function: str | None
) -> None:
    """The reads took all the time: kube-scheduler has given up, so no Binding follows."""
    pending = story.create(function, observed=False)

    def take_long() -> None:
        monotonic.now_s += 5.0

    story.server.fault("GET", pending["metadata"]["name"], story.before(take_long))
    errors = await story.bind(pending, "n1")
    assert errors.startswith("the 3 s for a bind call (ESG_API_TIMEOUT_S) were over before")
    assert story.held(pending) is None
    assert story.server.seen("POST", "binding") == []
    assert await story.bind(pending, "n1") == ""


async def test_a_call_that_waited_for_another(story: Story, monotonic: Clock) -> None:
    """The time counts from the start of the call: a later Binding would surprise its client."""
    pending = story.create()

    async def take_long(_request: web.Request) -> web.Response:
        monotonic.now_s += 5.0
        return status(403, "Forbidden", "no")

    story.server.fault("POST", "binding", take_long)
    errors = await asyncio.gather(story.bind(pending, "n1"), story.bind(pending, "n1"))
    assert "RBAC" in errors[0]
    assert "were over before a Binding was sent" in errors[1]
    assert len(story.server.seen("POST", "binding")) == 1
