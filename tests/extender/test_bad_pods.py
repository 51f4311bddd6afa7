"""Bad pods: each has a clear error at the right place, none a 500."""

# ruff: noqa: E501 - a row of a table is one line

import json

import pytest

from tests.extender.bad_input import args, nested, send
from tests.extender.factories import GROUP, node, pod

pytestmark = pytest.mark.usefixtures("goes_on")

MALFORMED = {
    # (labels and annotations of a pod of function half, what the Error holds)
    "queued below zero": ({"queued": "-1"}, "annotation esg-scheduler.io/queued: '-1' must be a whole number from 1 to 1000000"),
    "queued zero": ({"queued": "0"}, "queued: '0' must be"),
    "queued a fraction": ({"queued": "1.5"}, "queued: '1.5' must be"),
    "queued 10^30": ({"queued": "1" + "0" * 30}, "must be a whole number from 1 to 1000000"),
    "queued 1e400": ({"queued": "1e400"}, "queued: '1e400' must be"),
    "queued a word": ({"queued": "many"}, "queued: 'many' must be"),
    "queued empty": ({"queued": ""}, "queued: '' must be"),
    "queued in Arabic digits": ({"queued": "١٢"}, "queued: '١٢' must be"),
    "rate zero": ({"rate": "0"}, "annotation esg-scheduler.io/rate: '0' must be requests per second, above 0"),
    "rate below zero": ({"rate": "-3"}, "rate: '-3' must be"),
    "rate NaN": ({"rate": "NaN"}, "rate: 'NaN' must be"),
    "rate infinite": ({"rate": "inf"}, "rate: 'inf' must be"),
    "rate 1e400": ({"rate": "1e400"}, "rate: '1e400' must be"),
    "rate 10^30": ({"rate": "1" + "0" * 30}, "must be requests per second"),
    "rate a word": ({"rate": "fast"}, "rate: 'fast' must be"),
    "rate with an underscore": ({"rate": "1_0"}, "rate: '1_0' must be"),
    "deadline a word": ({"deadline": "soon"}, "annotation esg-scheduler.io/deadline: 'soon' is not an RFC 3339 time; write it as 2026-01-31T12:00:00.250Z"),
    "deadline without a zone": ({"deadline": "2026-01-31T12:00:00"}, "deadline: '2026-01-31T12:00:00' is not an RFC 3339 time"),
    "deadline a date": ({"deadline": "2026-01-31"}, "deadline: '2026-01-31' is not an RFC 3339 time"),
    "deadline a week": ({"deadline": "2026-W05-6T12:00:00Z"}, "is not an RFC 3339 time"),
    "deadline a number": ({"deadline": "1767323045"}, "is not an RFC 3339 time"),
    "deadline on no such day": ({"deadline": "2026-02-30T12:00:00Z"}, "is not an RFC 3339 time"),
    "deadline empty": ({"deadline": ""}, "deadline: '' is not an RFC 3339 time"),
    "deadline with a NUL": ({"deadline": "2026-01-31T12:00:00Z\0"}, "is not an RFC 3339 time"),
    "arrival a word": ({"arrival": "yesterday"}, "annotation esg-scheduler.io/arrival: 'yesterday' is not an RFC 3339 time"),
    "configuration not JSON": ({"configuration": "8/2/28"}, "annotation esg-scheduler.io/configuration: '8/2/28' is not a configuration (Invalid JSON: "),
    "configuration no object": ({"configuration": "[8, 2, 28]"}, """is not a configuration (Input should be an object); write it as {"batch": 8, "cpu": 2, "gpuPercent": 28}"""),
    "configuration incomplete": ({"configuration": '{"batch": 8, "cpu": 2}'}, "('gpuPercent': Field required)"),
    "configuration in snake case": ({"configuration": '{"batch": 8, "cpu": 2, "gpu_percent": 28}'}, "('gpuPercent': Field required)"),
    "configuration with a text": ({"configuration": '{"batch": "8", "cpu": 2, "gpuPercent": 28}'}, "('batch': Input should be a valid integer)"),
    "configuration of half a vCPU": ({"configuration": '{"batch": 8, "cpu": 0.5, "gpuPercent": 28}'}, "('cpu': Input should be a valid integer"),
    "configuration above a GPU": ({"configuration": '{"batch": 8, "cpu": 2, "gpuPercent": 101}'}, "('gpuPercent': Input should be less than or equal to 100)"),
    "configuration with a long key": ({"configuration": '{"batch": 8, "cpu": 2, "gpuPercent": 28, "%s": 1}' % ("x" * 900)}, "'… (900 long): Extra inputs are not permitted)"),
    "configuration empty": ({"configuration": ""}, "configuration: '' is not a configuration"),
    "container unknown": ({"container": "sidecar"}, "annotation esg-scheduler.io/container: 'sidecar' is not a container of the pod (it has: function)"),
    "container empty": ({"container": ""}, "container: '' is not a container"),
}  # fmt: skip


@pytest.mark.parametrize(("annotations", "says"), MALFORMED.values(), ids=MALFORMED)
def test_malformed_annotations(shared, annotations, says):
    """Filter's Error names the annotation, its value and the allowed values; bind's does too."""
    pending = pod("half", annotations=annotations)
    answer = shared.filter(pending, "n1")
    assert says in answer["Error"]
    assert answer["NodeNames"] == []
    assert shared.bind(pending, "n1") == answer["Error"]
    assert shared.prioritize(pending, "n1") == [{"Host": "n1", "Score": 0}]
    assert shared.explain(pending)["error"] == answer["Error"]


def test_a_long_annotation_is_not_told_whole(shared):
    """The Error ends up in the pod's status, which has no space for 200 KiB of a user's text."""
    for key in ("queued", "rate", "deadline", "configuration", "container"):
        error = shared.filter(pod("half", annotations={key: "x" * 200_000}), "n1")["Error"]
        assert f"annotation esg-scheduler.io/{key}: 'xxx" in error
        assert len(error) < 500


REQUESTS = {
    "cpu below zero": ({"cpu": "-1"}, "resources.requests.cpu: '-1' is out of range"),
    "cpu 1e9999": ({"cpu": "1e9999"}, "resources.requests.cpu: '1e9999' is no Kubernetes quantity"),
    "cpu 10^30": ({"cpu": "1" + "0" * 30}, "resources.requests.cpu: '1000000000000000000000000000000' is no Kubernetes quantity"),
    "cpu a number of 10^30": ({"cpu": 10**30}, "resources.requests.cpu: 1000000000000000000000000000000 is no Kubernetes quantity"),
    "cpu a word": ({"cpu": "two"}, "resources.requests.cpu: 'two' is no Kubernetes quantity; write it as 2, 500m or 1.5"),
    "cpu NaN": ({"cpu": "NaN"}, "resources.requests.cpu: 'NaN' is no Kubernetes quantity"),
    "gpu-percent 2^70": ({f"{GROUP}/gpu-percent": str(2**70)}, "resources.requests.esg-scheduler.io/gpu-percent: '1180591620717411303424' is out of range"),
    "gpu-percent below zero": ({f"{GROUP}/gpu-percent": "-5"}, "gpu-percent: '-5' is out of range"),
    "a ceiling below every share": ({f"{GROUP}/gpu-percent": "49"}, "no configuration of half within 49 "),
    "no vCPU at all": ({"cpu": "0"}, "no configuration of half within 0 vCPU"),
}  # fmt: skip


@pytest.mark.parametrize(("requests", "says"), REQUESTS.values(), ids=REQUESTS)
def test_malformed_requests(shared, requests, says):
    """A request that cannot be a ceiling is an Error that names the resource and its value."""
    answer = shared.filter(pod("half", requests=requests), "n1")
    assert says in answer["Error"]
    assert answer["NodeNames"] == []


@pytest.mark.parametrize("kind", ["containers", "initContainers"])
@pytest.mark.parametrize("percent", ["1", 100])
def test_a_share_that_nothing_is_named_for(shared, kind, percent):
    """kube-scheduler would count it on a node, and the ledger on no GPU: every verb refuses it."""
    pending = pod()
    pending["spec"].setdefault(kind, []).append(
        {"name": "asks", "resources": {"requests": {f"{GROUP}/gpu-percent": percent}}}
    )
    answer = shared.filter(pending, "n1")
    assert answer["NodeNames"] == []
    assert "recreate it with the label esg-scheduler.io/function" in answer["Error"]
    assert shared.bind(pending, "n1") == answer["Error"]
    assert shared.explain(pending)["error"] == answer["Error"]


def test_a_share_of_zero_is_no_request(shared):
    """A pod of another owner passes with it as without it."""
    pending = pod(requests={f"{GROUP}/gpu-percent": "0", "cpu": "1"})
    assert shared.filter(pending, "n1")["NodeNames"] == ["n1"]


@pytest.mark.parametrize("cpu", ["9e15", "9223372036854775", 9e15, 2**53])
@pytest.mark.parametrize("ours", [True, False], ids=["ours", "of others"])
def test_more_vcpus_than_any_node(shared, cpu, ours):
    """A request beyond every machine, in four containers, does not overflow: it fits nowhere."""
    pending = pod("half" if ours else None, requests={"cpu": cpu})
    pending["spec"]["containers"] *= 4
    if ours:
        answer = shared.filter(pending, "n1")
        assert answer["Error"] == ""
        assert "vCPU free" in answer["FailedNodes"]["n1"]
    else:
        assert shared.filter(pending, "n1")["NodeNames"] == ["n1"]


def test_huge_requests_of_bound_pods_are_counted_without_overflow(shared):
    """Ordinary pods that request more than a machine word of vCPUs leave none, until they end."""
    huge = [pod(requests={"cpu": "9e15"}) for _ in range(3)]
    for raw in huge:
        raw["spec"]["containers"] *= 3
        shared.filter(raw, "n2")
        assert shared.bind(raw, "n2") == ""
    assert shared.filter(pod("half"), "n2")["FailedNodes"] == {"n2": "0 vCPU free, 1 asked"}
    for raw in huge:
        shared.finish(raw)
    assert shared.filter(pod("half"), "n2")["NodeNames"] == ["n2"]


WHO = {
    "an unknown workflow": ({"workflow": "nowhere", "stage": "half"}, "workflow default/nowhere is not known (namespace default has: chain, lone-stage, unprofiled); create the Workflow, or correct the name"),
    "an unknown stage": ({"workflow": "chain", "stage": "third"}, "third"),
    "no stage": ({"workflow": "chain"}, "label esg-scheduler.io/stage is missing; set it to a stage of workflow 'chain'"),
    "an unknown function": ({"function": "nobody"}, "function nobody has no FunctionProfile; create one with that name"),
    "an empty function": ({"function": ""}, "label esg-scheduler.io/function is empty; set it to the name of a FunctionProfile"),
    "an empty workflow": ({"workflow": "", "stage": "half"}, "label esg-scheduler.io/workflow is empty; set it to the name of a Workflow"),
    "a stage without profile": ({"workflow": "unprofiled", "stage": "nobody-knows"}, "function nobody-knows has no FunctionProfile"),
    "a Unicode workflow": ({"workflow": "größe-日本-🚀", "stage": "half"}, "workflow default/größe-日本-🚀 is not known"),
    "a workflow with a NUL": ({"workflow": "a\0b", "stage": "half"}, "is not known"),
    "a very long workflow": ({"workflow": "w" * 100_000, "stage": "half"}, "label esg-scheduler.io/workflow: 'wwww"),
    "a very long stage": ({"workflow": "chain", "stage": "s" * 64}, "' is longer than 63 characters"),
    "a very long function": ({"function": "f" * 100_000}, "… (100,000 long) is longer than 63 characters"),
}  # fmt: skip


@pytest.mark.parametrize(("labels", "says"), WHO.values(), ids=WHO)
def test_what_the_pod_runs_is_not_known(shared, labels, says):
    """The Error says which document is missing and what to do, in a few lines."""
    pending = pod(labels={f"{GROUP}/{key}": value for key, value in labels.items()})
    answer = shared.filter(pending, "n1")
    assert says in answer["Error"]
    assert len(answer["Error"]) < 1_000
    assert answer["NodeNames"] == []
    assert shared.bind(pending, "n1") == answer["Error"]
    assert shared.prioritize(pending, "n1") == [{"Host": "n1", "Score": 0}]


@pytest.mark.parametrize(
    "moment",
    [
        "0001-01-01T00:00:00Z",
        "9999-12-31T23:59:59Z",
        "1900-01-01T00:00:00.123456789Z",
        "0001-01-01T00:00:00+23:59",
        "9999-12-31T23:59:59-23:59",
    ],
)
@pytest.mark.parametrize("key", ["deadline", "arrival"])
def test_far_away_times(shared, key, moment):
    """The first and the last day of the calendar are planned like any other."""
    pending = pod(workflow="chain", stage="elastic", annotations={key: moment})
    answer = shared.filter(pending, "n1")
    assert (answer["NodeNames"], answer["Error"]) == (["n1"], "")
    assert shared.explain(pending)["plan"]["feasible"] is moment.startswith("9999")


@pytest.mark.parametrize("rate", ["5e-324", "1e-300", "1e-9"])
def test_hardly_any_requests(shared, rate):
    """A rate close to zero is planned, bound, explained and finished with finite numbers."""
    pending = pod("half", annotations={"rate": rate})
    granted = shared.place(pending, "n1")
    assert granted["plan"]["stage_ms"] == 100
    shared.finish(pending)


ODD_PODS = {
    "an empty pod": {},
    "all null": {"metadata": None, "spec": None, "status": None},
    "null inside": {
        "metadata": {"name": "odd", "uid": "odd", "namespace": None, "labels": None, "annotations": None},
        "spec": {"containers": None, "initContainers": None, "nodeName": None, "priority": None},
        "status": {"phase": None},
    },
    "a container without resources": {"metadata": {"name": "odd", "uid": "odd"}, "spec": {"containers": [{"resources": None}, {}]}},
    "a Unicode name": {"metadata": {"name": "größe-日本-🚀\u2028", "uid": "ünï", "namespace": "näme"}},
    "a NUL in the name": {"metadata": {"name": "a\0b", "uid": "nul"}},
    "a very long name": {"metadata": {"name": "n" * 500_000, "uid": "u" * 500_000}},
    "a slash in the name": {"metadata": {"name": "../../etc/passwd", "uid": "slash"}},
    "an unknown phase": {"metadata": {"name": "odd", "uid": "odd"}, "status": {"phase": "Weird"}},
    "a fraction for an integer": {"metadata": {"name": "odd", "uid": "odd"}, "spec": {"priority": 1.0}},
    "nested as deep as the parser goes": json.loads(nested(150))["Pod"],
    "numbers beyond every type": json.loads('{"x": [1e400, -1e400, 1' + "0" * 400 + "]}"),
}  # fmt: skip


@pytest.mark.parametrize("labels", [None, {f"{GROUP}/function": "half"}], ids=["of others", "ours"])
@pytest.mark.parametrize("odd", ODD_PODS.values(), ids=ODD_PODS)
def test_odd_pods(shared, odd, labels):
    """A pod whose read fields are valid passes, whatever the other fields are."""
    pending = dict(odd)
    if labels is not None:
        pending["metadata"] = dict(pending.get("metadata") or {}) | {"labels": labels}
    for nodes in ({"NodeNames": ["n1"]}, {"Nodes": {"items": [node("n1")]}}):
        response = send(shared, "filter", json.dumps(args(pending, NodeNames=None) | nodes))
        assert response.status_code == 200
        answer = response.json()
        assert answer["Error"] == ""
        assert answer["NodeNames"] == ["n1"] or len(answer["Nodes"]["items"]) == 1
    scored = send(shared, "prioritize", json.dumps(args(pending)))
    assert [entry["Host"] for entry in scored.json()] == ["n1"]
    preempted = send(shared, "preempt", json.dumps(args(pending, NodeNameToMetaVictims={})))
    assert preempted.json() == {"NodeNameToMetaVictims": {}}
    assert shared.client.get("/v1/snapshot").status_code == 200


@pytest.mark.parametrize("null", ["metadata", "spec", "status"])
def test_a_pod_with_a_null_part_is_bound(shared, null):
    """Kubernetes' own clients write null for what is absent."""
    pending = pod() if null == "metadata" else pod("half")
    shown = pending | {null: None} if null != "metadata" else pending
    shared.filter(shown, "n1")
    assert shared.bind(pending, "n1") == ""
    shared.finish(pending)


@pytest.mark.parametrize("plan", ["NaN", '{"x": NaN}', '{"cpu": 1' + "0" * 400 + "}", '{"cpu": -7}', '{"cpu": 1e400}', '{"x": "\\ud800"}', "[" * 100_000, "[]", '{"cpu": true}', '{"gpu_model": []}', "{"], ids=lambda text: text[:20])  # fmt: skip
def test_a_forged_plan_on_a_bound_pod(shared, plan):
    """A plan written by hand is shown or left out, and does not stop the service."""
    forged = {"gpu": "GPU-n2-1", "gpu-percent": "10", "gpu-memory": "0=100M", "batch": "1"}
    pending = pod("half", annotations=forged | {"plan": plan})
    pending["spec"]["nodeName"] = "n2"
    shared.create(pending)
    explanation = shared.explain(pending)
    assert explanation["node"] == "n2"
    assert explanation["granted"]["gpu_percent"] == 10
    assert shared.gpus("n2")[1]["free_percent"] == 90
    n2 = next(n for n in shared.get("/v1/snapshot")["nodes"] if n["name"] == "n2")
    assert n2["cpu_free_milli"] == 16_000
    shared.create(pending | {"status": {"phase": "Running"}})
    shared.finish(pending)
    assert shared.gpus("n2")[1]["free_percent"] == 100
    assert shared.client.get("/metrics").status_code == 200


@pytest.mark.parametrize(
    "grant",
    [
        {"gpu-percent": "0"},
        {"gpu-percent": "101"},
        {"gpu-percent": "1e2"},
        {"gpu-memory": "0=-4M"},
        {"gpu-memory": "4000"},
        {"gpu-memory": "0=99999999999M"},
        {"batch": "0"},
        {"batch": "-1"},
    ],
    ids=lambda grant: " ".join(*grant.items()),
)
def test_a_forged_grant_on_a_bound_pod(shared, grant):
    """Explain reports a grant that cannot be read, and it takes no share."""
    sound = {"gpu": "GPU-n2-1", "gpu-percent": "10", "gpu-memory": "0=100M", "batch": "1"}
    pending = pod("half", annotations=sound | grant)
    pending["spec"]["nodeName"] = "n2"
    shared.create(pending)
    (key, value) = next(iter(grant.items()))
    assert shared.explain(pending)["granted"] is None
    assert f"annotation esg-scheduler.io/{key}: {value!r}" in shared.explain(pending)["error"]
    assert shared.gpus("n2")[1]["free_percent"] == 100
    shared.finish(pending)
