"""What a function pod wears when it is admitted: ceilings, environment, mounts.

The values of the grant are not known yet. The environment refers to the annotations that the
Binding will write; the kubelet resolves them when the container starts. A pod that was bound by
anybody else has no such annotations: ``ESG_GPU`` is then empty, its sub-path of the MPS folder is
an absolute one, and the kubelet does not start the container. Nothing runs without a grant.

All this guards against mistakes and defaults. A process may still change its own environment; what
holds it then is the MPS daemon and the GPU's EXCLUSIVE_PROCESS mode.
"""

from collections.abc import Mapping
from copy import deepcopy
from dataclasses import dataclass
from posixpath import normpath
from typing import Any

from scheduler.model import names
from scheduler.webhook.ceilings import CeilingPlanner
from scheduler.webhook.mps_check_container import limit_check

VOLUME = f"{names.GROUP.split('.', maxsplit=1)[0]}-mps"
DEFAULT_SCHEDULER = "default-scheduler"
_VISIBLE_DEVICES = "NVIDIA_VISIBLE_DEVICES"
_GRANTED = {  # what the environment of the container shows of the Binding's annotations
    "ESG_GPU": names.ANNOTATION_GPU,
    "ESG_BATCH": names.ANNOTATION_BATCH,
    _VISIBLE_DEVICES: names.ANNOTATION_GPU,
    "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": names.ANNOTATION_GPU_PERCENT,
    "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT": names.ANNOTATION_GPU_MEMORY,
}
_GRANT = (*dict.fromkeys(_GRANTED.values()), names.ANNOTATION_PLAN)

Json = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class PodDefaults:
    """What is the same for all pods.

    Attributes:
        mps_root: host folder with a folder ``<GPU's UUID>`` for each GPU: in it ``pipe``, the MPS
            daemon's pipe directory, and ``shm``, its /dev/shm.
        mps_uid: the user that the MPS daemons serve; None: the container's user is left alone.
        check_image: of the init container that looks whether the limits are in force, see
            `limit_check`; empty, or without ``mps_uid``: there is none.
        scheduler_name: put on pods that name no scheduler; empty: left alone.
    """

    mps_root: str
    mps_uid: int | None = None
    check_image: str = ""
    scheduler_name: str = ""

    @property
    def pipe_directory(self) -> str:
        """Where the container sees the pipe directory of its GPU."""
        return f"{self.mps_root}/pipe"


def dressed(
    raw: Mapping[str, Any], gpu_container: int, most: CeilingPlanner, given: PodDefaults
) -> Json:
    """The Pod with all that it needs; dressing it again changes nothing.

    ``gpu_container`` is the index of the container that gets the GPU.
    """
    pod = deepcopy(dict(raw))
    spec: Json = pod["spec"]
    _without_forged_grant(pod)
    for container in [*spec["containers"], *(spec.get("initContainers") or [])]:
        if container is not spec["containers"][gpu_container]:
            _keep_off_gpus(container)
    if given.check_image and given.mps_uid is not None:
        check = limit_check(given.check_image, given.mps_uid, _environment(given), _mounts(given))
        theirs = [c for c in spec.get("initContainers") or [] if c["name"] != check["name"]]
        spec["initContainers"] = [check, *theirs]
    _give_gpu(spec["containers"][gpu_container], most, given)
    folder = {"name": VOLUME, "hostPath": {"path": given.mps_root, "type": "Directory"}}
    spec["volumes"] = _with_named(spec.get("volumes") or [], folder)
    if given.scheduler_name and spec.get("schedulerName") in {None, "", DEFAULT_SCHEDULER}:
        spec["schedulerName"] = given.scheduler_name
    return pod


def replaced(raw: Mapping[str, Any], pod: Mapping[str, Any], gpu_container: int) -> list[str]:
    """The environment variables of the container that its creator set, and that are ours."""
    now = pod["spec"]["containers"][gpu_container]["env"]
    before = raw["spec"]["containers"][gpu_container].get("env") or []
    return [variable["name"] for variable in before if variable not in now]


def _without_forged_grant(pod: Json) -> None:
    """What only a Binding may write: a new pod has it from a copy, or from somebody's wish."""
    annotations = pod["metadata"].get("annotations") or {}
    for key in [key for key in annotations if key in _GRANT]:
        del annotations[key]


def _keep_off_gpus(container: Json) -> None:
    """Images made for GPUs ask for all of them by default; the pod was granted one, elsewhere.

    A mount of the MPS folder would show the daemons of every GPU: what its creator declared under
    the volume's name was another folder, and is replaced.
    """
    container["env"] = [
        {"name": _VISIBLE_DEVICES, "value": "void"},
        *(v for v in container.get("env") or [] if v["name"] != _VISIBLE_DEVICES),
    ]
    mounts = container.get("volumeMounts") or []
    if any(mount["name"] == VOLUME for mount in mounts):
        container["volumeMounts"] = [mount for mount in mounts if mount["name"] != VOLUME]


def _give_gpu(container: Json, most: CeilingPlanner, given: PodDefaults) -> None:
    container["resources"] = _with_ceilings(container.get("resources") or {}, most)
    theirs = [v for v in container.get("env") or [] if not _is_ours(v["name"])]
    # Ours come first: Kubernetes expands $(NAME) in what follows NAME, so theirs may refer to ours.
    container["env"] = [*_environment(given), *theirs]
    mounts = _mounts(given)
    places = {mount["mountPath"] for mount in mounts}
    kept = [
        mount
        for mount in container.get("volumeMounts") or []
        if mount["name"] != VOLUME and _absolute(mount["mountPath"]) not in places
    ]
    container["volumeMounts"] = [*mounts, *kept]
    if given.mps_uid is not None:
        container["securityContext"] = {
            **(container.get("securityContext") or {}),
            "runAsUser": given.mps_uid,
            "runAsNonRoot": True,
        }


def _with_ceilings(resources: Mapping[str, Any], most: CeilingPlanner) -> Json:
    """What the creator set stays. An extended resource wants a limit, and requests equal to it."""
    requests = dict(resources.get("requests") or {})
    limits = dict(resources.get("limits") or {})
    if "cpu" not in requests and "cpu" not in limits:
        requests["cpu"] = limits["cpu"] = str(most.cpu)
    share = names.RESOURCE_GPU_PERCENT
    percent = requests.get(share, limits.get(share, str(most.gpu_percent)))
    requests.setdefault(share, percent)
    limits.setdefault(share, percent)
    return {**resources, "requests": requests, "limits": limits}


def _mounts(given: PodDefaults) -> list[Json]:
    """The container sees the folders of its own GPU and of no other."""
    return [
        # The mount points cannot depend on the GPU, so the sub-path does.
        {"name": VOLUME, "mountPath": given.pipe_directory, "subPathExpr": "$(ESG_GPU)/pipe"},
        {"name": VOLUME, "mountPath": "/dev/shm", "subPathExpr": "$(ESG_GPU)/shm"},  # noqa: S108 - no temporary file
    ]


def _environment(given: PodDefaults) -> list[Json]:
    return [
        *({"name": name, "valueFrom": _annotation(key)} for name, key in _GRANTED.items()),
        {"name": "CUDA_MPS_PIPE_DIRECTORY", "value": given.pipe_directory},
    ]


def _annotation(key: str) -> Json:
    # With its default written out, as the API server gives it back when it asks a second time.
    return {"fieldRef": {"apiVersion": "v1", "fieldPath": f"metadata.annotations['{key}']"}}


def _is_ours(variable: str) -> bool:
    """Whether the pod's creator has no say in it.

    CUDA_VISIBLE_DEVICES goes, and nothing takes its place: the container has one GPU, whose number
    there is 0 whatever it is on the node, and frameworks stumble over a UUID.
    """
    return (
        variable in _GRANTED
        or variable == "CUDA_VISIBLE_DEVICES"
        or variable.startswith("CUDA_MPS_")
    )


def _absolute(mount_path: str) -> str:
    """As the kubelet takes it: ``dev/shm/`` is ``/dev/shm``."""
    return normpath(f"/{mount_path.lstrip('/')}")


def _with_named(items: list[Json], item: Json) -> list[Json]:
    """In the place of the one of its name, or at the end."""
    if any(each["name"] == item["name"] for each in items):
        return [item if each["name"] == item["name"] else each for each in items]
    return [*items, item]
