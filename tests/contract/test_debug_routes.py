"""Routes for people and probes: health, readiness, explain, snapshot, metrics, OpenAPI."""

# ruff: noqa: E501 - a row of a table is one line

import pytest
from prometheus_client.parser import text_string_to_metric_families

from scheduler import __version__
from scheduler.extender.service import Service
from scheduler.planning.metrics import Metrics
from scheduler.planning.service import PlanningService
from scheduler.settings import Settings
from scheduler.slo.tracker import RequestEnded
from tests.extender.embedded_cluster import EmbeddedCluster
from tests.extender.factories import DOCUMENTS, MODEL, node, pod, profile
from tests.extender.harness import embedded, serving
from workbench.profiles.builders import graph

DOCUMENTED = {  # design.md, 'Metrics'; the parser takes _total off
    "esg_workflow_requests": {"namespace", "workflow", "result"},
    "esg_workflow_duration_seconds": {"namespace", "workflow"},
    "esg_stage_duration_seconds": {"namespace", "workflow", "stage", "phase"},
    "esg_batch_size": {"namespace", "workflow", "stage"},
    "esg_cost_dollars": {"namespace", "workflow"},
    "esg_plan_duration_seconds": set(),
    "esg_plans_inexact": set(),
    "esg_search_states": {"outcome"},
    "esg_extender_request_duration_seconds": {"verb"},
    "esg_bind": {"result"},
    "esg_gpu_granted_ratio": {"node", "gpu"},
    "esg_gpu_granted_bytes": {"node", "gpu"},
    "esg_gpu_overcommitted": set(),
    "esg_reflector_staleness_seconds": {"resource"},
    "esg_info": {"version"},
}


class LateCluster(EmbeddedCluster):
    """An API server whose first lists are not complete, or that has stopped sending events."""

    listed = False
    trouble: dict[str, str] = {}  # noqa: RUF012
    silent_s: dict[str, float] = {}  # noqa: RUF012

    def synced(self):
        return self.listed

    def troubles(self):
        return self.trouble

    def staleness_s(self):
        return self.silent_s


@pytest.fixture
def late():
    """A service whose cluster is not synced yet, and the cluster."""
    cluster = LateCluster([node("n1")])
    service = Service(PlanningService(Settings(filter_nodes_max=0), cluster))
    with serving(service, ready=False) as running:
        yield running, cluster


def series(extender):
    """Parse every family of /metrics as Prometheus does, by name."""
    response = extender.client.get("/metrics")
    assert response.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
    families = list(text_string_to_metric_families(response.text))
    assert len(families) == len({family.name for family in families})
    return {family.name: family for family in families}


def values(family):
    return {tuple(v for _, v in sorted(s.labels.items())): s.value for s in family.samples}


def unready(extender):
    response = extender.client.get("/readyz")
    assert response.status_code == 503
    return response.json()["detail"]


def test_alive_and_ready(shared):
    """Both probes say ok when the service may answer."""
    assert shared.get("/healthz") == {"status": "ok"}
    assert shared.get("/readyz") == {"status": "ok"}


def test_not_ready_before_the_first_list(late):
    """Until the first list is complete the service is alive and not ready, with a reason."""
    extender, cluster = late
    cluster.trouble = {"pods": "RBAC: may not list pods"}
    assert extender.get("/healthz") == {"status": "ok"}
    extender.on_loop(lambda: setattr(extender.service.planning, "kernels_ready", True))
    waits = "the first list is not complete (pods: RBAC: may not list pods)"
    assert unready(extender) == waits


def test_nothing_is_decided_while_not_ready(late):
    """Each verb reports in its own form that it is not ready; no node passes, no pod is evicted."""
    extender, _ = late
    extender.on_loop(lambda: setattr(extender.service.planning, "kernels_ready", True))
    pending = pod("half")
    error = "the extender is not ready: the first list is not complete"
    answer = extender.filter(pending, "n1")
    assert (answer["NodeNames"], answer["Error"]) == ([], error)
    assert answer["FailedNodes"] == answer["FailedAndUnresolvableNodes"] == {}
    whole = extender.post("filter", {"Pod": pod(), "Nodes": {"items": [node("n1")]}})
    assert (whole["Nodes"], whole["NodeNames"], whole["Error"]) == (None, None, error)
    assert extender.prioritize(pending, "n1") == [{"Host": "n1", "Score": 0}]
    assert extender.bind(pending, "n1") == error
    victims = {"n1": {"Pods": [{"UID": "a"}]}}
    preempted = extender.post("preempt", {"Pod": pending, "NodeNameToMetaVictims": victims})
    assert preempted == {"NodeNameToMetaVictims": {}}


def test_ready_when_the_list_is_in_and_not_when_it_is_stale(late):
    """Ready after the first list, and not ready when the API server is silent too long."""
    extender, cluster = late
    extender.on_loop(lambda: setattr(extender.service.planning, "kernels_ready", True))
    cluster.listed = True
    assert extender.get("/readyz") == {"status": "ok"}
    cluster.silent_s = {"nodes": 299.0, "pods": 301.0}
    assert unready(extender) == "no news from the API server about pods for 301 s"


def test_explain_a_bound_pod(extender):
    """The node and the grant are those of its annotations."""
    pending = pod("half")
    granted = extender.place(pending, "n2")
    explanation = extender.explain(pending)
    assert (explanation["pod"], explanation["node"], explanation["error"]) == (
        f"default/{pending['metadata']['name']}",
        "n2",
        "",
    )
    assert explanation["uid"] == pending["metadata"]["uid"]
    assert (granted["gpu"], granted["gpu_percent"], granted["memory_mib"]) == ("GPU-n2-0", 50, 4000)


def test_explain_a_pending_pod(extender):
    """Its plan, the candidates in order, the feasible nodes, and a reason for every other node."""
    for _ in range(2):
        extender.place(pod("whole"), "n1")
    pending = pod("half")
    extender.filter(pending, "n1")
    explanation = extender.explain(pending)
    full = "GPU 1: 0 % free, 50 % asked; 76,896 MiB free, 4,000 asked"
    bare = "the node has no GPU to share (no inventory annotation)"
    assert explanation["ours"] is True
    assert explanation["selected_candidate"] == 0
    assert explanation["feasible_nodes"] == ["n2"]
    assert {"n1", "bare"} == set(explanation["infeasible_nodes"])
    assert explanation["infeasible_nodes"]["bare"] == bare
    assert (
        explanation["infeasible_nodes"]["n1"].removeprefix("GPU 0").removeprefix("GPU 1")
        == full[5:]
    )
    assert sorted(explanation["reasons"].values()) == [1, 1]
    assert [c["gpu_percent"] for c in explanation["plan"]["candidates"]] == [50]
    assert explanation["plan"]["candidates"][0]["gpu_model"] == MODEL


@pytest.mark.parametrize(
    ("pending", "ours", "error"),
    [
        pytest.param(pod(), False, "", id="a pod of others"),
        pytest.param(pod("half", annotations={"queued": "0"}), True, "annotation esg-scheduler.io/queued: '0'", id="malformed"),
        pytest.param(pod("nobody"), True, "function nobody has no FunctionProfile", id="without profile"),
    ],
)  # fmt: skip
def test_explain_what_cannot_be_planned(extender, pending, ours, error):
    """A pod of another owner is not ours; a malformed one has the error that filter gives."""
    said = extender.filter(pending, "n1")["Error"]
    explanation = extender.explain(pending)
    assert (explanation["ours"], explanation["error"]) == (ours, said)
    assert said.startswith(error)


def test_explain_an_unknown_pod(shared):
    """404 with the name of the request, in any script."""
    response = shared.client.get("/v1/explain/default/größe-日本")
    assert response.status_code == 404
    assert response.json() == {"detail": "there is no pod default/größe-日本"}


def test_explain_changes_nothing(extender):
    """Explaining a pending pod reserves nothing for it."""
    pending = pod("whole")
    extender.filter(pending, "n1")
    before = extender.gpus("n1")
    assert extender.explain(pending) == extender.explain(pending)
    assert before == extender.gpus("n1")


def test_the_snapshot_holds_everything(extender, clock):
    """Time, settings, documents, every GPU with its reservations, and the pending pods."""
    held, waits = pod("half", priority=7), pod("whole")
    extender.place(held, "n1")
    extender.filter(waits, "n1")
    snapshot = extender.get("/v1/snapshot")
    assert (snapshot["time"], snapshot["ready"]) == (clock.now_s, True)
    assert snapshot["settings"]["candidates"] == 5
    assert {"chain", "lone-stage", "unprofiled"} == {
        w["metadata"]["name"] for w in snapshot["workflows"]
    }
    assert {"tenth", "half", "whole", "elastic"} == {
        p["metadata"]["name"] for p in snapshot["profiles"]
    }
    [pending] = snapshot["pending"]
    assert pending["name"] == f"default/{waits['metadata']['name']}"
    assert pending["pod"]["metadata"]["uid"] == waits["metadata"]["uid"]
    n1 = next(entry for entry in snapshot["nodes"] if entry["name"] == "n1")
    assert (n1["cpu_milli"], n1["cpu_free_milli"]) == (16_000, 15_000)
    first, second = n1["gpus"]
    assert (first["uuid"], first["free_percent"], first["free_memory_mib"]) == (
        "GPU-n1-0",
        50,
        76_896,
    )
    assert (second["free_percent"], second["pods"]) == (100, [])
    assert first["pods"] == [
        {
            "uid": held["metadata"]["uid"],
            "namespace": "default",
            "name": held["metadata"]["name"],
            "gpu_percent": 50,
            "memory_mib": 4000,
            "cpu_milli": 1000,
            "batch": 1,
            "function": "half",
            "priority": 7,
            "is_daemon": False,
            "pool": "",
            "group": "",
            "is_ending": False,
            "slice_percent": 0,
            "slice_cpu_milli": 0,
            "state": "confirmed",
        }
    ]


def test_metrics_are_those_of_the_design(extender):
    """Prometheus parses the page, and every documented name is there with its labels."""
    first = pod(workflow="lone-stage", stage="elastic", request="r1")
    extender.place(first, "n1")
    extender.finish(first)
    families = series(extender)
    for name, labels in DOCUMENTED.items():
        assert families[name].documentation, name
        found_labels = set().union(*(sample.labels for sample in families[name].samples)) - {"le"}
        assert labels == found_labels, name


def test_metrics_follow_what_happens(extender, clock):
    """A request bound and finished within its SLO is one hit, with its cost; its GPU is empty."""
    pending = pod(workflow="lone-stage", stage="elastic", request="r1")
    granted = extender.place(pending, "n1")
    during = series(extender)
    clock.now_s += 0.4
    extender.finish(pending)
    after = series(extender)
    assert granted["gpu_percent"] == 20
    assert values(during["esg_gpu_granted_ratio"])["GPU-n1-0", "n1"] == 0.2
    assert values(during["esg_gpu_granted_bytes"])["GPU-n1-0", "n1"] == 4000 * 2**20
    assert {result: n for result, n in values(during["esg_bind"]).items() if n} == {("bound",): 1}
    assert values(after["esg_gpu_granted_ratio"])["GPU-n1-0", "n1"] == 0
    requests = values(after["esg_workflow_requests"])
    assert {key: count for key, count in requests.items() if count} == {
        ("default", "hit", "lone-stage"): 1
    }
    dollars = 0.4 / 3600 * (1 * 0.034 + 0.2 * 4.69)
    cost = values(after["esg_cost_dollars"])
    assert cost["default", "lone-stage"] == pytest.approx(dollars, rel=1e-5)  # the clock is a float
    edges = [
        float(s.labels["le"])
        for s in after["esg_workflow_duration_seconds"].samples
        if s.name.endswith("_bucket") and s.labels["workflow"] == "lone-stage"
    ]
    assert 0.5 in edges, "a bucket ends at the SLO"
    assert values(after["esg_info"]) == {(__version__,): 1}


def test_counters_of_a_workflow_are_there_before_its_first_request(extender):
    """At zero, one for each result, or Prometheus would not notice the first change."""
    families = series(extender)
    requests = values(families["esg_workflow_requests"])
    assert dict.fromkeys(requests, 0) == requests
    assert {key for key in requests if key[2] == "lone-stage"} == {
        ("default", result, "lone-stage") for result in ("hit", "miss", "dropped")
    }
    assert set(values(families["esg_search_states"]).values()) == {0}


def test_counters_of_a_workflow_end_with_it():
    """A request that ends later, of a name that is only a label by then, starts no series."""
    metrics = Metrics()
    remaining, gone = (graph({"a": ["f"]}, name=name) for name in ("kept", "gone"))
    for workflow in (remaining, gone):
        metrics.workflow_changed(None, workflow)
    metrics.request_ended(RequestEnded("default", "kept", "miss", 2.0))
    metrics.request_ended(RequestEnded("default", "gone", "hit", 1.0))
    metrics.workflow_changed(gone, None)
    metrics.request_ended(RequestEnded("default", "gone", "dropped", None))
    for collector in (metrics.requests, metrics.workflow_durations):
        [family] = collector.collect()
        assert {sample.labels["workflow"] for sample in family.samples} == {"kept"}
    assert metrics.registry.get_sample_value(
        "esg_workflow_requests_total",
        {"namespace": "default", "workflow": "kept", "result": "miss"},
    )


def test_the_cost_is_by_the_price_of_the_gpu_that_was_granted(clock):
    """A GPU model with its own price costs that, not the price of the others."""
    prices = {"vcpu_hour_dollars": 0, "gpu_hour_dollars": 1, "gpu_hour_dollars_of": {MODEL: 36}}
    with embedded(nodes=[node("n1")], documents=DOCUMENTS, clock=clock, **prices) as extender:
        extender.place(pending := pod(workflow="lone-stage", stage="elastic"), "n1")
        clock.now_s += 10
        extender.finish(pending)
        cost = values(series(extender)["esg_cost_dollars"])
    assert cost["default", "lone-stage"] == pytest.approx(0.2 * 10 * 0.01, rel=1e-5)


@pytest.mark.parametrize("owner", ["ReplicaSet", "StatefulSet", "FunctionServer"])
def test_a_server_costs_nothing_here(extender, clock, owner):
    """The gateway counts the batches of pods that serve requests; their cost is counted once."""
    pending = pod(workflow="lone-stage", stage="elastic")
    pending["metadata"]["ownerReferences"] = [{"kind": owner, "name": "o", "uid": "u"}]
    extender.place(pending, "n1")
    clock.now_s += 10
    extender.finish(pending)
    after = series(extender)
    assert ("default", "lone-stage") not in values(after["esg_cost_dollars"])
    phases = {
        sample.labels["phase"]: sample.value
        for sample in after["esg_stage_duration_seconds"].samples
        if sample.name.endswith("_count") and sample.labels["workflow"] == "lone-stage"
    }
    assert phases["queue"] == 1
    assert phases.get("execute", 0) == 0


def test_a_plan_whose_search_ended_early_is_counted_and_says_so():
    """With the paper's policy and a single state to expand, the answer is not exact."""
    workflow = graph({"s": ["f"], "a": ["f", "s"], "b": ["f", "a"]}, name="three", slo_ms=700)
    documents = [profile("f", (20, 400), (30, 290), (50, 200), (90, 100)), workflow]
    limits = {"policy": "esg", "expansions_max": 1}
    with embedded(nodes=[node("n1")], documents=documents, **limits) as extender:
        pending = pod(workflow="three", stage="s")
        extender.filter(pending, "n1")
        plan = extender.explain(pending)["plan"]
        counted = values(series(extender)["esg_plans_inexact"])
    assert (plan["exact"], plan["feasible"], plan["message"]) == (False, True, "")
    assert plan["epsilon"] > 0
    assert counted == {(): 2}


def test_the_openapi_document_is_whole(shared):
    """It has every route, and every reference in it resolves."""
    document = shared.get("/openapi.json")
    routes = {(method, path) for path, methods in document["paths"].items() for method in methods}
    looking = ("/healthz", "/readyz", "/metrics", "/v1/explain/{namespace}/{pod}", "/v1/snapshot")
    calls = {("post", f"/{verb}") for verb in ("filter", "prioritize", "bind", "preempt")}
    assert calls | {("get", path) for path in looking} <= routes
    schemas = document["components"]["schemas"]

    def references(part):
        if isinstance(part, dict):
            if "$ref" in part:
                yield part["$ref"]
            part = list(part.values())
        if isinstance(part, list):
            for entry in part:
                yield from references(entry)

    named = set(references(document))
    assert named
    assert {entry.removeprefix("#/components/schemas/") for entry in named} <= set(schemas)
