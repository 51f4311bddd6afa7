"""Requests as the real Go types write them, and our answers as the real Go types read them.

`golden/` is written by the Go program of the test bed (`python -m tests.testbed.contract`).
"""

import json

import pytest

from scheduler.model.document_reader import read_documents
from tests.extender.factories import node, pod
from tests.extender.harness import Clock, embedded
from tests.testbed import REPOSITORY
from tests.testbed.contract import GOLDEN, Kind, decode
from tests.testbed.fixtures import needs_go

KINDS: dict[str, Kind] = {
    "filter": "ExtenderFilterResult",
    "prioritize": "HostPriorityList",
    "bind": "ExtenderBindingResult",
    "preempt": "ExtenderPreemptionResult",
}
REQUESTS = sorted(GOLDEN.glob("request-*.json"), key=lambda path: path.stem)
ARRIVED = 1_767_323_045.25  # 2026-01-02T03:04:05.250Z, as the golden pods say


def verb_of(path):
    return path.stem.split("-")[1]


def golden(name):
    return json.loads((GOLDEN / f"{name}.json").read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def samples():
    """The sample workflows and profiles of deploy/."""
    sample_documents = []
    for path in sorted((REPOSITORY / "deploy" / "samples").glob("*.yaml")):
        documents, problems = read_documents(path.read_text(encoding="utf-8"), path.name)
        assert problems == []
        sample_documents += documents
    return sample_documents


@pytest.fixture
def extender(samples):
    """The service over the nodes of the golden files, an instant after the arrival."""
    nodes = [node(f"node-{i:03}") for i in range(3)]
    with embedded(nodes=nodes, documents=samples, clock=Clock(ARRIVED + 0.1)) as running:
        yield running


def answers(extender, path):
    """Send a golden request after the calls that must come before it; return the raw answer."""
    if verb_of(path) == "bind":
        shown = "request-filter-unicode" if "unicode" in path.stem else "request-filter-names"
        extender.post("filter", golden(shown))
    if verb_of(path) == "preempt":
        victim = golden("request-preempt-victims")["NodeNameToVictims"]["node-000"]["Pods"][0]
        extender.post("filter", {"Pod": victim | {"spec": {}}, "NodeNames": ["node-000"]})
        assert extender.bind(victim, "node-000") == ""
    response = extender.client.post(
        f"/{verb_of(path)}",
        content=path.read_bytes(),
        headers={"Content-Type": "application/json"},
    )
    assert response.status_code == 200, response.text
    return response.content


def test_there_are_golden_requests_for_each_verb():
    """The folder is not empty, and no verb is missing."""
    assert set(KINDS) == {verb_of(path) for path in REQUESTS}


@pytest.mark.parametrize("path", REQUESTS, ids=lambda path: path.stem)
def test_a_golden_request_is_answered(extender, path):
    """A request of kube-scheduler's own types is accepted, and answered without an Error."""
    answer = json.loads(answers(extender, path))
    if verb_of(path) == "prioritize":
        assert [f"node-{i:03}" for i in range(3)] == [entry["Host"] for entry in answer]
        assert all(entry["Score"] > 0 for entry in answer)
    elif verb_of(path) == "filter":
        assert answer["Error"] == ""
        names = golden(path.stem)["NodeNames"] or []
        items = (golden(path.stem)["Nodes"] or {"items": []})["items"]
        assert (answer["NodeNames"] or []) == names
        assert (answer["Nodes"] or {"items": []})["items"] == items
    elif verb_of(path) == "bind":
        assert answer == {"Error": ""}
    else:
        victims = answer["NodeNameToMetaVictims"]["node-000"]
        assert victims["Pods"][0] == {"UID": "00000000-0000-4000-8000-000000000002"}


@needs_go
@pytest.mark.e2e
@pytest.mark.parametrize("path", REQUESTS, ids=lambda path: path.stem)
def test_go_reads_our_answer(extender, path):
    """The real Go types decode our answer, strictly, and lose nothing of it."""
    content = answers(extender, path)
    again = decode(KINDS[verb_of(path)], content)
    assert json.loads(content) == again


@needs_go
@pytest.mark.e2e
def test_go_reads_a_refusal(extender):
    """An answer with reasons only, and one with an Error, decode too."""
    question = golden("request-filter-names") | {"NodeNames": ["ghost"]}
    refused = extender.post("filter", question)
    assert list(refused["FailedAndUnresolvableNodes"]) == ["ghost"]
    wrong = extender.filter(pod("nobody"), "node-000")
    assert wrong["Error"]
    for answer in (refused, wrong):
        assert answer == decode("ExtenderFilterResult", json.dumps(answer).encode())
