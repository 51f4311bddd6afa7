"""Admission completes any function pod, and a second admission changes nothing."""

import json

from hypothesis import given
from hypothesis import strategies as st

from scheduler.model import names
from scheduler.model.names import CONTAINER_MPS_CHECK as NAME
from scheduler.model.pod import function_pod
from scheduler.webhook.mutation import VOLUME, PodDefaults
from tests.examples import examples
from tests.webhook.factories import (
    NOW_S,
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
VARIABLES = st.sampled_from(
    (
        "A",
        "B",
        "ESG_GPU",
        "ESG_BATCH",
        "NVIDIA_VISIBLE_DEVICES",
        "CUDA_VISIBLE_DEVICES",
        "CUDA_MPS_PIPE_DIRECTORY",
        "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE",
        "CUDA_MPS_X",
    )
)
MOUNTS = st.fixed_dictionaries(
    {
        "name": st.sampled_from(["v", "w", VOLUME]),
        "mountPath": st.sampled_from(["/v", "/w", "/dev/shm", "/dev/shm/", "/run/mps/pipe"]),
    }
)


def maybe_list(elements):
    """Generate a list or null."""
    return st.none() | st.lists(elements, max_size=4)


def resources():
    """Generate ceilings of the creator that at least one configuration meets."""
    part = st.none() | st.fixed_dictionaries(
        {},
        optional={
            "cpu": st.sampled_from(["2", "4000m", 8]),
            SHARE: st.sampled_from(["20", 55]),
            "memory": st.just("1Gi"),
        },
    )
    return st.none() | st.fixed_dictionaries({}, optional={"requests": part, "limits": part})


def containers(min_size):
    """Generate containers with any field present, absent or null."""
    variable = st.fixed_dictionaries({"name": VARIABLES}, optional={"value": st.just("1")})
    optional = {
        "env": maybe_list(variable),
        "volumeMounts": maybe_list(MOUNTS),
        "resources": resources(),
        "securityContext": st.none() | st.just({"runAsUser": 0}),
    }
    return st.lists(
        st.fixed_dictionaries({"name": st.sampled_from(["a", "b", "c"])}, optional=optional),
        min_size=min_size,
        max_size=3,
        unique_by=lambda container: container["name"],
    )


@st.composite
def pods(draw):
    """Generate function pods."""
    own = draw(containers(1))
    forged = st.sets(st.sampled_from([names.ANNOTATION_GPU, names.ANNOTATION_BATCH]))
    annotations = dict.fromkeys(draw(forged), "1")
    if draw(st.booleans()):
        annotations[names.ANNOTATION_CONTAINER] = draw(st.sampled_from(own))["name"]
    if draw(st.booleans()):
        annotations[names.ANNOTATION_DEADLINE] = "2027-01-15T08:00:00.100Z"  # NOW_S and 100 ms
    raw = pod(*own, annotations=annotations)
    volumes = st.sampled_from((None, (), ("v",), (VOLUME, "v"), ("v", VOLUME, "w"))).map(
        lambda volume_names: (
            volume_names and [{"name": name, "emptyDir": {}} for name in volume_names]
        )
    )
    raw["spec"] |= draw(
        st.fixed_dictionaries(
            {},
            optional={
                "initContainers": st.none() | containers(0),
                "volumes": volumes,
                "schedulerName": st.sampled_from(["default-scheduler", "other"]),
            },
        )
    )
    return json.loads(json.dumps(raw))  # like JSON from the network: without shared objects


POD_DEFAULTS = st.builds(
    PodDefaults,
    mps_root=st.just("/run/mps"),
    mps_uid=st.sampled_from([None, 1000]),
    check_image=st.sampled_from(["", "esg:1"]),
    scheduler_name=st.sampled_from(["", "esg"]),
)


def within_ceilings(pod_):
    """Plan within the ceilings, like the planner, and a larger configuration for a late pod."""
    slack_ms = pod_.slack_ms(None, NOW_S)
    cpu, percent = (8, 60) if slack_ms is not None and slack_ms < 90 else (2, 30)
    if pod_.cpu_ceiling_milli is not None:
        cpu = min(cpu, pod_.cpu_ceiling_milli // 1000)
    if pod_.gpu_percent_ceiling is not None:
        percent = min(percent, pod_.gpu_percent_ceiling)
    return plan(candidate(cpu, percent))


@examples(60)
@given(pods(), POD_DEFAULTS)
def test_second_admission_changes_nothing(raw, defaults):
    """The webhook's ceilings count like the creator's: the second call has no patch."""
    by = admission(within_ceilings, defaults=defaults)
    once = admitted(by, raw)
    again = respond(by, once)
    assert again.allowed
    assert again.patch is None
    assert again.warnings is None


@examples(60)
@given(pods(), POD_DEFAULTS)
def test_injected_container_sees_no_gpu(raw, defaults):
    """Another webhook adds a sidecar and the API server calls again: only the sidecar changes."""
    by = admission(within_ceilings, defaults=defaults)
    once = admitted(by, raw)
    once["spec"]["containers"].append({"name": "injected"})
    twice = admitted(by, once)
    *original, injected = twice["spec"]["containers"]
    assert original == once["spec"]["containers"][:-1]
    assert environment(injected) == {"NVIDIA_VISIBLE_DEVICES": "void"}


@examples(60)
@given(pods(), POD_DEFAULTS)
def test_every_function_pod_is_complete(raw, defaults):
    """One container has the grant and Kubernetes accepts the pod; no other sees a GPU."""
    after = admitted(admission(within_ceilings, defaults=defaults), raw)
    spec, index = after["spec"], function_pod(raw).container
    main = spec["containers"][index]
    env = environment(main)
    assert env["NVIDIA_VISIBLE_DEVICES"] == env["ESG_GPU"] == annotation("gpu")
    assert env["CUDA_MPS_PIPE_DIRECTORY"] == "/run/mps/pipe"
    assert not {"CUDA_VISIBLE_DEVICES", "CUDA_MPS_X"} & env.keys()
    reserved = [v["name"] for v in main["env"] if v["name"] not in {"A", "B"}]
    assert len(reserved) == len(set(reserved)) == 6
    # Kubernetes requires: a limit of the extended resource, a volume for every mount, no mount path
    # twice.
    assert SHARE in main["resources"]["limits"]
    assert SHARE in main["resources"]["requests"]
    assert [v["name"] for v in spec["volumes"]].count(VOLUME) == 1
    sub_paths = [m["subPathExpr"] for m in main["volumeMounts"] if m["name"] == VOLUME]
    assert sub_paths == ["$(ESG_GPU)/pipe", "$(ESG_GPU)/shm"]
    mount_paths = [m["mountPath"].rstrip("/") for m in main["volumeMounts"]]
    assert mount_paths.count("/dev/shm") == mount_paths.count("/run/mps/pipe") == 1
    sidecars = [c for i, c in enumerate(spec["containers"]) if i != index]
    init_containers = spec.get("initContainers") or []
    checks = [c for c in init_containers if c["name"] == NAME]
    assert len(checks) == (defaults.check_image != "" and defaults.mps_uid is not None)
    for container in [*sidecars, *init_containers]:
        visible = annotation("gpu") if container in checks else "void"
        assert environment(container)["NVIDIA_VISIBLE_DEVICES"] == visible
    assert (
        not {names.ANNOTATION_GPU, names.ANNOTATION_BATCH} & after["metadata"]["annotations"].keys()
    )


@examples(60)
@given(pods(), st.sampled_from([{}, {"app": "x"}, None]))
def test_pod_without_function_labels_is_unchanged(raw, labels):
    """Without esg-scheduler's labels a pod passes, whatever its other fields."""
    raw["metadata"]["labels"] = labels
    response = respond(admission(not_ready_reason="starting"), raw)
    assert response.model_dump(exclude_none=True) == {"uid": "u", "allowed": True}
