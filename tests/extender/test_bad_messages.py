"""Bad messages: each has a clear error at the right place, none a 500."""

# ruff: noqa: E501 - a row of a table is one line

import json
import socket
import time

import pytest

from tests.extender.bad_input import VERBS, args, nested, send
from tests.extender.factories import pod

pytestmark = pytest.mark.usefixtures("goes_on")
MIB = 2**20

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
