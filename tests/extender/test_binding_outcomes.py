"""Outcome of a Binding while the watch delivers events, and while it does not.

The Bindings go to an API server. What the watch hears of it, and when, is the tests' to say.
"""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from scheduler.cluster.api import connect
from scheduler.cluster.link import Handlers, LiveCluster
from scheduler.cluster.resource import PODS, trim_pod
from scheduler.extender.state import State
from scheduler.metrics import Metrics
from scheduler.model.documents import Workflow, to_manifest
from scheduler.settings import Settings
from tests.cluster.api_server import ApiServer, hang, refuse, status
from tests.cluster.factories import kubeconfig_for
from tests.extender.bindings import BindingHarness
from tests.extender.factories import DOCUMENTS, node, pod
from tests.extender.harness import Clock

TTL_S = 75.0
Raw = dict[str, Any]


@pytest.fixture
def wall() -> Clock:
    return Clock()


@pytest.fixture
def monotonic() -> Clock:
    return Clock(1_000.0)


@pytest.fixture
async def harness(
    wall: Clock, monotonic: Clock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[BindingHarness]:
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
        yield BindingHarness(server, state, LiveCluster(api, Handlers(state.nodes, state.pods)))
    await server.stop()


def counted(harness: BindingHarness) -> dict[str, float]:
    """Count the outcomes of bind calls: each has one."""
    [family] = [f for f in harness.state.metrics.registry.collect() if f.name == "esg_bind"]
    totals = [s for s in family.samples if s.name == "esg_bind_total" and s.value]
    return {sample.labels["result"]: sample.value for sample in totals}


async def test_another_replica_was_first_and_the_watch_says_so(harness: BindingHarness) -> None:
    """Our Binding is refused; the reservation that the watch has confirmed is not released."""
    pending = harness.create()
    harness.server.fault("POST", "binding", harness.outrun(pending, "n2"))
    assert await harness.bind(pending, "n1") == "the pod is bound to node n2"
    assert harness.held(pending) == ("n2", "confirmed")
    assert harness.offered() == ["n1"]


async def test_another_replica_was_first_and_the_watch_is_silent(harness: BindingHarness) -> None:
    """The state read after our refusal is reserved until the watch shows another."""
    pending = harness.create()
    harness.server.fault(
        "POST", "binding", harness.before(lambda: harness.others_bind(pending, "n2"))
    )
    assert await harness.bind(pending, "n1") == "the pod is bound to node n2"
    assert harness.held(pending) == ("n2", "assumed")
    assert harness.offered() == ["n1"]
    harness.hears(pending)
    assert harness.held(pending) == ("n2", "confirmed")


async def test_another_replica_was_first_on_the_same_node(
    harness: BindingHarness, monotonic: Clock
) -> None:
    """The watch has confirmed its grant; our later read does not make it an assumption again."""
    pending = harness.create()
    harness.server.fault("POST", "binding", harness.outrun(pending, "n1", percent=60))
    assert await harness.bind(pending, "n1") == ""
    assert harness.held(pending) == ("n1", "confirmed")
    harness.server.requests.clear()
    monotonic.now_s += TTL_S + 1
    await harness.binder.reconcile_lost_bindings()
    assert harness.server.requests == []


async def test_an_ordinary_pod_that_was_bound_before(harness: BindingHarness) -> None:
    """It was never assumed; the reservation that the watch has confirmed remains."""
    pending = harness.create(None)
    harness.server.fault("POST", "binding", harness.outrun(pending, "n2"))
    assert await harness.bind(pending, "n1") == "the pod is bound to node n2"
    assert harness.held(pending) == ("n2", "confirmed")


async def test_the_pod_ends_before_its_conflict_is_looked_into(harness: BindingHarness) -> None:
    """The read is older than the watch: nothing is reserved for a pod that is gone."""
    pending = harness.create()

    async def late(_request: web.Request) -> web.Response:
        seen = web.json_response(harness.stored(pending))
        harness.state.pods.delete(harness.stored(pending))
        return seen

    harness.server.fault(
        "POST", "binding", harness.before(lambda: harness.others_bind(pending, "n2"))
    )
    harness.server.fault("GET", pending["metadata"]["name"], late)
    assert await harness.bind(pending, "n1") == "the pod is bound to node n2"
    assert harness.held(pending) is None
    assert harness.offered() == ["n1", "n2"]


async def test_another_replica_is_faster_than_our_refusal(harness: BindingHarness) -> None:
    """The pod was read unbound, and bound before the answer came: its reservation stays."""
    pending = harness.create()

    harness.server.fault("POST", "binding", refuse(409, "Conflict", "it has scheduling gates"))
    harness.server.fault("GET", pending["metadata"]["name"], harness.outdated(pending, "n2"))
    assert await harness.bind(pending, "n1") == "it has scheduling gates"
    assert harness.held(pending) == ("n2", "confirmed")


async def test_another_replica_is_faster_than_our_first_read(harness: BindingHarness) -> None:
    """The watch delivers the pod for the first time together with its Binding elsewhere."""
    pending = harness.create(observed=False)
    harness.server.fault("GET", pending["metadata"]["name"], harness.outdated(pending, "n2"))
    assert await harness.bind(pending, "n1") == (
        "node n1: the pod has a reservation on node n2: its Binding is in progress or done"
    )
    assert harness.held(pending) == ("n2", "confirmed")
    assert harness.server.seen("POST", "binding") == []


async def test_an_heir_of_the_name_is_bound(harness: BindingHarness) -> None:
    """The read shows another pod: ours can never be bound, and its reservation is released."""
    pending = harness.create()
    name = pending["metadata"]["name"]

    def recreate() -> None:
        harness.server.remove(PODS, name, "default")
        heir = harness.server.put(PODS, pod("whole", name=name))
        harness.others_bind(heir, "n2")
        harness.hears(heir)

    harness.server.fault("POST", "binding", harness.before(recreate))
    assert "recreated with another UID" in await harness.bind(pending, "n1")
    assert harness.held(pending) is None
    assert harness.offered() == ["n1"]


async def test_nobody_can_say_who_was_first(harness: BindingHarness) -> None:
    """A conflict that cannot be read keeps its share until a later call has read the pod."""
    pending = harness.create()
    name = pending["metadata"]["name"]
    harness.others_bind(pending, "n1")
    harness.server.fault("GET", name, refuse(500, "InternalError", "etcd"), times=20)
    with harness.hurried():
        assert await harness.bind(pending, "n1")
    assert harness.held(pending) == ("n1", "assumed")
    assert harness.offered() == ["n2"]
    assert counted(harness) == {"unknown": 1}
    harness.server.forgive()
    assert await harness.bind(pending, "n1") == ""
    assert counted(harness) == {"unknown": 1, "repeated": 1}


async def test_a_refused_binding_frees_its_share(harness: BindingHarness) -> None:
    """The assumed reservation is released at once where the watch delivered nothing else."""
    pending = harness.create()
    harness.server.fault("POST", "binding", refuse(403, "Forbidden", "no"))
    assert "RBAC" in await harness.bind(pending, "n1")
    assert harness.held(pending) is None
    assert harness.offered("whole") == ["n1", "n2"]
    assert counted(harness) == {"refused": 1}


async def test_a_late_binding_lands_before_it_is_made_void(harness: BindingHarness) -> None:
    """The write to the pod's status conflicts, and the watch has shown the pod bound."""
    pending = harness.create()
    await harness.lose(pending, "n1")

    harness.server.fault(
        "PATCH", f"{pending['metadata']['name']}/status", harness.outrun(pending, "n1")
    )
    await harness.binder.reconcile_lost_bindings()
    assert harness.held(pending) == ("n1", "confirmed")
    assert harness.offered() == ["n2"]


@pytest.mark.parametrize("step_s", [-86_400.0, 86_400.0])
async def test_a_clock_that_is_set(
    harness: BindingHarness, wall: Clock, monotonic: Clock, step_s: float
) -> None:
    """A Binding that no watch shows is read after its time, whatever happens to the time of day."""
    pending = harness.create()
    assert await harness.bind(pending, "n1") == ""
    harness.server.requests.clear()
    wall.now_s += step_s
    monotonic.now_s += TTL_S - 1
    await harness.binder.reconcile_lost_bindings()
    assert harness.server.requests == []
    monotonic.now_s += 2
    await harness.binder.reconcile_lost_bindings()
    assert len(harness.server.requests) == 1
    assert harness.held(pending) == ("n1", "assumed")


@pytest.mark.parametrize("end", ["gone", "made anew", "ended"])
async def test_a_pod_that_is_no_more(harness: BindingHarness, monotonic: Clock, end: str) -> None:
    """Its Binding was lost, and its end is read, not delivered: nothing stays reserved."""
    pending = harness.create()
    name = pending["metadata"]["name"]
    await harness.lose(pending, "n1")
    if end == "ended":
        harness.others_bind(pending, "n1")
        ended = {**harness.stored(pending), "status": {"phase": "Succeeded"}}
        harness.server.put(PODS, ended)
    else:
        harness.server.remove(PODS, name, "default")
    if end == "made anew":
        harness.server.put(PODS, pod("whole", name=name))
    monotonic.now_s += TTL_S + 1
    await harness.binder.reconcile_lost_bindings()
    assert harness.held(pending) is None
    assert harness.offered("whole") == ["n1", "n2"]


async def test_a_later_call_makes_the_lost_binding_void(harness: BindingHarness) -> None:
    """The pod is bound to another node at once, and the lost Binding arrives in vain."""
    pending = harness.create()
    await harness.lose(pending, "n1")
    lost = str(pending["metadata"]["resourceVersion"])
    assert await harness.bind(pending, "n2") == ""
    assert harness.held(pending) == ("n2", "assumed")
    late = {"metadata": {"name": pending["metadata"]["name"], "resourceVersion": lost}}
    answer = harness.server.bind("default", pending["metadata"]["name"], late)
    assert answer.status == 409


async def test_a_later_call_that_cannot_make_it_void(harness: BindingHarness) -> None:
    """While the Binding may arrive nothing else is tried; a deleted pod needs nothing."""
    pending = harness.create()
    await harness.lose(pending, "n1")
    name = pending["metadata"]["name"]
    harness.server.fault("PATCH", f"{name}/status", refuse(503, "ServiceUnavailable", "busy"))
    assert "may still arrive" in await harness.bind(pending, "n2")
    assert harness.held(pending) == ("n1", "assumed")
    harness.server.remove(PODS, name, "default")
    assert "not found" in await harness.bind(pending, "n2")
    assert harness.held(pending) is None


async def test_a_binding_that_landed_unseen(harness: BindingHarness, monotonic: Clock) -> None:
    """It is read and reserved, and read again only after the same time."""
    pending = harness.create()
    await harness.lose(pending, "n1")
    harness.others_bind(pending, "n2")
    monotonic.now_s += TTL_S + 1
    await harness.binder.reconcile_lost_bindings()
    await harness.binder.reconcile_lost_bindings()
    assert harness.held(pending) == ("n2", "assumed")
    assert len(harness.server.seen("GET", pending["metadata"]["name"])) == 1
    monotonic.now_s += TTL_S + 1
    await harness.binder.reconcile_lost_bindings()
    assert len(harness.server.seen("GET", pending["metadata"]["name"])) == 2


async def test_a_binding_that_takes_longer_than_an_assumption(
    harness: BindingHarness, monotonic: Clock
) -> None:
    """While its call is in progress a Binding is not lost, however long that may be."""
    pending = harness.create()

    async def ask(_request: web.Request) -> None:
        monotonic.now_s += TTL_S + 1
        await harness.binder.reconcile_lost_bindings()

    harness.server.fault("POST", "binding", ask)
    assert await harness.bind(pending, "n1") == ""
    assert harness.held(pending) == ("n1", "assumed")


async def test_one_answer_that_stays_away_holds_up_no_other(
    harness: BindingHarness, monotonic: Clock
) -> None:
    """Lost Bindings are read concurrently; the reservation of an unreadable pod stays."""
    hidden, visible = harness.create(), harness.create()
    await harness.lose(hidden, "n1")
    await harness.lose(visible, "n2")
    harness.changes(hidden)
    harness.changes(visible)

    async def until_the_other_is_asked_about(_request: web.Request) -> None:
        await harness.server.until(
            lambda: bool(harness.server.seen("GET", visible["metadata"]["name"]))
        )

    harness.server.fault("GET", hidden["metadata"]["name"], until_the_other_is_asked_about)
    monotonic.now_s += TTL_S + 1
    await harness.binder.reconcile_lost_bindings()
    assert (harness.held(hidden), harness.held(visible)) == (None, None)


@pytest.mark.parametrize("lost_before", [False, True])
async def test_a_bind_call_ends_in_its_time(harness: BindingHarness, lost_before: bool) -> None:
    """No read waits longer than a Binding would, nor a write to the status."""
    pending = harness.create(observed=lost_before)
    name = pending["metadata"]["name"]
    harness.server.fault("GET", name, hang)
    if lost_before:
        await harness.lose(pending, "n1")
        harness.server.fault("PATCH", f"{name}/status", hang)
    with harness.hurried():
        async with asyncio.timeout(20):
            assert await harness.bind(pending, "n1")
    assert harness.server.seen("POST", "binding") == []


async def test_settling_ends_in_its_time(harness: BindingHarness) -> None:
    """A write without an answer is not waited for; the reservation stays."""
    pending = harness.create()
    await harness.lose(pending, "n1")
    harness.server.fault("PATCH", f"{pending['metadata']['name']}/status", hang)
    with harness.hurried():
        async with asyncio.timeout(20):
            await harness.binder.reconcile_lost_bindings()
    assert harness.held(pending) == ("n1", "assumed")


@pytest.mark.parametrize("function", ["whole", None])
async def test_nothing_is_bound_after_the_time_of_the_call(
    harness: BindingHarness, monotonic: Clock, function: str | None
) -> None:
    """The reads took all the time: kube-scheduler has given up, so no Binding follows."""
    pending = harness.create(function, observed=False)

    def take_long() -> None:
        monotonic.now_s += 5.0

    harness.server.fault("GET", pending["metadata"]["name"], harness.before(take_long))
    errors = await harness.bind(pending, "n1")
    assert errors.startswith("the 3 s for a bind call (ESG_API_TIMEOUT_S) were over before")
    assert harness.held(pending) is None
    assert harness.server.seen("POST", "binding") == []
    assert await harness.bind(pending, "n1") == ""


async def test_a_call_that_waited_for_another(harness: BindingHarness, monotonic: Clock) -> None:
    """The time counts from the start of the call: a later Binding would surprise its client."""
    pending = harness.create()

    async def take_long(_request: web.Request) -> web.Response:
        monotonic.now_s += 5.0
        return status(403, "Forbidden", "no")

    harness.server.fault("POST", "binding", take_long)
    errors = await asyncio.gather(harness.bind(pending, "n1"), harness.bind(pending, "n1"))
    assert "RBAC" in errors[0]
    assert "were over before a Binding was sent" in errors[1]
    assert len(harness.server.seen("POST", "binding")) == 1


async def test_a_changed_pod_ends_its_lost_binding(harness: BindingHarness) -> None:
    """A Binding names the pod's version: once that has changed, none can arrive any more."""
    pending = harness.create()
    await harness.lose(pending, "n1")
    harness.hears(pending)
    assert harness.held(pending) == ("n1", "assumed")
    harness.changes(pending)
    harness.hears(pending)
    assert harness.held(pending) is None
    assert harness.offered("whole") == ["n1", "n2"]


async def test_a_pod_changes_while_its_binding_is_unanswered(harness: BindingHarness) -> None:
    """The read shows that the unanswered Binding is void: the share is free at once."""
    pending = harness.create()

    async def fail_and_change(_request: web.Request) -> web.Response:
        harness.changes(pending)
        return status(503, "ServiceUnavailable", "busy")

    harness.server.fault("POST", "binding", fail_and_change)
    assert await harness.bind(pending, "n1") == "the pod has changed since it was read"
    assert harness.held(pending) is None
    harness.hears(pending)
    assert await harness.bind(pending, "n1") == ""


@pytest.mark.parametrize(
    ("last", "grace_s"),
    [
        ({"spec": {}}, 30.0),
        ({"spec": {"terminationGracePeriodSeconds": 5}}, 5.0),
        ({"spec": {"terminationGracePeriodSeconds": 0}}, 0.0),
        ({"metadata": {"deletionTimestamp": "2027-01-15T08:00:00Z"}}, 0.0),
        ({"status": {"phase": "Failed"}}, 0.0),
    ],
    ids=["by force", "by force, short grace", "by force, no grace", "by its kubelet", "ended"],
)
async def test_a_deleted_pods_share_waits_for_its_containers(
    harness: BindingHarness, monotonic: Clock, last: Raw, grace_s: float
) -> None:
    """A pod deleted by force is gone before its containers; a list without it changes nothing."""
    pending = harness.create()
    harness.others_bind(pending, "n1", observed=True)
    state = harness.stored(pending)
    harness.state.pods.delete(trim_pod({k: v | last.get(k, {}) for k, v in state.items()}))
    harness.state.pods.replace(())
    assert (harness.held(pending) is not None) == (grace_s > 0)
    monotonic.now_s += max(0.0, grace_s - 0.1)
    harness.state.pods.expire()
    assert (harness.held(pending) is not None) == (grace_s > 0)
    monotonic.now_s += 0.2
    harness.state.pods.expire()
    assert harness.held(pending) is None
