"""Bad input: each has a clear error at the right place, none a 500, and the service continues."""

# ruff: noqa: E501 - a row of a table is one line

import json
import socket
import time
from collections.abc import Iterator

import pytest

from tests.extender.factories import DOCUMENTS, GROUP, bare_node, gpu, node, pod
from tests.extender.harness import Extender, embedded

MIB = 2**20
JSON = {"Content-Type": "application/json"}


@pytest.fixture(autouse=True)
def goes_on(shared: Extender) -> Iterator[None]:
    """After each of these tests a valid filter call is answered as before."""
    yield
    answer = shared.filter(pod("half"), "n1", "bare")
    assert answer["NodeNames"] == ["n1"]
    assert list(answer["FailedAndUnresolvableNodes"]) == ["bare"]


def args(pending, **fields):
    return {"Pod": pending, "NodeNames": ["n1"]} | fields


def send(shared, verb, body, **headers):
    return shared.client.post(f"/{verb}", content=body, headers=JSON | headers)


def nested(depth):
    return b'{"Pod":{"spec":' + b'{"a":' * depth + b"1" + b"}" * depth + b'},"NodeNames":[]}'


VERBS = ("filter", "prioritize", "bind", "preempt", "v1/embedded/pods")

NOT_JSON = {
    "an empty body": b"",
    "a blank body": b"  \n",
    "cut off": b'{"Pod": {"metadata": {"name": "a"',
    "a trailing comma": b'{"Pod": {},}',
    "something after the end": b'{"Pod": {}} {}',
    "single quotes": b"{'Pod': {}}",
    "YAML": b"Pod:\n  metadata: {}\n",
    "a form": b"Pod=%7B%7D&NodeNames=n1",
    "not UTF-8": b'{"Pod": {"metadata": {"name": "\xff\xfe"}}}',
    "UTF-16": '{"Pod": {}}'.encode("utf-16"),
    "a raw NUL byte": b'{"Pod": {"metadata": {"name": "a\x00b"}}}',
    "a lone surrogate": b'{"Pod": {"metadata": {"name": "\\ud800"}}, "NodeNames": []}',
    "a reversed pair of surrogates": b'{"Pod": {"metadata": {"name": "\\udc00\\ud800"}}}',
    "nested too deeply": nested(100_000),
}


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize("body", NOT_JSON.values(), ids=NOT_JSON.keys())
def test_what_is_not_json(shared, verb, body):
    """400, with the parser's message and the position."""
    response = send(shared, verb, body)
    assert response.status_code == 400
    assert response.json()["detail"].startswith("the body is not JSON: ")
    assert " at line " in response.json()["detail"]


WRONG_FORM = {
    # Each has the verb, the message, the place that the answer names, and what it says of it.
    "an array": ("filter", [], "ExtenderArgs", "object"),
    "null": ("filter", None, "ExtenderArgs", "object"),
    "a number": ("bind", 7, "ExtenderBindingArgs", "object"),
    "no pod": ("filter", {"NodeNames": ["n1"]}, "Pod", "required"),
    "no pod to score": ("prioritize", {}, "Pod", "required"),
    "no pod to make room for": ("preempt", {"NodeNameToMetaVictims": {}}, "Pod", "required"),
    "pod in lower case": ("filter", {"pod": {}}, "Pod", "required"),
    "pod is null": ("filter", {"Pod": None}, "Pod", "object"),
    "pod is a name": ("filter", args("pod-1"), "Pod", "object"),
    "metadata is a list": ("filter", args({"metadata": []}), "Pod.metadata", "object"),
    "a name that is a number": ("filter", args({"metadata": {"name": 7}}), "Pod.metadata.name", "string"),
    "labels are a list": ("filter", args({"metadata": {"labels": ["a"]}}), "Pod.metadata.labels", "object"),
    "a label that is a number": ("filter", args({"metadata": {"labels": {"a": 1}}}), "Pod.metadata.labels.a", "string"),
    "an annotation that is an object": ("filter", args({"metadata": {"annotations": {"a": {}}}}), "Pod.metadata.annotations.a", "string"),
    "containers are an object": ("filter", args({"spec": {"containers": {}}}), "Pod.spec.containers", "array"),
    "a container that is null": ("filter", args({"spec": {"containers": [None]}}), "Pod.spec.containers.0", "object"),
    "a cpu that is a list": ("filter", args({"spec": {"containers": [{"resources": {"requests": {"cpu": []}}}]}}), "Pod.spec.containers.0.resources.requests.cpu.str", "string"),
    "a priority that is a word": ("filter", args({"spec": {"priority": "high"}}), "Pod.spec.priority", "integer"),
    "a priority that is text": ("filter", args({"spec": {"priority": "7"}}), "Pod.spec.priority", "integer"),
    "a priority that is true": ("filter", args({"spec": {"priority": True}}), "Pod.spec.priority", "integer"),
    "a cpu that is true": ("filter", args({"spec": {"containers": [{"resources": {"requests": {"cpu": True}}}]}}), "Pod.spec.containers.0.resources.requests.cpu.str", "string"),
    "a priority beyond int32": ("filter", args({"spec": {"priority": 2**31}}), "Pod.spec.priority", "less than"),
    "names are an object": ("filter", args({}, NodeNames={}), "NodeNames", "array"),
    "a name that is null": ("filter", args({}, NodeNames=["n1", None]), "NodeNames.1", "string"),
    "nodes are a list": ("filter", args({}, Nodes=[]), "Nodes", "object"),
    "nodes without items": ("filter", args({}, Nodes={}), "Nodes.items", "required"),
    "a node without a name": ("filter", args({}, Nodes={"items": [{"metadata": {}}]}), "Nodes.items.0.metadata.name", "required"),
    "bind without a node": ("bind", {"PodName": "a", "PodNamespace": "b", "PodUID": "c"}, "Node", "required"),
    "bind to nothing": ("bind", {"PodName": "a", "PodNamespace": "b", "PodUID": "c", "Node": ""}, "Node", "at least 1"),
    "bind without a uid": ("bind", {"PodName": "a", "PodNamespace": "b", "PodUID": "", "Node": "n1"}, "PodUID", "at least 1"),
    "a very long node": ("bind", {"PodName": "a", "PodNamespace": "b", "PodUID": "c", "Node": "n" * 254}, "Node", "at most 253"),
    "a victim without a uid": ("preempt", args({}, NodeNameToMetaVictims={"n1": {"Pods": [{}]}}), "NodeNameToMetaVictims.n1.Pods.0.UID", "required"),
    "a victim that is null": ("preempt", args({}, NodeNameToVictims={"n1": {"Pods": [None]}}), "NodeNameToVictims.n1.Pods.0", "object"),
    "violations below zero": ("preempt", args({}, NodeNameToMetaVictims={"n1": {"NumPDBViolations": -1}}), "NodeNameToMetaVictims.n1.NumPDBViolations", "greater than"),
    "a shown pod without a name": ("v1/embedded/pods", {"metadata": {"uid": "u"}}, "metadata.name", "required"),
    "a shown pod without metadata": ("v1/embedded/pods", {"spec": {}}, "metadata", "required"),
}  # fmt: skip


@pytest.mark.parametrize(("verb", "message", "where", "what"), WRONG_FORM.values(), ids=WRONG_FORM)
def test_what_is_no_such_message(shared, verb, message, where, what):
    """422, with the path of the field and its requirement."""
    response = send(shared, verb, json.dumps(message))
    assert response.status_code == 422
    detail = response.json()["detail"]
    assert f": {where}: " in detail
    assert what in detail.lower()


def test_many_mistakes_are_counted(shared):
    """The first error is reported in full, the others by their number."""
    response = send(shared, "filter", json.dumps({"Pod": 1, "NodeNames": [1, 2], "Nodes": []}))
    assert response.json()["detail"].startswith("this is no ExtenderArgs: Pod: ")
    assert response.json()["detail"].endswith("(and 3 more)")


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
    "an unknown workflow": ({"workflow": "nowhere", "stage": "half"}, "workflow default/nowhere is not known (namespace default has: chain, lone-stage, unprofiled); create the Workflow, or correct the pod's label"),
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
    shared.post("v1/embedded/pods", pending)
    explanation = shared.explain(pending)
    assert explanation["node"] == "n2"
    assert explanation["granted"]["gpu_percent"] == 10
    assert shared.gpus("n2")[1]["free_percent"] == 90
    n2 = next(n for n in shared.get("/v1/snapshot")["nodes"] if n["name"] == "n2")
    assert n2["cpu_free_milli"] == 16_000
    shared.post("v1/embedded/pods", pending | {"status": {"phase": "Running"}})
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
    shared.post("v1/embedded/pods", pending)
    (key, value) = next(iter(grant.items()))
    assert shared.explain(pending)["granted"] is None
    assert f"annotation esg-scheduler.io/{key}: {value!r}" in shared.explain(pending)["error"]
    assert shared.gpus("n2")[1]["free_percent"] == 100
    shared.finish(pending)


@pytest.mark.parametrize("chunked", [False, True], ids=["with its length", "in chunks"])
def test_two_megabytes_are_taken(shared, chunked):
    """A pod with 2 MB of environment is below the limit."""
    pending = pod("half")
    pending["spec"]["containers"][0]["env"] = [{"name": "BLOB", "value": "x" * 2_000_000}]
    body = json.dumps(args(pending)).encode()
    sent = (body[i : i + 65_536] for i in range(0, len(body), 65_536)) if chunked else body
    response = send(shared, "filter", sent)
    assert response.status_code == 200
    assert response.json()["NodeNames"] == ["n1"]


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize("chunked", [False, True], ids=["with its length", "in chunks"])
def test_beyond_the_limit(shared, verb, chunked):
    """413 with the limit and its setting, for every way to send the body."""
    body = b" " * (4 * MIB + 1)
    sent = (body[i : i + 65_536] for i in range(0, len(body), 65_536)) if chunked else body
    response = send(shared, verb, sent)
    assert response.status_code == 413
    assert response.json()["detail"] == "the body is larger than 4,194,304 bytes (ESG_BODY_MAX_MIB)"


def test_client_that_hangs_up_within_a_body(shared, capfd):
    """The log has one line about it, and no traceback."""
    with socket.create_connection(("127.0.0.1", shared.port)) as connection:
        connection.sendall(b"POST /bind HTTP/1.1\r\nHost: h\r\nContent-Length: 100\r\n\r\n{")
    logged = ""
    deadline_s = time.monotonic() + 60
    while "hung up" not in logged and time.monotonic() < deadline_s:
        logged += "".join(capfd.readouterr())
        time.sleep(0.01)
    assert shared.client.get("/readyz").status_code == 200
    lines = [*logged.splitlines(), *"".join(capfd.readouterr()).splitlines()]
    [line] = [line for line in lines if line.strip()]
    assert "client hung up within the body" in line
    assert "/bind" in line


def test_at_the_limit(shared):
    """A body of exactly the limit is accepted."""
    message = json.dumps(args(pod("half"))).encode()
    response = send(shared, "filter", message + b" " * (4 * MIB - len(message)))
    assert response.status_code == 200


@pytest.mark.parametrize("kind", ["text/plain", "application/x-www-form-urlencoded", "", "application/json; charset=latin-1", "🚀".encode()], ids=str)  # fmt: skip
def test_the_content_type_does_not_matter(shared, kind):
    """JSON is read with any content type: client libraries differ."""
    body = json.dumps(args(pod("half"))).encode()
    response = shared.client.post("/filter", content=body, headers={"Content-Type": kind})
    assert response.json()["NodeNames"] == ["n1"]


@pytest.mark.parametrize(
    ("method", "path", "allow"),
    [
        *[(method, f"/{verb}", "POST") for verb in VERBS for method in ("GET", "PUT", "DELETE")],
        *[("POST", path, "GET") for path in ("/healthz", "/readyz", "/metrics", "/v1/snapshot")],
        ("POST", "/v1/explain/a/b", "GET"),
    ],
)
def test_the_wrong_method(shared, method, path, allow):
    """405 with the allowed method."""
    response = shared.client.request(method, path)
    assert response.status_code == 405
    assert response.headers["allow"] == allow
    assert response.json() == {"detail": "Method Not Allowed"}


@pytest.mark.parametrize("path", ["/", "/Filter", "/filter/x", "/v1/explain/default", "/v1/explain//", "/%00", "/v1/explain/a/b/c", "/%ff"])  # fmt: skip
def test_no_such_path(shared, path):
    """404 in JSON, like every other error."""
    response = shared.client.get(path)
    assert response.status_code == 404
    assert response.json() == {"detail": "Not Found"}


@pytest.mark.parametrize("name", ["%ff", "%00", "%F0%9F%9A%80", "a" * 10_000, "%2e%2e", "a%0Ab"])
def test_explain_odd_names(shared, name):
    """A name that no pod has is repeated as it was decoded."""
    response = shared.client.get(f"/v1/explain/default/{name}")
    assert response.status_code == 404
    assert response.json()["detail"].startswith("there is no pod default/")


def inventory(*gpus):
    return json.dumps(list(gpus))


BROKEN_NODES = {
    # the annotation as it stands, and the reason that filter gives
    "not JSON": ("{oops", "annotation esg-scheduler.io/gpus: Invalid JSON: "),
    "empty": ("", "annotation esg-scheduler.io/gpus: Invalid JSON: "),
    "an object": ("{}", "annotation esg-scheduler.io/gpus: Input should be a valid array"),
    "a GPU that is a word": ('["A100"]', "annotation esg-scheduler.io/gpus[0]: "),
    "a missing field": ('[{"index": 0}]', "annotation esg-scheduler.io/gpus[0].uuid: Field required"),
    "a duplicate uuid": (inventory(gpu(0, "b"), gpu(1, "b", uuid="GPU-b-0")), "annotation esg-scheduler.io/gpus: two GPUs have the same uuid"),
    "memory below zero": (inventory(gpu(0, "b"), gpu(1, "b", memory_mib=-1)), "annotation esg-scheduler.io/gpus[1].memory_mib: Input should be greater than or equal to 1"),
    "memory in words": (inventory(gpu(0, "b", memory_mib="80GB")), "gpus[0].memory_mib: Input should be a valid integer"),
    "memory beyond every type": (inventory(gpu(0, "b", memory_mib=10**30)), "gpus[0].memory_mib: Input should be less than"),
    "an index below zero": (inventory(gpu(-1, "b")), "gpus[0].index: Input should be greater than or equal to 0"),
    "healthy in words": (inventory(gpu(0, "b", healthy="yes")), "gpus[0].healthy: Input should be a valid boolean"),
    "a uuid with a space": (inventory(gpu(0, "b", uuid="GPU 0")), "gpus[0].uuid: String should match pattern"),
    "a uuid with a line end": (inventory(gpu(0, "b", uuid="GPU-0\n")), "gpus[0].uuid: String should match pattern"),
    "more GPUs than a node has": (inventory(*(gpu(i, "b") for i in range(65))), "annotation esg-scheduler.io/gpus: Tuple should have at most 64 items"),
    "nested too deeply": ("[" * 100_000, "annotation esg-scheduler.io/gpus: Invalid JSON: "),
    "a lone surrogate": ('[{"model": "\\ud800"}]', "annotation esg-scheduler.io/gpus: Invalid JSON: "),
}  # fmt: skip


@pytest.fixture(scope="module")
def broken():
    """A cluster of broken nodes, each named by its fault, and a valid one."""
    nodes = [node(name, inventory=text) for name, (text, _) in BROKEN_NODES.items()]
    nodes += [node("sound"), bare_node("bare"), node("half-sound", cpu="lots")]
    nodes.append(
        node("ill")
        | {
            "metadata": {
                "name": "ill",
                "annotations": {f"{GROUP}/gpus": inventory(gpu(0, "ill", healthy=False))},
            }
        }
    )
    nodes.append(node("other", inventory=inventory(gpu(0, "other", model="Tesla T4"))))
    nodes.append({"metadata": {"name": "no status"}})
    with embedded(nodes=nodes, documents=DOCUMENTS) as running:
        yield running


@pytest.mark.parametrize("name", BROKEN_NODES)
def test_a_broken_node(broken, name):
    """Its reason names the annotation, the field and the fault; the valid node passes."""
    answer = broken.filter(pod("half"), name, "sound")
    assert answer["NodeNames"] == ["sound"]
    assert BROKEN_NODES[name][1] in answer["FailedAndUnresolvableNodes"][name]
    assert len(answer["FailedAndUnresolvableNodes"][name]) < 300
    assert answer["Error"] == ""


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("bare", "the node has no GPU to share (no inventory annotation)"),
        ("half-sound", "status.allocatable.cpu: 'lots' is no Kubernetes quantity; write it as 2, 500m or 1.5"),
        ("ill", "its GPUs of a fitting model are unhealthy (GPU 0)"),
        ("other", "its GPUs are Tesla T4; the plan fits on NVIDIA A100-SXM4-80GB"),
        ("no status", "the node has no GPU to share (no inventory annotation)"),
    ],
)  # fmt: skip
def test_a_node_that_cannot_serve(broken, name, says):
    """A node without a usable GPU has a reason that eviction cannot change."""
    answer = broken.filter(pod("half"), name, "sound")
    assert {name: says} == answer["FailedAndUnresolvableNodes"]
    assert answer["NodeNames"] == ["sound"]
