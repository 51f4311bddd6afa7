"""Conditions of Workflows and FunctionServers, as the owner of their namespace sees the pods."""

import pytest

from scheduler.gateway.discovery.documents import ServedDocuments
from scheduler.gateway.discovery.function_servers import Discovery
from scheduler.gateway.serving_conditions import ServingConditions
from scheduler.model.documents import to_manifest
from scheduler.model.names import LABEL_GATEWAY_POOL
from tests.gateway.factories import pod, profile, server, workflow
from tests.gateway.listeners import RecordingListener

TEMPLATE = {"spec": {"containers": [{"name": "c", "image": "i"}]}}


class Documents:
    """A listener of documents that needs none of them."""

    def set_profile(self, _):
        pass

    def set_workflow(self, _):
        pass

    def remove_workflow(self, _):
        pass


class Pool:
    """A listener of the pods of templates, and why none starts.

    Attributes:
        failure: reason why no pod of any function starts.
    """

    failure = None

    def pool_pod_changed(self, _server, _raw):
        pass

    def pool_pod_gone(self, _name):
        pass

    def refusal(self, _function):
        return self.failure


class World:
    """Documents and pods of a gateway, and what it writes.

    Attributes:
        foreign: namespaces of other replicas.
        pool: pods of templates; None: the gateway creates none.
    """

    def __init__(self, *, creates_pods=True):
        self.foreign = set()
        self.pool = Pool() if creates_pods else None
        self.documents = ServedDocuments(
            Documents(), stages_max=32, on_workflow=lambda _before, _after: None
        )
        self.discovery = Discovery(RecordingListener(), self.documents.profile, self.pool)
        self.documents.on_profile = self.discovery.profile_changed
        self.conditions = ServingConditions(
            self.documents,
            self.discovery,
            is_owner=lambda namespace: namespace not in self.foreign,
            pods_wanted=lambda _, ready_pods: ready_pods + 1,
            refusal=self.pool and self.pool.refusal,
        )

    def put(self, *functions):
        """Add the profiles of functions, and a Workflow of them."""
        for function in functions:
            self.documents.store.profiles.upsert(to_manifest(profile(function)))
        self.documents.store.workflows.upsert(workflow(stages=functions))

    def put_server(self, raw, **status):
        self.discovery.servers.upsert({**raw, "status": status})

    def states(self, name, kind="FunctionServer"):
        """Return status and reason of each condition of a document."""
        [desired] = [
            d for d in self.conditions.statuses() if (d.resource.kind, d.name) == (kind, name)
        ]
        return {c: (state.status, state.reason) for c, state in desired.conditions.items()}

    def ready(self):
        """Return status and reason of the Workflow's readiness."""
        return self.states("w", "Workflow")["Ready"]


@pytest.fixture
def world():
    return World()


def pod_of_template():
    """A ready pod of the template of server s."""
    created = pod()
    created["metadata"]["labels"][LABEL_GATEWAY_POOL] = "s"
    created["metadata"]["ownerReferences"] = [{"controller": True, "uid": "server"}]
    return created


def of_template(name="s", function="f", **spec):
    """A FunctionServer with a template."""
    raw = server(name, function, selector=None, template=TEMPLATE, **spec)
    raw["metadata"]["uid"] = "server"
    return raw


def test_a_workflow_is_ready_while_each_stage_has_a_pod(world):
    """A stage without server, without pods, with a pod, and with none again."""
    world.put("f", "g")
    world.put_server(server("s", "f"))
    world.discovery.pods.upsert(pod("p", app="f"))
    assert world.ready() == ("False", "NoFunctionServer")
    world.put_server(server("t", "g"))
    assert world.ready() == ("False", "NoPods")
    world.discovery.pods.upsert(pod("q", app="g", uid="v"))
    assert world.ready() == ("True", "Served")
    world.discovery.pods.upsert(pod("q", app="g", uid="v", ready=False))
    assert world.ready() == ("False", "NoPods")


def test_a_workflow_that_cannot_be_used_is_not_ready(world):
    """Without a profile, and as an invalid document, it says so."""
    world.documents.store.workflows.upsert(workflow())
    assert world.ready() == ("False", "MissingProfile")
    world.documents.store.workflows.upsert(workflow(slo_ms=-1))
    assert world.ready() == ("False", "Invalid")


def test_a_template_serves_before_its_first_pod(world):
    """A call can wait for a pod; but with minPods, pods are to be there."""
    world.put("f")
    world.put_server(of_template())
    assert world.states("s") == {
        "Accepted": ("True", "Accepted"),
        "Ready": ("True", "StartsOnDemand"),
    }
    assert world.ready() == ("True", "Served")
    world.put_server(of_template(minPods=1))
    assert world.states("s")["Ready"] == ("False", "PodsStarting")


def test_minimum_pods_of_a_function_without_a_workflow(world):
    """None starts: the share of a pod follows from the SLO of a Workflow that can be served."""
    world.documents.store.profiles.upsert(to_manifest(profile("f")))
    world.put_server(of_template(minPods=1))
    assert world.states("s")["Ready"] == ("False", "Unused")
    world.documents.store.workflows.upsert(workflow(stages=("f",), namespace="another"))
    world.documents.store.workflows.upsert(workflow(stages=("f", "unprofiled")))
    assert world.states("s")["Ready"] == ("False", "Unused")
    world.put("f")
    assert world.states("s")["Ready"] == ("False", "PodsStarting")
    world.documents.store.workflows.delete(workflow())
    assert world.states("s")["Ready"] == ("False", "Unused")
    world.discovery.pods.upsert(pod_of_template())
    assert world.states("s")["Ready"] == ("True", "PodsReady")


def test_a_failed_start_lasts_until_a_pod_is_ready(world):
    """The pause after a failure ends, and the next start may fail too: the condition stays."""
    world.put("f")
    world.put_server(of_template())
    world.pool.failure = "pod p did not start: no room"
    assert world.states("s")["Ready"] == ("False", "PodStartFailed")
    assert world.ready() == ("False", "PodStartFailed")
    failed = {
        "type": "Ready",
        "status": "False",
        "reason": "PodStartFailed",
        "message": world.pool.failure,
        "observedGeneration": 0,
    }
    world.put_server(of_template(), conditions=[failed])
    world.pool.failure = None
    assert world.states("s")["Ready"] == ("False", "PodStartFailed")
    mended = of_template(port=8001)
    mended["metadata"]["generation"] = 2
    world.put_server(mended, conditions=[failed])
    assert world.states("s")["Ready"] == ("True", "StartsOnDemand")


def test_a_server_that_is_not_used_says_why():
    """A template where none is allowed, a missing profile, a second server, an invalid one."""
    world = World(creates_pods=False)
    world.put("f")
    world.put_server(of_template("template"))
    world.put_server(server("lost", "unprofiled"))
    world.put_server(server("first", "f"))
    world.put_server(server("second", "f", created="2026-01-02T00:00:00Z"))
    world.put_server(server("wrong", "f", port=0))
    reasons = {
        name: world.states(name)["Accepted"][1]
        for name in ("template", "lost", "first", "second", "wrong")
    }
    assert reasons == {
        "template": "TemplatesNotAllowed",
        "lost": "MissingProfile",
        "first": "Accepted",
        "second": "FunctionServedTwice",
        "wrong": "Invalid",
    }
    assert world.states("second")["Ready"] == ("False", "FunctionServedTwice")


def test_numbers_of_pods(world):
    """A server counts its pods that are not ending, and has the selector of autoscalers."""
    world.put("f")
    world.put_server(server())
    world.discovery.pods.upsert(pod("p"))
    world.discovery.pods.upsert(pod("q", uid="v", ready=False))
    world.discovery.pods.upsert(pod("r", uid="x", deleted=True))
    [numbers] = [
        d.fields for d in world.conditions.statuses() if d.resource.kind == "FunctionServer"
    ]
    assert numbers == {
        "replicas": 2,
        "wantedReplicas": 2,
        "selector": "app=f",
        "observedGeneration": 0,
    }


def test_a_workflow_has_the_ready_pods_of_its_functions(world):
    """Stages of one function count its pods once."""
    world.put("f", "g")
    raw = workflow(stages=("f", "g", "h"))
    raw["spec"]["stages"][2]["function"] = "f"
    world.documents.store.workflows.upsert(raw)
    for name, function in (("s", "f"), ("t", "g")):
        world.put_server(server(name, function))
    for name, ready in (("p", True), ("q", True), ("r", False)):
        world.discovery.pods.upsert(pod(name, app="f", uid=name, ready=ready))
    [fields] = [d.fields for d in world.conditions.statuses() if d.resource.kind == "Workflow"]
    assert fields == {"pods": 2}


def test_other_replicas_write_their_own_namespaces(world):
    """A replica yields nothing of a namespace that another one owns."""
    world.put("f")
    world.put_server(server())
    assert len(list(world.conditions.statuses())) == 2
    world.foreign.add("n")
    assert list(world.conditions.statuses()) == []


def test_documents_that_go_meanwhile(world):
    """Writes take time: a document that is deleted before its turn has no status."""
    world.put("f")
    world.put_server(server())
    statuses = world.conditions.statuses()
    assert next(statuses).name == "w"
    world.discovery.servers.delete(server())
    assert list(statuses) == []
