"""Unreadable objects: reported at the first scrape, once per object, until they are fixed."""

import copy

import pytest
from prometheus_client.parser import text_string_to_metric_families
from structlog.testing import capture_logs

from scheduler.cluster.binding import BindOutcome
from scheduler.model.documents import to_manifest
from tests.extender.factories import GROUP, pod, profile, workflow

UNREADABLE, UNUSABLE = "esg_unreadable_grants", "esg_unusable_documents"


def samples_of(extender, series):
    """Read the samples of a series, by their labels."""
    text = extender.client.get("/metrics").text
    return {
        tuple(sample.labels.values()): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if sample.name == series
    }


def value(extender, series):
    [(_, family)] = samples_of(extender, series).items()
    return family


def bound(**changed):
    """A bound pod with half a GPU, as the API server shows it."""
    grant = {"gpu": "GPU-n1-0", "gpu-percent": "50", "gpu-memory": "0=4000M", "batch": "1"}
    raw = pod("half", annotations=grant | changed)
    raw["spec"]["nodeName"] = "n1"
    return raw


def with_grant(raw, **changed):
    raw = copy.deepcopy(raw)
    raw["metadata"]["annotations"] |= {f"{GROUP}/{key}": text for key, text in changed.items()}
    return raw


def test_grants_that_were_there_before_the_service_are_told(extender):
    """They are in its first list, and a later list or update does not count them again."""
    pods, bad = extender.service.state.pods, [bound(batch="many"), bound(batch="few")]
    with capture_logs() as logged:
        for _ in range(3):
            extender.on_loop(pods.replace, [bound(), *bad])
            extender.on_loop(pods.upsert, bad[0])
            assert value(extender, UNREADABLE) == 2
    assert [line["event"] for line in logged] == ["grant cannot be read"] * 2
    assert {line["pod"] for line in logged} == {f"default/{p['metadata']['name']}" for p in bad}


@pytest.mark.parametrize("end", ["mended", "ended", "deleted", "gone from the next list"])
def test_a_grant_is_told_for_as_long_as_it_is_there(extender, end):
    """Nothing is left to alert on, whichever way it ends."""
    pods, bad = extender.service.state.pods, bound(batch="many")
    extender.on_loop(pods.upsert, bad)
    assert value(extender, UNREADABLE) == 1
    act, shown = {
        "mended": (pods.upsert, with_grant(bad, batch="1")),
        "ended": (pods.upsert, bad | {"status": {"phase": "Failed"}}),
        "deleted": (pods.delete, bad),
        "gone from the next list": (pods.replace, []),
    }[end]
    extender.on_loop(act, shown)
    assert value(extender, UNREADABLE) == 0


def test_a_grant_that_was_read_past_the_watch_is_told_while_its_pod_holds_something(extender):
    """A list may be older than that read; a pod that was gone before any list is forgotten."""
    state, bad = extender.service.state, bound(batch="many")
    extender.on_loop(state.pods.adopt, bad, None)
    extender.on_loop(state.pods.replace, [])
    assert value(extender, UNREADABLE) == 1
    extender.on_loop(state.ledger.release, bad["metadata"]["uid"])
    extender.on_loop(state.pods.replace, [])
    assert value(extender, UNREADABLE) == 0


def test_another_fault_of_the_same_grant_is_logged(extender):
    """The log has the current fault of the grant; the metric still counts one grant."""
    pods, bad = extender.service.state.pods, bound(batch="many")
    with capture_logs() as logged:
        extender.on_loop(pods.upsert, bad)
        extender.on_loop(pods.upsert, with_grant(bad, batch="1", **{"gpu-percent": "1000"}))
    assert "batch" in logged[0]["problem"]
    assert "gpu-percent" in logged[1]["problem"]
    assert value(extender, UNREADABLE) == 1


def unusable(document):
    raw = to_manifest(document)
    raw["spec"] = {}
    return raw


def test_documents_of_both_kinds_are_told(extender):
    """Those of the first list count too, and each counts once, however often it is delivered."""
    state = extender.service.state
    flow, function = unusable(workflow("lost", 500, "half")), unusable(profile("lost", (10, 1)))
    with capture_logs() as logged:
        for _ in range(2):
            extender.on_loop(state.documents.workflows.replace, [flow])
            extender.on_loop(state.documents.profiles.upsert, function)
            assert value(extender, UNUSABLE) == 2
    assert [line["event"] for line in logged] == ["document cannot be used"] * 2


@pytest.mark.parametrize("end", ["mended", "deleted", "gone from the next list"])
def test_a_document_is_told_for_as_long_as_it_is_there(extender, end):
    """A document that is fixed is used again."""
    workflows, sound = extender.service.state.documents.workflows, workflow("lost", 500, "half")
    extender.on_loop(workflows.upsert, unusable(sound))
    assert value(extender, UNUSABLE) == 1
    act, shown = {
        "mended": (workflows.upsert, to_manifest(sound)),
        "deleted": (workflows.delete, unusable(sound)),
        "gone from the next list": (workflows.replace, []),
    }[end]
    extender.on_loop(act, shown)
    assert value(extender, UNUSABLE) == 0
    assert (sound in workflows.documents.values()) == (end == "mended")


def test_every_outcome_of_a_bind_is_told_before_the_first(extender):
    """Prometheus does not notice the first event of a counter that starts with it."""
    outcomes = {outcome.name.lower() for outcome in BindOutcome} | {"repeated"}
    assert samples_of(extender, "esg_bind_total") == {(outcome,): 0 for outcome in outcomes}
    extender.place(pod("half"), "n1")
    assert samples_of(extender, "esg_bind_total") == {
        (outcome,): outcome == "bound" for outcome in outcomes
    }
