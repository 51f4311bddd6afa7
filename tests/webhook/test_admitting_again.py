"""Whatever a pod looks like, admission makes it whole, and admitting it again changes nothing."""

import json
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from scheduler.model import names
from scheduler.model.plan import Plan
from scheduler.model.pod import FunctionPod, function_pod
from scheduler.webhook.mps_check_container import NAME
from scheduler.webhook.mutation import VOLUME, PodDefaults
from tests.webhook.pods import (
    NOW,
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


def maybe_list(elements: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """A list, or null in its place."""
    return st.none() | st.lists(elements, max_size=4)


def resources() -> st.SearchStrategy[Any]:
    """Ceilings of the creator, where there are any, that leave a configuration."""
    part = st.none() | st.fixed_dictionaries(
        {},
        optional={
            "cpu": st.sampled_from(["2", "4000m", 8]),
            SHARE: st.sampled_from(["20", 55]),
            "memory": st.just("1Gi"),
        },
    )
    return st.none() | st.fixed_dictionaries({}, optional={"requests": part, "limits": part})


def containers(least: int) -> st.SearchStrategy[list[Json]]:
    """Containers with anything present, absent or null."""
    variable = st.fixed_dictionaries({"name": VARIABLES}, optional={"value": st.just("1")})
    optional = {
        "env": maybe_list(variable),
        "volumeMounts": maybe_list(MOUNTS),
        "resources": resources(),
        "securityContext": st.none() | st.just({"runAsUser": 0}),
    }
    return st.lists(
        st.fixed_dictionaries({"name": st.sampled_from(["a", "b", "c"])}, optional=optional),
        min_size=least,
        max_size=3,
        unique_by=lambda container: container["name"],
    )


@st.composite
def pods(draw: st.DrawFn) -> Json:
    """Function pods."""
    own = draw(containers(1))
    forged = st.sets(st.sampled_from([names.ANNOTATION_GPU, names.ANNOTATION_BATCH]))
    annotations = dict.fromkeys(draw(forged), "1")
    if draw(st.booleans()):
        annotations[names.ANNOTATION_CONTAINER] = draw(st.sampled_from(own))["name"]
    if draw(st.booleans()):
        annotations[names.ANNOTATION_DEADLINE] = "2027-01-15T08:00:00.100Z"  # NOW and 100 ms
    raw = pod(*own, annotations=annotations)
    volumes = st.sampled_from((None, (), ("v",), (VOLUME, "v"), ("v", VOLUME, "w"))).map(
        lambda found: found and [{"name": name, "emptyDir": {}} for name in found]
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
    return json.loads(json.dumps(raw))  # as from the wire: no two parts are one object


WARDROBES = st.builds(
    PodDefaults,
    mps_root=st.just("/run/mps"),
    mps_uid=st.sampled_from([None, 1000]),
    check_image=st.sampled_from(["", "esg:1"]),
    scheduler_name=st.sampled_from(["", "esg"]),
)


def within_ceilings(pod_: FunctionPod) -> Plan:
    """A plan that keeps to the ceilings, as the planner does, and wants more when it is late."""
    slack_ms = pod_.slack_ms(None, NOW)
    cpu, percent = (8, 60) if slack_ms is not None and slack_ms < 90 else (2, 30)
    if pod_.cpu_ceiling_milli is not None:
        cpu = min(cpu, pod_.cpu_ceiling_milli // 1000)
    if pod_.gpu_percent_ceiling is not None:
        percent = min(percent, pod_.gpu_percent_ceiling)
    return plan(candidate(cpu, percent))


@settings(deadline=None, max_examples=60)
@given(pods(), WARDROBES)
def test_admitting_a_pod_again_changes_nothing(raw: Json, wardrobe: PodDefaults) -> None:
    """Our own ceilings are no others than the creator's would be: a second call has no patch."""
    by = admission(within_ceilings, wardrobe=wardrobe)
    once = admitted(by, raw)
    again = ask(by, once)
    assert again.allowed
    assert again.patch is None
    assert again.warnings is None


@settings(deadline=None, max_examples=60)
@given(pods(), WARDROBES)
def test_a_container_that_came_in_between_is_kept_off_the_gpus(
    raw: Json, wardrobe: PodDefaults
) -> None:
    """Another webhook adds a sidecar and the API server asks again: only the sidecar changes."""
    by = admission(within_ceilings, wardrobe=wardrobe)
    once = admitted(by, raw)
    once["spec"]["containers"].append({"name": "injected"})
    twice = admitted(by, once)
    *before, injected = twice["spec"]["containers"]
    assert before == once["spec"]["containers"][:-1]
    assert environment(injected) == {"NVIDIA_VISIBLE_DEVICES": "void"}


@settings(deadline=None, max_examples=60)
@given(pods(), WARDROBES)
def test_every_pod_is_made_whole(raw: Json, wardrobe: PodDefaults) -> None:
    """One container has the grant and Kubernetes takes the pod; no other sees a GPU."""
    after = admitted(admission(within_ceilings, wardrobe=wardrobe), raw)
    spec, index = after["spec"], function_pod(raw).container
    main = spec["containers"][index]
    env = environment(main)
    assert env["NVIDIA_VISIBLE_DEVICES"] == env["ESG_GPU"] == annotation("gpu")
    assert env["CUDA_MPS_PIPE_DIRECTORY"] == "/run/mps/pipe"
    assert not {"CUDA_VISIBLE_DEVICES", "CUDA_MPS_X"} & env.keys()
    mine = [v["name"] for v in main["env"] if v["name"] not in {"A", "B"}]
    assert len(mine) == len(set(mine)) == 6
    # What Kubernetes demands: the extended resource limited, every mount's volume there and, of
    # the mounts that are ours, no path twice.
    assert SHARE in main["resources"]["limits"]
    assert SHARE in main["resources"]["requests"]
    assert [v["name"] for v in spec["volumes"]].count(VOLUME) == 1
    ours = [m["subPathExpr"] for m in main["volumeMounts"] if m["name"] == VOLUME]
    assert ours == ["$(ESG_GPU)/pipe", "$(ESG_GPU)/shm"]
    places = [m["mountPath"].rstrip("/") for m in main["volumeMounts"]]
    assert places.count("/dev/shm") == places.count("/run/mps/pipe") == 1
    others = [c for i, c in enumerate(spec["containers"]) if i != index]
    early = spec.get("initContainers") or []
    checks = [c for c in early if c["name"] == NAME]
    assert len(checks) == (wardrobe.check_image != "" and wardrobe.mps_uid is not None)
    for other in [*others, *early]:
        seen = annotation("gpu") if other in checks else "void"
        assert environment(other)["NVIDIA_VISIBLE_DEVICES"] == seen
    assert (
        not {names.ANNOTATION_GPU, names.ANNOTATION_BATCH} & after["metadata"]["annotations"].keys()
    )


@settings(deadline=None, max_examples=60)
@given(pods(), st.sampled_from([{}, {"app": "x"}, None]))
def test_a_pod_that_is_none_of_ours_is_untouched(raw: Json, labels: Json | None) -> None:
    """Without our labels a pod passes, whatever else it says."""
    raw["metadata"]["labels"] = labels
    answer = ask(admission(unreadiness="asleep"), raw)
    assert answer.model_dump(exclude_none=True) == {"uid": "u", "allowed": True}
