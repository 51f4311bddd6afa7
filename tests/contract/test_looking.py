"""What people and probes ask: health, readiness, explain, snapshot, metrics, OpenAPI."""

# ruff: noqa: E501 - a row of a table is one line

from contextlib import nullcontext

import pytest
from prometheus_client.parser import text_string_to_metric_families

from scheduler import __version__
from scheduler.cluster.embedded import EmbeddedCluster
from scheduler.extender.app import create_app
from scheduler.extender.service import Service
from scheduler.metrics import Metrics
from scheduler.model.catalogue import Catalogue
from scheduler.model.documents import Workflow
from scheduler.settings import Settings
from scheduler.slo.tracker import RequestEnded
from tests.extender.cases import DOCUMENTS, MODEL, node, pod, profile
from tests.extender.serving import embedded, serving

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
    """An API server whose first lists are not in, or that has fallen silent."""

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
    """A service whose cluster is not there yet, and the cluster."""
    clusters = []

    def connect(handlers):
        clusters.append(LateCluster([node("n1")], handlers))
        return nullcontext(clusters[0])

    service = Service(Settings(), connect=connect)
    with serving(create_app(service), service, ready=False) as running:
        yield running, clusters[0]


def series(extender):
    """Every family of /metrics by name, parsed as Prometheus does."""
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
    """Until the first list is in the service lives and is not ready, and says what it waits for."""
    extender, cluster = late
    cluster.trouble = {"pods": "RBAC: may not list pods"}
    assert extender.get("/healthz") == {"status": "ok"}
    extender.on_loop(lambda: setattr(extender.service, "_prepared", True))
    waits = "the first list is not in yet (pods: RBAC: may not list pods)"
    assert unready(extender) == waits


def test_nothing_is_decided_while_not_ready(late):
    """Each verb answers in its own form that it is not ready; no node passes, nobody is evicted."""
    extender, _ = late
    extender.on_loop(lambda: setattr(extender.service, "_prepared", True))
    asked = pod("half")
    error = "the extender is not ready: the first list is not in yet"
    answer = extender.filter(asked, "n1")
    assert (answer["NodeNames"], answer["Error"]) == ([], error)
    assert answer["FailedNodes"] == answer["FailedAndUnresolvableNodes"] == {}
    whole = extender.post("filter", {"Pod": pod(), "Nodes": {"items": [node("n1")]}})
    assert (whole["Nodes"], whole["NodeNames"], whole["Error"]) == (None, None, error)
    assert extender.prioritize(asked, "n1") == [{"Host": "n1", "Score": 0}]
    assert extender.bind(asked, "n1") == error
    victims = {"n1": {"Pods": [{"UID": "a"}]}}
    preempted = extender.post("preempt", {"Pod": asked, "NodeNameToMetaVictims": victims})
    assert preempted == {"NodeNameToMetaVictims": {}}


def test_ready_when_the_list_is_in_and_not_when_it_is_stale(late):
    """Readiness comes with the first list and goes when the API server falls silent too long."""
    extender, cluster = late
    extender.on_loop(lambda: setattr(extender.service, "_prepared", True))
    cluster.listed = True
    assert extender.get("/readyz") == {"status": "ok"}
    cluster.silent_s = {"nodes": 299.0, "pods": 301.0}
    assert unready(extender) == "the API server was not heard about pods for 301 s"


def test_explain_a_bound_pod(extender):
    """Where it is and what it was granted, as its annotations say."""
    asked = pod("half")
    granted = extender.place(asked, "n2")
    told = extender.explain(asked)
    assert (told["pod"], told["node"], told["error"]) == (
        f"default/{asked['metadata']['name']}",
        "n2",
        "",
    )
    assert told["uid"] == asked["metadata"]["uid"]
    assert (granted["gpu"], granted["gpu_percent"], granted["memory_mib"]) == ("GPU-n2-0", 50, 4000)


def test_explain_a_pending_pod(extender):
    """Its plan, the candidates in order, who would hold it, and a reason for every other node."""
    for _ in range(2):
        extender.place(pod("whole"), "n1")
    asked = pod("half")
    extender.filter(asked, "n1")
    told = extender.explain(asked)
    full = "GPU 1: 0 % free, 50 % asked; 76,896 MiB free, 4,000 asked"
    bare = "the node has no GPU to share (no inventory annotation)"
    assert told["ours"] is True
    assert told["deciding_candidate"] == 0
    assert told["nodes_that_hold_it"] == ["n2"]
    assert {"n1", "bare"} == set(told["nodes_that_refuse"])
    assert told["nodes_that_refuse"]["bare"] == bare
    assert told["nodes_that_refuse"]["n1"].removeprefix("GPU 0").removeprefix("GPU 1") == full[5:]
    assert sorted(told["reasons"].values()) == [1, 1]
    assert [c["gpu_percent"] for c in told["plan"]["candidates"]] == [50]
    assert told["plan"]["candidates"][0]["gpu_model"] == MODEL


@pytest.mark.parametrize(
    ("asked", "ours", "error"),
    [
        pytest.param(pod(), False, "", id="a pod of others"),
        pytest.param(pod("half", annotations={"queued": "0"}), True, "annotation esg-scheduler.io/queued: '0'", id="malformed"),
        pytest.param(pod("nobody"), True, "function nobody has no FunctionProfile", id="without profile"),
    ],
)  # fmt: skip
def test_explain_what_cannot_be_planned(extender, asked, ours, error):
    """A foreign pod is said to be foreign, a wrong one has the error that filter gives."""
    said = extender.filter(asked, "n1")["Error"]
    told = extender.explain(asked)
    assert (told["ours"], told["error"]) == (ours, said)
    assert said.startswith(error)


def test_explain_an_unknown_pod(shared):
    """404 with the name that was asked, whatever its script."""
    response = shared.client.get("/v1/explain/default/größe-日本")
    assert response.status_code == 404
    assert response.json() == {"detail": "there is no pod default/größe-日本"}


def test_explain_changes_nothing(extender):
    """Explaining a waiting pod holds nothing for it."""
    asked = pod("whole")
    extender.filter(asked, "n1")
    before = extender.gpus("n1")
    assert extender.explain(asked) == extender.explain(asked)
    assert before == extender.gpus("n1")


def test_the_snapshot_holds_everything(extender, clock):
    """Time, settings, documents, every GPU with who holds what, and who waits."""
    held, waits = pod("half", priority=7), pod("whole")
    extender.place(held, "n1")
    extender.filter(waits, "n1")
    told = extender.get("/v1/snapshot")
    assert (told["time"], told["ready"]) == (clock.now, True)
    assert told["settings"]["candidates"] == 5
    assert {"chain", "lone-stage", "unprofiled"} == {
        w["metadata"]["name"] for w in told["workflows"]
    }
    assert {"tenth", "half", "whole", "elastic"} == {
        p["metadata"]["name"] for p in told["profiles"]
    }
    assert told["waiting"] == [f"default/{waits['metadata']['name']}"]
    n1 = next(each for each in told["nodes"] if each["name"] == "n1")
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
        told = set().union(*(sample.labels for sample in families[name].samples)) - {"le"}
        assert labels == told, name


def test_metrics_follow_what_happens(extender, clock):
    """A request bound and finished within its SLO is one hit, with its cost; its GPU is empty."""
    asked = pod(workflow="lone-stage", stage="elastic", request="r1")
    granted = extender.place(asked, "n1")
    during = series(extender)
    clock.now += 0.4
    extender.finish(asked)
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
    """At zero, one for each result, or Prometheus would not see the first as a change."""
    families = series(extender)
    requests = values(families["esg_workflow_requests"])
    assert dict.fromkeys(requests, 0) == requests
    assert {key for key in requests if key[2] == "lone-stage"} == {
        ("default", result, "lone-stage") for result in ("hit", "miss", "dropped")
    }
    assert values(families["esg_cost_dollars"])["default", "lone-stage"] == 0
    assert set(values(families["esg_search_states"]).values()) == {0}


def test_counters_of_a_workflow_end_with_it():
    """And a request that ends later, of a name that is only a label by then, begins no series."""
    metrics = Metrics()
    kept, gone = (
        Workflow.model_validate(
            {
                "metadata": {"name": name},
                "spec": {"slo": {"latencyMs": 1}, "stages": [{"name": "a", "function": "f"}]},
            }
        )
        for name in ("kept", "gone")
    )
    metrics.documents_changed(Catalogue.of([kept, gone]))
    metrics.request_ended(RequestEnded("default", "kept", "miss", 2.0))
    metrics.request_ended(RequestEnded("default", "gone", "hit", 1.0))
    metrics.documents_changed(Catalogue.of([kept]))
    metrics.request_ended(RequestEnded("default", "gone", "dropped", None))
    for counter in (metrics.requests, metrics.cost):
        [family] = counter.collect()
        assert {sample.labels["workflow"] for sample in family.samples} == {"kept"}
    assert metrics.registry.get_sample_value(
        "esg_workflow_requests_total",
        {"namespace": "default", "workflow": "kept", "result": "miss"},
    )


def test_the_cost_is_by_the_price_of_the_gpu_that_was_granted(clock):
    """A model with a price of its own costs that, and not the price of the others."""
    prices = {"vcpu_hour_dollars": 0, "gpu_hour_dollars": 1, "gpu_hour_dollars_of": {MODEL: 36}}
    with embedded(nodes=[node("n1")], documents=DOCUMENTS, clock=clock, **prices) as extender:
        extender.place(asked := pod(workflow="lone-stage", stage="elastic"), "n1")
        clock.now += 10
        extender.finish(asked)
        cost = values(series(extender)["esg_cost_dollars"])
    assert cost["default", "lone-stage"] == pytest.approx(0.2 * 10 * 0.01, rel=1e-5)


def test_a_plan_whose_search_ended_early_is_counted_and_says_so():
    """No series-parallel workflow, and a single state to expand: the answer is not exact."""
    after = {"s": "", "a": "s", "b": "s", "c": "ab", "d": "b"}
    stages = [{"name": n, "function": "f", "after": list(before)} for n, before in after.items()]
    spec = {"slo": {"latencyMs": 700}, "stages": stages}
    workflow = Workflow.model_validate({"metadata": {"name": "n-shaped"}, "spec": spec})
    documents = [profile("f", (20, 400), (30, 290), (50, 200), (90, 100)), workflow]
    with embedded(nodes=[node("n1")], documents=documents, expansions_max=1) as extender:
        asked = pod(workflow="n-shaped", stage="s")
        extender.filter(asked, "n1")
        plan = extender.explain(asked)["plan"]
        counted = values(series(extender)["esg_plans_inexact"])
    assert (plan["exact"], plan["feasible"], plan["says"]) == (False, True, "")
    assert plan["epsilon"] > 0
    assert counted == {(): 2}


def test_the_openapi_document_is_whole(shared):
    """Every route of the issue is in it, and every reference in it leads somewhere."""
    told = shared.get("/openapi.json")
    routes = {(method, path) for path, methods in told["paths"].items() for method in methods}
    looking = ("/healthz", "/readyz", "/metrics", "/v1/explain/{namespace}/{pod}", "/v1/snapshot")
    asked = {("post", f"/{verb}") for verb in ("filter", "prioritize", "bind", "preempt")}
    assert asked | {("get", path) for path in looking} <= routes
    schemas = told["components"]["schemas"]

    def references(part):
        if isinstance(part, dict):
            if "$ref" in part:
                yield part["$ref"]
            part = list(part.values())
        if isinstance(part, list):
            for each in part:
                yield from references(each)

    named = set(references(told))
    assert named
    assert {each.removeprefix("#/components/schemas/") for each in named} <= set(schemas)
