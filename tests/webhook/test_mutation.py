"""Mutation of a function pod: ceilings, the grant's environment, mounts of its GPU's folders."""

import pytest

from scheduler.model import names
from scheduler.model.names import CONTAINER_MPS_CHECK as NAME
from scheduler.webhook.mutation import VOLUME, PodDefaults
from tests.webhook.factories import (
    DEFAULTS,
    WORKFLOW,
    admission,
    admitted,
    annotation,
    candidate,
    environment,
    plan,
    pod,
    respond,
)

SHARE = names.RESOURCE_GPU_PERCENT
GRANTED = {
    "ESG_GPU": annotation("gpu"),
    "ESG_BATCH": annotation("batch"),
    "NVIDIA_VISIBLE_DEVICES": annotation("gpu"),
    "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": annotation("gpu-percent"),
    "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT": annotation("gpu-memory"),
    "CUDA_MPS_PIPE_DIRECTORY": "/run/mps/pipe",
}


def test_pod_with_only_labels_is_completed():
    """Labels alone are enough: the webhook adds everything else."""
    after = admitted(admission(), pod({"name": "main", "image": "i"}))
    [main] = after["spec"]["containers"]
    sizes = {"cpu": "2", SHARE: "28"}
    assert main["resources"] == {"requests": sizes, "limits": sizes}
    assert environment(main) == GRANTED
    assert main["volumeMounts"] == [
        {"name": VOLUME, "mountPath": "/run/mps/pipe", "subPathExpr": "$(ESG_GPU)/pipe"},
        {"name": VOLUME, "mountPath": "/dev/shm", "subPathExpr": "$(ESG_GPU)/shm"},
    ]
    assert after["spec"]["volumes"] == [
        {"name": VOLUME, "hostPath": {"path": "/run/mps", "type": "Directory"}}
    ]
    assert "securityContext" not in main
    assert "schedulerName" not in after["spec"]


def test_pod_with_only_the_function_label_is_mutated():
    """It gets the same as a stage of a workflow."""
    after = admitted(admission(), pod(labels={names.LABEL_FUNCTION: "f"}))
    assert environment(after["spec"]["containers"][0]) == GRANTED


@pytest.mark.parametrize(
    ("resources", "expected"),
    [
        pytest.param(
            {"requests": {"cpu": "1"}},
            {"requests": {"cpu": "1", SHARE: "28"}, "limits": {SHARE: "28"}},
            id="cpu requested: no limit is added to it",
        ),
        pytest.param(
            {"limits": {"cpu": "500m"}},
            {"requests": {SHARE: "28"}, "limits": {"cpu": "500m", SHARE: "28"}},
            id="cpu limited",
        ),
        pytest.param(
            {"requests": {SHARE: 40}},
            {"requests": {"cpu": "2", SHARE: 40}, "limits": {"cpu": "2", SHARE: 40}},
            id="share requested: the limit that Kubernetes demands is added",
        ),
        pytest.param(
            {"limits": {SHARE: "40"}},
            {"requests": {"cpu": "2", SHARE: "40"}, "limits": {"cpu": "2", SHARE: "40"}},
            id="share limited: the request that Kubernetes demands is added",
        ),
        pytest.param(
            {"requests": {"memory": "1Gi"}, "claims": [{"name": "c"}]},
            {
                "requests": {"memory": "1Gi", "cpu": "2", SHARE: "28"},
                "limits": {"cpu": "2", SHARE: "28"},
                "claims": [{"name": "c"}],
            },
            id="other resources stay",
        ),
    ],
)
def test_creators_resources_are_fixed_ceilings(resources, expected):
    """A ceiling of the creator stays; what Kubernetes requires in addition is added."""
    after = admitted(admission(), pod({"name": "main", "resources": resources}))
    assert after["spec"]["containers"][0]["resources"] == expected


def test_reserved_variables_of_the_creator_are_replaced():
    """GPU and MPS variables of the creator go; its other ones stay, last, in their order."""
    own_variables = [
        {"name": "MODEL", "value": "$(ESG_BATCH)"},
        {"name": "CUDA_VISIBLE_DEVICES", "value": "3"},
        {"name": "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", "value": "100"},
        {"name": "CUDA_MPS_LOG_DIRECTORY", "value": "/l"},
        {"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"},
        {"name": "NVIDIA_DRIVER_CAPABILITIES", "value": "compute"},
        {"name": "MODEL", "value": "again"},
    ]
    answer = respond(admission(), raw := pod({"name": "main", "env": own_variables}))
    after = admitted(admission(), raw)
    env = after["spec"]["containers"][0]["env"]
    assert [v["name"] for v in env] == [*GRANTED, "MODEL", "NVIDIA_DRIVER_CAPABILITIES", "MODEL"]
    assert environment({"env": env[: len(GRANTED)]}) == GRANTED
    [warning] = answer.warnings or ()
    assert warning == (
        "esg-scheduler overrides these variables: CUDA_VISIBLE_DEVICES, "
        "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE, CUDA_MPS_LOG_DIRECTORY, NVIDIA_VISIBLE_DEVICES"
    )


def test_a_replaced_mount_is_a_warning():
    """A /dev/shm of the creator's own does not apply; a second call repeats nothing."""
    mounts = [{"name": "shm", "mountPath": "dev/shm/"}, {"name": "data", "mountPath": "/data"}]
    raw = pod({"name": "main", "volumeMounts": mounts})
    [warning] = respond(admission(), raw).warnings or ()
    assert "replaces these mounts by its GPU's folders: dev/shm/;" in warning
    assert not respond(admission(), admitted(admission(), raw)).warnings


def test_other_containers_see_no_gpu():
    """An image that requests all GPUs by default gets none in a sidecar or an init container."""
    raw = pod({"name": "main"}, {"name": "side", "env": [{"name": "A", "value": "1"}]})
    raw["spec"]["initContainers"] = [
        {"name": "i", "env": [{"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"}]}
    ]
    after = admitted(admission(), raw)["spec"]
    assert environment(after["containers"][1]) == {"NVIDIA_VISIBLE_DEVICES": "void", "A": "1"}
    assert environment(after["initContainers"][0]) == {"NVIDIA_VISIBLE_DEVICES": "void"}
    assert "resources" not in after["containers"][1]
    assert "volumeMounts" not in after["containers"][1]


def test_annotation_names_the_container_that_gets_the_gpu():
    """The annotation selects that container, and the first one sees no GPU."""
    raw = pod({"name": "a"}, {"name": "b"}, annotations={names.ANNOTATION_CONTAINER: "b"})
    first, second = admitted(admission(), raw)["spec"]["containers"]
    assert environment(first) == {"NVIDIA_VISIBLE_DEVICES": "void"}
    assert environment(second) == GRANTED
    assert second["resources"]["limits"][SHARE] == "28"


@pytest.mark.parametrize("path", ["/dev/shm", "/dev/shm/", "dev/shm", "//dev/shm", "/run/mps/pipe"])
def test_conflicting_mount_is_removed(path):
    """Kubernetes refuses two mounts of one path; the one that MPS needs stays."""
    mounts = [{"name": "mine", "mountPath": path}, {"name": "data", "mountPath": "/data"}]
    raw = pod({"name": "main", "volumeMounts": mounts})
    raw["spec"]["volumes"] = [{"name": "mine", "emptyDir": {}}, {"name": "data", "emptyDir": {}}]
    after = admitted(admission(), raw)["spec"]
    assert [m["mountPath"] for m in after["containers"][0]["volumeMounts"]] == [
        "/run/mps/pipe",
        "/dev/shm",
        "/data",
    ]
    assert [v["name"] for v in after["volumes"]] == ["mine", "data", VOLUME]


def test_no_mount_shows_the_folders_of_other_gpus():
    """A volume of the webhook's name, or its mount without the GPU's sub-path, is replaced."""
    raw = pod({"name": "main", "volumeMounts": [{"name": VOLUME, "mountPath": "/all"}]})
    raw["spec"]["volumes"] = [{"name": VOLUME, "hostPath": {"path": "/"}}]
    after = admitted(admission(), raw)["spec"]
    assert [m["subPathExpr"] for m in after["containers"][0]["volumeMounts"]] == [
        "$(ESG_GPU)/pipe",
        "$(ESG_GPU)/shm",
    ]
    assert after["volumes"] == [
        {"name": VOLUME, "hostPath": {"path": "/run/mps", "type": "Directory"}}
    ]


@pytest.mark.parametrize("kind", ["containers", "initContainers"])
def test_no_other_container_mounts_the_folder_of_all_gpus(kind):
    """A volume that its creator gave the webhook's name is replaced; its mounts are removed."""
    mounts = [{"name": VOLUME, "mountPath": "/all"}, {"name": "data", "mountPath": "/data"}]
    raw = pod({"name": "main"})
    raw["spec"]["volumes"] = [{"name": VOLUME, "emptyDir": {}}, {"name": "data", "emptyDir": {}}]
    raw["spec"].setdefault(kind, []).append({"name": "side", "volumeMounts": mounts})
    after = admitted(admission(), raw)["spec"]
    assert after["volumes"][0]["hostPath"]["path"] == "/run/mps"
    assert after[kind][-1]["name"] == "side"
    assert after[kind][-1]["volumeMounts"] == [{"name": "data", "mountPath": "/data"}]


def test_new_pod_has_no_grant():
    """Annotations that only a Binding writes are removed; others stay."""
    forged = {
        names.ANNOTATION_GPU: "GPU-0",
        names.ANNOTATION_GPU_PERCENT: "100",
        names.ANNOTATION_GPU_MEMORY: "0=1M",
        names.ANNOTATION_BATCH: "1",
        names.ANNOTATION_PLAN: "{}",
        "nvidia.cdi.k8s.io/container.main": "nvidia.com/gpu=all",
        "nvidia.cdi.k8s.io/pod": "nvidia.com/gpu=0",
    }
    raw = pod(annotations={**forged, names.ANNOTATION_QUEUED: "3", "x": "y"})
    after = admitted(admission(), raw)
    assert after["metadata"]["annotations"] == {names.ANNOTATION_QUEUED: "3", "x": "y"}


@pytest.mark.parametrize(
    ("named", "expected"),
    [(None, "esg"), ("", "esg"), ("default-scheduler", "esg"), ("mine", "mine")],
)
def test_scheduler_name_is_set_if_the_creator_names_none(named, expected):
    """A scheduler that the creator chose stays."""
    raw = pod()
    raw["spec"]["schedulerName"] = named
    after = admitted(admission(defaults=PodDefaults(mps_root="/m", scheduler_name="esg")), raw)
    assert after["spec"]["schedulerName"] == expected


@pytest.mark.parametrize(
    ("named", "expected"), [(None, "nvidia"), ("", "nvidia"), ("kata", "kata")]
)
def test_runtime_class_is_set_if_the_creator_names_none(named, expected):
    """A runtime that the creator chose stays; without the setting nothing is set."""
    raw = pod()
    raw["spec"]["runtimeClassName"] = named
    defaults = PodDefaults(mps_root="/m", runtime_class_name="nvidia")
    after = admitted(admission(defaults=defaults), raw)
    assert after["spec"]["runtimeClassName"] == expected
    assert "runtimeClassName" not in admitted(admission(), pod())["spec"]


@pytest.mark.parametrize("context", [None, {}, {"runAsUser": 0, "readOnlyRootFilesystem": True}])
def test_container_runs_as_the_user_that_mps_serves(context):
    """If the setting names a user, the container runs as that user, and never as root."""
    raw = pod({"name": "main", "securityContext": context}, {"name": "side"})
    after = admitted(admission(defaults=PodDefaults(mps_root="/m", mps_uid=1001)), raw)
    main, side = after["spec"]["containers"]
    others = {k: v for k, v in (context or {}).items() if k != "runAsUser"}
    assert main["securityContext"] == {**others, "runAsUser": 1001, "runAsNonRoot": True}
    assert "securityContext" not in side


@pytest.mark.parametrize(
    ("own", "of_the_pod", "replaced"),
    [(None, None, None), (1001, None, None), (0, None, 0), (None, 5, 5), (1001, 5, None)],
)
def test_a_replaced_user_is_a_warning(own, of_the_pod, replaced):
    """The creator gets a warning that the container runs as another user than the requested one."""
    raw = pod({"name": "main"} | ({} if own is None else {"securityContext": {"runAsUser": own}}))
    if of_the_pod is not None:
        raw["spec"]["securityContext"] = {"runAsUser": of_the_pod}
    answer = respond(admission(defaults=PodDefaults(mps_root="/m", mps_uid=1001)), raw)
    texts = [w for w in answer.warnings or () if "runAsUser" in w]
    assert len(texts) == (replaced is not None)
    assert replaced is None or f"replaces runAsUser {replaced}:" in texts[0]
    unchanged = respond(admission(defaults=PodDefaults(mps_root="/m")), raw)
    assert not [w for w in unchanged.warnings or () if "runAsUser" in w]


def test_limits_are_checked_before_any_container_of_the_pod_starts():
    """The check has the project's image, and the GPU container's grant, mounts and user."""
    raw = pod({"name": "main"})
    raw["spec"]["initContainers"] = [{"name": "setup"}, {"name": NAME, "image": "forged"}]
    defaults = PodDefaults(mps_root="/m", mps_uid=1001, check_image="esg:1")
    after = admitted(admission(defaults=defaults), raw)
    check, setup = after["spec"]["initContainers"]
    [main] = after["spec"]["containers"]
    assert (check["name"], check["image"], check["args"]) == (NAME, "esg:1", ["mps", "check"])
    assert environment(main).items() <= environment(check).items()
    assert check["volumeMounts"] == main["volumeMounts"]
    assert check["securityContext"]["runAsUser"] == main["securityContext"]["runAsUser"]
    assert setup["name"] == "setup"


def test_the_image_of_the_check_is_pulled_with_its_secrets():
    """They are added once to the pod's own; without the check they are not needed."""
    raw = pod()
    raw["spec"]["imagePullSecrets"] = [{"name": "own"}, {"name": "two"}]
    defaults = PodDefaults(
        mps_root="/m", mps_uid=1001, check_image="esg:1", check_pull_secrets=("one", "two")
    )
    after = admitted(admission(defaults=defaults), raw)
    assert [s["name"] for s in after["spec"]["imagePullSecrets"]] == ["own", "two", "one"]
    assert admitted(admission(defaults=defaults), after) == after
    without = PodDefaults(mps_root="/m", check_pull_secrets=("one",))
    assert "imagePullSecrets" not in admitted(admission(defaults=without), pod())["spec"]


def test_unreachable_slo_is_a_warning():
    """The pod is admitted, with a warning that its creator sees."""
    hopeless = plan(candidate(8, 100), feasible=False)
    answer = respond(admission(lambda _: hopeless), pod(labels=WORKFLOW))
    assert answer.allowed
    assert answer.warnings == ("the SLO of w cannot be met from stage s",)


def test_lists_may_be_null():
    """Go writes an absent list as null."""
    raw = pod({"name": "main", "env": None, "volumeMounts": None, "resources": None})
    raw["spec"] |= {"volumes": None, "initContainers": None}
    raw["metadata"]["annotations"] = None
    after = admitted(admission(), raw)
    assert environment(after["spec"]["containers"][0]) == GRANTED
    assert DEFAULTS.pipe_directory == "/run/mps/pipe"


def test_a_claim_replaces_the_volume():
    """With resource claims the pod has no hostPath; the container and the check have the claim."""
    defaults = PodDefaults(
        mps_root="/run/mps", mps_uid=1001, check_image="esg:1", resource_claims=True
    )
    volume = {"name": VOLUME, "hostPath": {"path": "/"}}
    raw = pod({"name": "main", "volumeMounts": [{"name": VOLUME, "mountPath": "/m"}]})
    raw["spec"]["volumes"] = [volume, {"name": "v", "emptyDir": {}}]
    after = admitted(admission(defaults=defaults), raw)["spec"]
    [claim] = after["resourceClaims"]
    assert claim["name"] == names.RESOURCE_CLAIM
    assert after["volumes"] == [{"name": "v", "emptyDir": {}}]
    [main], [check] = after["containers"], after["initContainers"]
    for container in (main, check):
        assert container["resources"]["claims"] == [{"name": names.RESOURCE_CLAIM}]
        assert container["volumeMounts"] == []
    assert environment(main) == GRANTED


def test_each_admission_names_another_claim():
    """A copied pod must not refer to the claim of the original, and has one all the same."""
    review = admission(defaults=PodDefaults(mps_root="/run/mps", resource_claims=True))
    first = admitted(review, pod())
    second = admitted(review, first)
    [claim], [new_claim] = first["spec"].pop("resourceClaims"), second["spec"].pop("resourceClaims")
    assert claim["resourceClaimName"] != new_claim["resourceClaimName"]
    assert first == second


def test_a_volume_replaces_the_claim_and_other_containers_have_none():
    """A pod that was copied from a cluster with claims gets the volume, and the claim goes."""
    claims = [{"name": names.RESOURCE_CLAIM}, {"name": "own"}]
    raw = pod(*({"name": name, "resources": {"claims": claims}} for name in ("main", "side")))
    raw["spec"]["resourceClaims"] = [
        {"name": names.RESOURCE_CLAIM, "resourceClaimName": "x"},
        {"name": "own", "resourceClaimName": "y"},
    ]
    after = admitted(admission(), raw)["spec"]
    assert after["resourceClaims"] == [{"name": "own", "resourceClaimName": "y"}]
    assert [c["resources"]["claims"] for c in after["containers"]] == [[{"name": "own"}]] * 2
    assert [volume["name"] for volume in after["volumes"]] == [VOLUME]


def test_no_autoscaler_drains_the_node_of_a_function_pod():
    """Annotations of its creator stay, and a second mutation changes nothing."""
    own = {"karpenter.sh/do-not-disrupt": "30m", "x": "y"}
    autoscaled = admission(defaults=PodDefaults(mps_root="/m", autoscaled=True))
    after = admitted(autoscaled, pod(annotations=own))
    assert after["metadata"]["annotations"] == {
        **own,
        "cluster-autoscaler.kubernetes.io/safe-to-evict": "false",
    }
    assert admitted(autoscaled, after) == after
    assert admitted(autoscaled, pod())["metadata"]["annotations"] == names.ANNOTATIONS_NO_DRAIN
    assert "annotations" not in admitted(admission(), pod())["metadata"]
