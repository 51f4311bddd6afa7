"""A function pod gets its ceilings, the environment of its grant, and its GPU's folders."""

from typing import Any

import pytest

from scheduler.model import names
from scheduler.webhook.mps_check_container import NAME
from scheduler.webhook.mutation import VOLUME, PodDefaults
from tests.webhook.pods import (
    WARDROBE,
    WORKFLOW,
    Json,
    admission,
    admitted,
    annotation,
    ask,
    candidate,
    environment,
    plan,
    pod,
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


def test_a_pod_with_nothing_but_labels_is_made_whole() -> None:
    """Labels alone are enough: everything else is put there."""
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


def test_a_lone_function_is_a_function_pod_too() -> None:
    """A pod with the function label alone gets the same."""
    after = admitted(admission(), pod(labels={names.LABEL_FUNCTION: "f"}))
    assert environment(after["spec"]["containers"][0]) == GRANTED


@pytest.mark.parametrize(
    ("given", "expected"),
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
def test_what_the_creator_sets_is_a_fixed_ceiling(given: Json, expected: Json) -> None:
    """A ceiling of the creator stays as it is, and what Kubernetes wants beside it is added."""
    after = admitted(admission(), pod({"name": "main", "resources": given}))
    assert after["spec"]["containers"][0]["resources"] == expected


def test_the_creators_environment_is_replaced_where_it_is_ours() -> None:
    """GPU and MPS variables of the creator go; its others stay, after ours, in their order."""
    theirs = [
        {"name": "MODEL", "value": "$(ESG_BATCH)"},
        {"name": "CUDA_VISIBLE_DEVICES", "value": "3"},
        {"name": "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", "value": "100"},
        {"name": "CUDA_MPS_LOG_DIRECTORY", "value": "/l"},
        {"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"},
        {"name": "NVIDIA_DRIVER_CAPABILITIES", "value": "compute"},
        {"name": "MODEL", "value": "again"},
    ]
    answer = ask(admission(), raw := pod({"name": "main", "env": theirs}))
    after = admitted(admission(), raw)
    env = after["spec"]["containers"][0]["env"]
    assert [v["name"] for v in env] == [*GRANTED, "MODEL", "NVIDIA_DRIVER_CAPABILITIES", "MODEL"]
    assert environment({"env": env[: len(GRANTED)]}) == GRANTED
    [warning] = answer.warnings or ()
    assert warning == (
        "esg-scheduler sets these itself: CUDA_VISIBLE_DEVICES, "
        "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE, CUDA_MPS_LOG_DIRECTORY, NVIDIA_VISIBLE_DEVICES"
    )


def test_other_containers_see_no_gpu() -> None:
    """An image that asks for all GPUs by default gets none in a sidecar or an init container."""
    raw = pod({"name": "main"}, {"name": "side", "env": [{"name": "A", "value": "1"}]})
    raw["spec"]["initContainers"] = [
        {"name": "i", "env": [{"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"}]}
    ]
    after = admitted(admission(), raw)["spec"]
    assert environment(after["containers"][1]) == {"NVIDIA_VISIBLE_DEVICES": "void", "A": "1"}
    assert environment(after["initContainers"][0]) == {"NVIDIA_VISIBLE_DEVICES": "void"}
    assert "resources" not in after["containers"][1]
    assert "volumeMounts" not in after["containers"][1]


def test_the_annotation_names_the_container_that_gets_the_gpu() -> None:
    """With the annotation it is that container, and the first one sees no GPU."""
    raw = pod({"name": "a"}, {"name": "b"}, annotations={names.ANNOTATION_CONTAINER: "b"})
    first, second = admitted(admission(), raw)["spec"]["containers"]
    assert environment(first) == {"NVIDIA_VISIBLE_DEVICES": "void"}
    assert environment(second) == GRANTED
    assert second["resources"]["limits"][SHARE] == "28"


@pytest.mark.parametrize(
    "place", ["/dev/shm", "/dev/shm/", "dev/shm", "//dev/shm", "/run/mps/pipe"]
)
def test_a_mount_in_the_way_gives_way(place: str) -> None:
    """Two mounts of one path are refused by Kubernetes; the one that MPS needs stays."""
    mounts = [{"name": "mine", "mountPath": place}, {"name": "data", "mountPath": "/data"}]
    raw = pod({"name": "main", "volumeMounts": mounts})
    raw["spec"]["volumes"] = [{"name": "mine", "emptyDir": {}}, {"name": "data", "emptyDir": {}}]
    after = admitted(admission(), raw)["spec"]
    assert [m["mountPath"] for m in after["containers"][0]["volumeMounts"]] == [
        "/run/mps/pipe",
        "/dev/shm",
        "/data",
    ]
    assert [v["name"] for v in after["volumes"]] == ["mine", "data", VOLUME]


def test_no_mount_shows_the_folders_of_other_gpus() -> None:
    """A volume under our name, or a mount of it without the GPU's sub-path, does not survive."""
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
def test_no_other_container_mounts_the_folder_of_all_gpus(kind: str) -> None:
    """A volume that its creator declares under our name becomes ours; mounts of it go with it."""
    mounts = [{"name": VOLUME, "mountPath": "/all"}, {"name": "data", "mountPath": "/data"}]
    raw = pod({"name": "main"})
    raw["spec"]["volumes"] = [{"name": VOLUME, "emptyDir": {}}, {"name": "data", "emptyDir": {}}]
    raw["spec"].setdefault(kind, []).append({"name": "side", "volumeMounts": mounts})
    after = admitted(admission(), raw)["spec"]
    assert after["volumes"][0]["hostPath"]["path"] == "/run/mps"
    assert after[kind][-1]["name"] == "side"
    assert after[kind][-1]["volumeMounts"] == [{"name": "data", "mountPath": "/data"}]


def test_a_new_pod_has_no_grant() -> None:
    """Annotations that only a Binding writes are taken off; others stay."""
    forged = {
        names.ANNOTATION_GPU: "GPU-0",
        names.ANNOTATION_GPU_PERCENT: "100",
        names.ANNOTATION_GPU_MEMORY: "0=1M",
        names.ANNOTATION_BATCH: "1",
        names.ANNOTATION_PLAN: "{}",
    }
    raw = pod(annotations={**forged, names.ANNOTATION_QUEUED: "3", "x": "y"})
    after = admitted(admission(), raw)
    assert after["metadata"]["annotations"] == {names.ANNOTATION_QUEUED: "3", "x": "y"}


@pytest.mark.parametrize(
    ("named", "expected"),
    [(None, "esg"), ("", "esg"), ("default-scheduler", "esg"), ("mine", "mine")],
)
def test_the_scheduler_is_named_where_the_creator_names_none(
    named: str | None, expected: str
) -> None:
    """A scheduler that the creator chose stays."""
    raw = pod()
    raw["spec"]["schedulerName"] = named
    after = admitted(admission(wardrobe=PodDefaults(mps_root="/m", scheduler_name="esg")), raw)
    assert after["spec"]["schedulerName"] == expected


@pytest.mark.parametrize("context", [None, {}, {"runAsUser": 0, "readOnlyRootFilesystem": True}])
def test_the_container_runs_as_the_user_that_mps_serves(context: dict[str, Any] | None) -> None:
    """Where the setting names a user, the container is it, and never root."""
    raw = pod({"name": "main", "securityContext": context}, {"name": "side"})
    after = admitted(admission(wardrobe=PodDefaults(mps_root="/m", mps_uid=1001)), raw)
    main, side = after["spec"]["containers"]
    rest = {k: v for k, v in (context or {}).items() if k != "runAsUser"}
    assert main["securityContext"] == {**rest, "runAsUser": 1001, "runAsNonRoot": True}
    assert "securityContext" not in side


def test_the_limits_are_looked_at_before_anything_of_the_pod_starts() -> None:
    """In the project's image, with what the GPU's container has of us, and as its user."""
    raw = pod({"name": "main"})
    raw["spec"]["initContainers"] = [{"name": "theirs"}, {"name": NAME, "image": "forged"}]
    wardrobe = PodDefaults(mps_root="/m", mps_uid=1001, check_image="esg:1")
    after = admitted(admission(wardrobe=wardrobe), raw)
    check, theirs = after["spec"]["initContainers"]
    [main] = after["spec"]["containers"]
    assert (check["name"], check["image"], check["args"]) == (NAME, "esg:1", ["mps", "check"])
    assert environment(main).items() <= environment(check).items()
    assert check["volumeMounts"] == main["volumeMounts"]
    assert check["securityContext"]["runAsUser"] == main["securityContext"]["runAsUser"]
    assert theirs["name"] == "theirs"


def test_an_slo_that_cannot_be_met_is_told_at_once() -> None:
    """The pod is admitted, with a warning that its creator sees."""
    hopeless = plan(candidate(8, 100), feasible=False)
    answer = ask(admission(lambda _: hopeless), pod(labels=WORKFLOW))
    assert answer.allowed
    assert answer.warnings == ("the SLO of w cannot be met from stage s",)


def test_names_in_lists_may_be_null() -> None:
    """Go writes an absent list as null."""
    raw = pod({"name": "main", "env": None, "volumeMounts": None, "resources": None})
    raw["spec"] |= {"volumes": None, "initContainers": None}
    raw["metadata"]["annotations"] = None
    after = admitted(admission(), raw)
    assert environment(after["spec"]["containers"][0]) == GRANTED
    assert WARDROBE.pipe_directory == "/run/mps/pipe"
