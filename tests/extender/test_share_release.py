"""Release of a pod's share: when its containers have ended or it is deleted, not before."""

from tests.extender.factories import pod


def seen(extender, pending, **changed):
    """Deliver the bound pod to the reflector's handler, changed as the API server would show it."""
    raw = extender.stored_pod(pending)
    raw = raw | {key: raw[key] | value for key, value in changed.items()}
    extender.on_loop(extender.service.state.pods.upsert, raw)


def free(extender, node="n1"):
    return [gpu["free_percent"] for gpu in extender.gpus(node)]


def test_a_finished_pods_share_is_free(extender):
    """After success or failure, its share is free for the next pod."""
    for phase in ("Succeeded", "Failed"):
        extender.place(pending := pod("whole"), "n1")
        assert free(extender) == [0, 100]
        extender.finish(pending, phase)
        assert free(extender) == [100, 100]


def test_a_terminating_pod_keeps_its_share(extender):
    """Its processes may still be on the GPU: the share is free when the containers have ended."""
    extender.place(pending := pod("whole"), "n1")
    seen(extender, pending, metadata={"deletionTimestamp": "2027-01-15T08:00:00Z"})
    assert free(extender) == [0, 100]
    seen(
        extender,
        pending,
        metadata={"deletionTimestamp": "2027-01-15T08:00:00Z"},
        status={"phase": "Failed"},
    )
    assert free(extender) == [100, 100]


def test_a_deleted_pods_share_is_free(extender):
    """A deletion frees the share in every phase; a second deletion is no error."""
    extender.place(pending := pod("whole"), "n1")
    extender.delete(pending)
    extender.delete(pending)
    assert free(extender) == [100, 100]
    assert "does not exist any more" in extender.bind(pending, "n1")


def test_a_pod_made_anew_under_the_name(extender):
    """The old pod's share is released with it; the new one is bound under its own uid."""
    extender.place(old := pod("whole", name="same"), "n1")
    new = pod("half", name="same")
    assert extender.filter(new, "n1")["NodeNames"] == ["n1"]
    assert free(extender) == [100, 100]
    error = extender.bind(old, "n1")
    assert "was recreated" in error
    assert extender.bind(new, "n1") == ""
    assert free(extender) == [50, 100]


def test_a_bound_pod_shown_as_waiting_stays_bound(extender):
    """kube-scheduler may send a pod whose Binding it has not received yet."""
    extender.place(pending := pod("half"), "n1")
    answer = extender.filter(pending, "n1", "n2")
    assert answer["NodeNames"] == ["n1"]
    assert list(answer["FailedAndUnresolvableNodes"]) == ["n2"]
    assert free(extender) == [50, 100]
