"""When a pod's share is free again: when its containers have ended or it is gone, not before."""

from tests.extender.cases import pod


def seen(extender, asked, **changed):
    """Let the reflector's handler see the bound pod, changed as the API server would show it."""
    raw = extender.on_loop(
        lambda: extender.service.link._bound[
            asked["metadata"]["namespace"], asked["metadata"]["name"]
        ]
    )
    raw = raw | {key: raw[key] | value for key, value in changed.items()}
    extender.on_loop(extender.service.state.pods.upsert, raw)


def free(extender, node="n1"):
    return [gpu["free_percent"] for gpu in extender.gpus(node)]


def delete(extender, asked):
    metadata = asked["metadata"]
    response = extender.client.delete(f"/v1/embedded/pods/default/{metadata['name']}")
    assert response.json() == {"status": "ok"}


def test_a_finished_pods_share_is_free(extender):
    """Succeeded or failed, its share is there for the next pod."""
    for phase in ("Succeeded", "Failed"):
        extender.place(asked := pod("whole"), "n1")
        assert free(extender) == [0, 100]
        name = asked["metadata"]["name"]
        response = extender.client.post(f"/v1/embedded/pods/default/{name}/finish?phase={phase}")
        assert response.json() == {"status": "ok"}
        assert free(extender) == [100, 100]


def test_a_terminating_pod_keeps_its_share(extender):
    """Its processes may still be on the GPU: the share is free when the containers have ended."""
    extender.place(asked := pod("whole"), "n1")
    seen(extender, asked, metadata={"deletionTimestamp": "2027-01-15T08:00:00Z"})
    assert free(extender) == [0, 100]
    seen(
        extender,
        asked,
        metadata={"deletionTimestamp": "2027-01-15T08:00:00Z"},
        status={"phase": "Failed"},
    )
    assert free(extender) == [100, 100]


def test_a_deleted_pods_share_is_free(extender):
    """Gone is gone, whatever its phase was; a second deletion finds nothing and is no error."""
    extender.place(asked := pod("whole"), "n1")
    delete(extender, asked)
    delete(extender, asked)
    assert free(extender) == [100, 100]
    assert "is not there any more" in extender.bind(asked, "n1")


def test_a_pod_made_anew_under_the_name(extender):
    """The old pod's share goes with it; the new one is bound under its own uid."""
    extender.place(old := pod("whole", name="same"), "n1")
    new = pod("half", name="same")
    assert extender.filter(new, "n1")["NodeNames"] == ["n1"]
    assert free(extender) == [100, 100]
    error = extender.bind(old, "n1")
    assert "was made anew" in error
    assert extender.bind(new, "n1") == ""
    assert free(extender) == [50, 100]


def test_a_bound_pod_shown_as_waiting_stays_bound(extender):
    """kube-scheduler may ask about a pod whose Binding it has not heard of yet."""
    extender.place(asked := pod("half"), "n1")
    answer = extender.filter(asked, "n1", "n2")
    assert answer["NodeNames"] == ["n1"]
    assert list(answer["FailedAndUnresolvableNodes"]) == ["n2"]
    assert free(extender) == [50, 100]


def test_finishing_what_is_not_bound(extender):
    """A pod that waits, or is not there, cannot finish; the message names it."""
    extender.filter(asked := pod("half", name="waits"), "n1")
    for name in (asked["metadata"]["name"], "nobody"):
        response = extender.client.post(f"/v1/embedded/pods/default/{name}/finish")
        assert response.status_code == 404
        assert response.json() == {"detail": f"no pod default/{name} is bound"}


def test_an_unknown_phase_is_refused(extender):
    """A pod ends in one of two ways."""
    extender.place(asked := pod("half"), "n1")
    name = asked["metadata"]["name"]
    response = extender.client.post(f"/v1/embedded/pods/default/{name}/finish?phase=Running")
    assert response.status_code == 422
    assert free(extender) == [50, 100]
