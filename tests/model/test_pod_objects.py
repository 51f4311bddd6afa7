"""Pods of any kind, as an API server has them: owners, ends, times, and errors in labels."""

import pytest

from scheduler.model.grant import planned_run_ms
from scheduler.model.mps_folders import client_folders
from scheduler.model.pod import (
    function_pod,
    grace_period_s,
    has_ended,
    is_daemon,
    is_server,
    resource_claim,
)
from scheduler.model.pod_fields import PodError
from scheduler.model.pod_resources import requests_whole_gpu
from scheduler.model.rejection import rejection_of
from tests.extender.factories import GROUP, pod


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        ({"workflow": "w"}, "label {}/stage is missing; set it to a stage of workflow 'w'"),
        ({"function": ""}, "label {}/function is empty; set it to the name of a FunctionProfile"),
        ({"workflow": ""}, "label {}/workflow is empty; set it to the name of a Workflow"),
        ({"function": "f" * 64}, "label {}/function: 'f+' is longer than 63 characters"),
    ],
)
def test_a_label_that_names_nothing_is_an_error(labels, message):
    raw = {"metadata": {"labels": {f"{GROUP}/{key}": value for key, value in labels.items()}}}
    with pytest.raises(PodError, match=message.format(GROUP)):
        function_pod(raw)


@pytest.mark.parametrize(
    ("key", "text", "message"),
    [
        ("configuration", '{"batch": 0}', r"is not a configuration \('batch': .*write it as"),
        ("configuration", "[", r"is not a configuration \("),
        ("container", "gpu", r"'gpu' is not a container of the pod \(it has: function\)"),
        ("deadline", "now", "'now' is not an RFC 3339 time; write it as 2026-01-31T"),
        ("queued", "0", "'0' must be a whole number from 1 to 1000000"),
        ("rate", "-1", "'-1' must be requests per second, above 0 and at most 1e"),
    ],
)
def test_an_invalid_annotation_is_named_with_what_to_write(key, text, message):
    with pytest.raises(PodError, match=f"annotation {GROUP}/{key}: .*{message}"):
        function_pod(pod("f", annotations={key: text}))


@pytest.mark.parametrize("part", ["requests", "limits"])
def test_an_invalid_quantity_is_named(part):
    raw = pod("f")
    raw["spec"]["containers"][0]["resources"] = {part: {"cpu": "many"}}
    with pytest.raises(PodError, match=f"resources.{part}.cpu: 'many'"):
        function_pod(raw)


@pytest.mark.parametrize(
    ("kind", "daemon", "server"),
    [
        ("DaemonSet", True, False),
        ("Node", True, False),
        ("ReplicaSet", False, True),
        ("FunctionServer", False, True),
        ("Job", False, False),
        (None, False, False),
    ],
)
def test_the_owner_says_how_long_a_pod_runs(kind, daemon, server):
    """With its node, until it is deleted, or to its end."""
    owners = None if kind is None else [{"kind": "Other"}, {"kind": kind}]
    raw = {"metadata": {"ownerReferences": owners}}
    assert (is_daemon(raw), is_server(raw)) == (daemon, server)


@pytest.mark.parametrize(
    ("state", "expected"), [({"running": {}}, False), ({"terminated": {}}, True), (None, True)]
)
def test_a_pod_whose_container_runs_has_not_ended(state, expected):
    """The garbage collector of pods writes the phase without asking the kubelet."""
    for part in ("containerStatuses", "initContainerStatuses"):
        assert has_ended({"status": {"phase": "Failed", part: [{"state": state}]}}) is expected


@pytest.mark.parametrize(
    ("own_s", "deletion_s", "expected_s"),
    [(None, None, 35), (10, None, 15), (10, 60, 65), (None, 0, 35), (0, 0, 5), (600, 0, 605)],
)
def test_containers_may_outlive_their_pod_by_the_longest_grace(own_s, deletion_s, expected_s):
    """Kubernetes' default is 30 s, and a kubelet takes 5 more; force is not for containers."""
    raw = {
        "metadata": {"deletionGracePeriodSeconds": deletion_s},
        "spec": {"terminationGracePeriodSeconds": own_s},
    }
    assert grace_period_s(raw) == expected_s


@pytest.mark.parametrize(
    ("plan", "expected_ms"),
    [
        ('{"start_ms": 20, "stage_ms": 1.5}', (20.0, 1.5)),
        ('{"stage_ms": -1, "start_ms": "20"}', (0.0, 0.0)),
        ('{"stage_ms": 1e300}', (0.0, 0.0)),
        ("[]", (0.0, 0.0)),
        ("{", (0.0, 0.0)),
    ],
)
def test_planned_times_of_a_bound_pod(plan, expected_ms):
    """Those that a plan cannot have are unknown."""
    assert planned_run_ms({"metadata": {"annotations": {f"{GROUP}/plan": plan}}}) == expected_ms


@pytest.mark.parametrize(
    ("claims", "expected"),
    [
        (None, ""),
        ([{"name": "other", "resourceClaimName": "x"}], ""),
        ([{"name": "other"}, {"name": "esg-scheduler-grant", "resourceClaimName": "c"}], "c"),
        ([{"name": "esg-scheduler-grant"}], ""),
    ],
)
def test_the_claim_of_a_gpu_s_folders(claims, expected):
    """One that is made from a template has no name before it exists."""
    assert resource_claim({"spec": {"resourceClaims": claims}}) == expected


@pytest.mark.parametrize("part", ["containers", "initContainers"])
@pytest.mark.parametrize(
    ("resource", "expected"),
    [("nvidia.com/gpu", True), ("nvidia.com/mig-1g.5gb", True), (f"{GROUP}/gpu-percent", False)],
)
def test_a_pod_that_requests_whole_gpus_of_a_device_plugin(part, resource, expected):
    """MIG slices count, too, in any container."""
    asking = {"resources": {"requests": {"cpu": "1", resource: "1"}}}
    assert requests_whole_gpu({"spec": {part: [{}, asking]}}) is expected


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        ({"phase": "Failed", "reason": "OutOfcpu", "message": "no cpu"}, "OutOfcpu: no cpu"),
        ({"phase": "Failed", "reason": "UnexpectedAdmissionError"}, "UnexpectedAdmissionError"),
        ({"phase": "Failed", "reason": "Evicted", "message": "pressure"}, ""),
        ({"phase": "Running", "reason": "OutOfcpu"}, ""),
        ({"phase": "Failed"}, ""),
        (None, ""),
    ],
)
def test_a_rejection_by_the_kubelet_has_its_reason(status, expected):
    """A pod that ran and failed was not rejected."""
    assert rejection_of({"status": status}) == expected


def test_a_client_sees_its_gpu_s_folders_at_paths_without_its_uuid():
    """A container's environment is fixed before its GPU is known."""
    assert client_folders("/run/mps") == {"pipe": "/run/mps/pipe", "shm": "/dev/shm"}
