"""Mutation of pods of a pool: holders see no GPU, members request no percent."""

import json

import pytest

from scheduler.model import names
from scheduler.model.pod_resources import requested_cpu_milli
from scheduler.webhook.mutation import VOLUME, PodDefaults
from tests.webhook.factories import DEFAULTS, admission, admitted, environment, pod, respond

SHARE = names.RESOURCE_GPU_PERCENT
CONFIGURATION = json.dumps({"batch": 1, "cpu": 2, "gpuPercent": 28})


def holder(requests=None, **metadata):
    """Create a holder with limits alone, as an operator may write it."""
    sizes = {"cpu": "4", SHARE: "60"} if requests is None else requests
    container = {"name": "hold", "image": "i", "resources": {"limits": sizes, "requests": sizes}}
    return pod(container, labels={names.LABEL_POOL: "holder"}, **metadata)


def member(*containers, **metadata):
    return pod(
        *containers,
        labels={names.LABEL_POOL: "member", names.LABEL_FUNCTION: "f"},
        annotations={names.ANNOTATION_CONFIGURATION: CONFIGURATION},
        **metadata,
    )


def test_a_holder_sees_no_gpu_and_has_no_limits_of_mps():
    """Its process does nothing; a forged grant goes, and its scheduler is set."""
    defaults = PodDefaults(mps_root="/run/mps", scheduler_name="esg-scheduler")
    raw = holder(annotations={names.ANNOTATION_GPU: "GPU-forged"})
    raw["spec"]["volumes"] = [{"name": VOLUME, "hostPath": {"path": "/run/mps"}}]
    after = admitted(admission(defaults=defaults), raw)
    [container] = after["spec"]["containers"]
    assert environment(container) == {"NVIDIA_VISIBLE_DEVICES": "void"}
    assert container["resources"]["requests"] == {"cpu": "4", SHARE: "60"}
    assert "volumeMounts" not in container
    assert after["spec"]["volumes"] == []
    assert after["spec"]["schedulerName"] == "esg-scheduler"
    assert after["metadata"]["annotations"] == {}


def test_a_holder_needs_no_planner():
    """It is admitted while no profile is known."""

    def never(_):
        raise AssertionError

    assert respond(admission(never), holder()).allowed


def test_a_member_names_the_percent_and_requests_none():
    """kube-scheduler calls the extender for it; its slice has the vCPUs of its runs."""
    after = admitted(admission(), member({"name": "main", "resources": {"requests": {"cpu": "3"}}}))
    [container] = after["spec"]["containers"]
    assert container["resources"] == {
        "requests": {"cpu": "0", SHARE: "0"},
        "limits": {"cpu": "2", SHARE: "0"},
    }
    assert "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE" in environment(container)
    assert admitted(admission(), after) == after


def test_the_check_of_a_member_s_limits_requests_no_vcpu():
    """The pod as a whole requests none, so it fits where its slice has all vCPUs of the node."""
    defaults = PodDefaults(mps_root="/m", mps_uid=1001, check_image="esg:1")
    after = admitted(admission(defaults=defaults), member())
    assert len(after["spec"]["initContainers"]) == 1
    assert requested_cpu_milli(after) == 0
    assert admitted(admission(defaults=defaults), after) == after


def test_pods_of_a_pool_on_nodes_of_an_autoscaler():
    """No node of theirs is drained, and none is added for a member, which needs a slice."""
    autoscaled = admission(defaults=PodDefaults(mps_root="/run/mps", autoscaled=True))
    tolerated = {"key": names.TAINT_NO_EMPTY_GPU, "operator": "Exists"}
    for raw, tolerations in ((holder(), None), (member(), [tolerated])):
        after = admitted(autoscaled, raw)
        assert names.ANNOTATIONS_NO_DRAIN.items() <= after["metadata"]["annotations"].items()
        assert after["spec"].get("tolerations") == tolerations
        assert admitted(autoscaled, after) == after


@pytest.mark.parametrize(
    ("raw", "text"),
    [
        (holder({"cpu": "4"}), "set esg-scheduler.io/gpu-percent (0)"),
        (holder({"cpu": "4", SHARE: "101"}), "from 1 to 100"),
        (holder({"cpu": "500m", SHARE: "60"}), "1 or more; set cpu (0.5)"),
        (
            pod(labels={names.LABEL_POOL: "member", names.LABEL_FUNCTION: "f"}),
            "set the annotation esg-scheduler.io/configuration",
        ),
        (
            member({"name": "main", "resources": {"requests": {SHARE: "5"}}}),
            "remove its request esg-scheduler.io/gpu-percent (5)",
        ),
        (pod(labels={names.LABEL_POOL: "owner"}), "must be holder or member"),
    ],
)
def test_a_wrong_pod_is_denied_with_its_remedy(raw, text):
    """The denial says what is wrong, where, and what to do."""
    response = respond(admission(defaults=DEFAULTS), raw)
    assert not response.allowed
    assert response.status is not None
    assert response.status.code == 422
    assert text in response.status.message
