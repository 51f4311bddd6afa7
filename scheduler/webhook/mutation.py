"""Mutate function pods: ceilings, environment, mounts.

The grant is not known yet. The environment refers to the annotations that the Binding will write;
the kubelet resolves them when the container starts. A pod that another scheduler binds has no such
annotations: ``ESG_GPU`` is then empty, the sub-path of its MPS folder becomes absolute, and the
kubelet does not start the container. Nothing runs without a grant.

This guards against mistakes and defaults. A process may still change its own environment; then the
MPS daemon and the GPU's EXCLUSIVE_PROCESS mode hold its limits.
"""

from collections.abc import Mapping
from copy import deepcopy
from dataclasses import dataclass
from posixpath import normpath
from typing import Any
from uuid import uuid4

from scheduler.model import names
from scheduler.model.mps_folders import PIPE, client_folders
from scheduler.webhook.ceilings import Ceilings
from scheduler.webhook.mps_check_container import mps_check_container

VOLUME = f"{names.GROUP.split('.', maxsplit=1)[0]}-mps"
DEFAULT_SCHEDULER = "default-scheduler"
_VISIBLE_DEVICES = "NVIDIA_VISIBLE_DEVICES"
_GRANTED = {  # environment variables with the annotations of the Binding that they show
    "ESG_GPU": names.ANNOTATION_GPU,
    "ESG_BATCH": names.ANNOTATION_BATCH,
    _VISIBLE_DEVICES: names.ANNOTATION_GPU,
    "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": names.ANNOTATION_GPU_PERCENT,
    "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT": names.ANNOTATION_GPU_MEMORY,
}
_SLICE = ("cpu", names.RESOURCE_GPU_PERCENT)
_MEMBER_CPU = "0"  # requested; its slice has the vCPUs of its runs, and may leave none beside it
_GRANT = (*dict.fromkeys(_GRANTED.values()), names.ANNOTATION_PLAN)

Json = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class PodDefaults:
    """Settings that all function pods share.

    Attributes:
        mps_root: host folder with a folder ``<GPU's UUID>`` for each GPU: in it ``pipe``, the pipe
            directory of the MPS daemon, and ``shm``, its /dev/shm.
        mps_uid: user that the MPS daemons serve; None: the container's user stays.
        check_image: image of the init container that checks the limits, see `mps_check_container`;
            empty, or without ``mps_uid``: no such container.
        check_pull_secrets: secrets to pull that image with, added to the pod's own.
        runtime_class_name: runtime class of pods without one; empty: not set.
        scheduler_name: scheduler of pods without a scheduler's name; empty: not set.
        resource_claims: true if a resource claim gives the container its GPU's folders; false: a
            hostPath volume, which Pod Security allows in privileged namespaces only.
        autoscaled: true if an autoscaler may drain nodes, but none with function pods.
    """

    mps_root: str
    mps_uid: int | None = None
    check_image: str = ""
    check_pull_secrets: tuple[str, ...] = ()
    runtime_class_name: str = ""
    scheduler_name: str = ""
    resource_claims: bool = False
    autoscaled: bool = False

    @property
    def pipe_directory(self) -> str:
        """The pipe directory of the GPU, as the container sees it."""
        return client_folders(self.mps_root)[PIPE]


def mutate_pod(
    raw: Mapping[str, Any],
    gpu_container: int,
    ceilings: Ceilings,
    defaults: PodDefaults,
    claim: str = "",
) -> Json:
    """Return the mutated Pod; a second mutation changes nothing.

    ``gpu_container`` is the index of the container that gets the GPU; ``claim`` is the name of the
    pod's resource claim, if ``defaults`` say so.
    """
    pod = deepcopy(dict(raw))
    spec: Json = pod["spec"]
    _remove_forged_grant(pod)
    for container in [*spec["containers"], *(spec.get("initContainers") or [])]:
        if container is not spec["containers"][gpu_container]:
            _hide_gpus(container)
    if defaults.check_image and defaults.mps_uid is not None:
        check = mps_check_container(
            defaults.check_image,
            defaults.mps_uid,
            _environment(defaults),
            _mounts(defaults),
            {"cpu": _MEMBER_CPU} if ceilings.in_slice else {},
        )
        _set_claim(check, defaults)
        init_containers = spec.get("initContainers") or []
        spec["initContainers"] = [
            check,
            *(c for c in init_containers if c["name"] != check["name"]),
        ]
        _add_pull_secrets(spec, defaults.check_pull_secrets)
    _give_gpu(spec["containers"][gpu_container], ceilings, defaults)
    _set_delivery(spec, defaults, claim)
    _set_scheduler(spec, defaults)
    _keep_node(pod, defaults)
    if ceilings.in_slice and defaults.autoscaled:
        _tolerate(spec, names.TAINT_NO_EMPTY_GPU)
    if defaults.runtime_class_name and not spec.get("runtimeClassName"):
        spec["runtimeClassName"] = defaults.runtime_class_name
    return pod


def mutate_holder(raw: Mapping[str, Any], defaults: PodDefaults) -> Json:
    """Return the mutated Pod of a holder: no container sees a GPU, and limits equal requests."""
    pod = deepcopy(dict(raw))
    spec: Json = pod["spec"]
    _remove_forged_grant(pod)
    for container in [*spec["containers"], *(spec.get("initContainers") or [])]:
        _hide_gpus(container)
        resources = container.get("resources") or {}
        requests, limits = resources.get("requests") or {}, resources.get("limits") or {}
        slice_ = {name: (requests | limits)[name] for name in _SLICE if name in requests | limits}
        if slice_:
            container["resources"] = {
                **resources,
                "requests": slice_ | requests,
                "limits": slice_ | limits,
            }
    _remove_delivery(spec)
    _set_scheduler(spec, defaults)
    _keep_node(pod, defaults)
    return pod


def new_claim_name() -> str:
    """Make the name of a pod's resource claim; a policy of the chart knows claims by this form."""
    return f"esg-{uuid4().hex}"


def overridden_variables(
    raw: Mapping[str, Any], mutated: Mapping[str, Any], gpu_container: int
) -> list[str]:
    """List the environment variables of the container that the mutation replaced or removed."""
    final = mutated["spec"]["containers"][gpu_container]["env"]
    original = raw["spec"]["containers"][gpu_container].get("env") or []
    return [variable["name"] for variable in original if variable not in final]


def replaced_user(
    raw: Mapping[str, Any], mutated: Mapping[str, Any], gpu_container: int
) -> int | None:
    """Return the user that the creator chose for the container, if the mutation replaced it."""
    spec = raw["spec"]
    contexts = (
        spec.get("securityContext"),
        spec["containers"][gpu_container].get("securityContext"),
    )
    user = None
    for context in contexts:  # the container's own counts more than the pod's
        if isinstance(context, Mapping):
            user = context.get("runAsUser", user)
    final = mutated["spec"]["containers"][gpu_container].get("securityContext") or {}
    return None if user == final.get("runAsUser", user) else user


def is_grant(annotation: str) -> bool:
    """Return true if only a Binding may write the annotation on a function pod."""
    return annotation in _GRANT or annotation.startswith(names.ANNOTATION_CDI_PREFIX)


def dropped_mounts(
    raw: Mapping[str, Any], mutated: Mapping[str, Any], gpu_container: int
) -> list[str]:
    """List the paths of the container's mounts that those of the MPS folders replaced."""
    final = mutated["spec"]["containers"][gpu_container]["volumeMounts"]
    original = raw["spec"]["containers"][gpu_container].get("volumeMounts") or []
    return [
        mount["mountPath"] for mount in original if mount["name"] != VOLUME and mount not in final
    ]


def _set_delivery(spec: Json, defaults: PodDefaults, claim: str) -> None:
    """Set the pod's claim or volume, and remove the other one, which a copied pod may have."""
    claims = [c for c in spec.get("resourceClaims") or [] if c["name"] != names.RESOURCE_CLAIM]
    volumes = spec.get("volumes") or []
    if defaults.resource_claims:
        claims.append({"name": names.RESOURCE_CLAIM, "resourceClaimName": claim})
        volumes = [volume for volume in volumes if volume["name"] != VOLUME]
    else:
        folder = {"name": VOLUME, "hostPath": {"path": defaults.mps_root, "type": "Directory"}}
        volumes = _with_volume(volumes, folder)
    for field, items in (("resourceClaims", claims), ("volumes", volumes)):
        if items or field in spec:
            spec[field] = items


def _remove_delivery(spec: Json) -> None:
    """Remove the claim and the volume of a copied pod."""
    for field, name in (("resourceClaims", names.RESOURCE_CLAIM), ("volumes", VOLUME)):
        if field in spec:
            spec[field] = [item for item in spec[field] or [] if item["name"] != name]


def _set_scheduler(spec: Json, defaults: PodDefaults) -> None:
    if defaults.scheduler_name and spec.get("schedulerName") in {None, "", DEFAULT_SCHEDULER}:
        spec["schedulerName"] = defaults.scheduler_name


def _keep_node(pod: Json, defaults: PodDefaults) -> None:
    """Annotate the pod so that no autoscaler drains its node; its creator's annotations stay."""
    if defaults.autoscaled:
        metadata = pod["metadata"]
        metadata["annotations"] = names.ANNOTATIONS_NO_DRAIN | (metadata.get("annotations") or {})


def _tolerate(spec: Json, taint: str) -> None:
    """Tolerate a taint: a member needs a slice on a GPU that has pods, and no new node."""
    toleration = {"key": taint, "operator": "Exists"}
    tolerations = spec.get("tolerations") or []
    if toleration not in tolerations:
        spec["tolerations"] = [*tolerations, toleration]


def _set_claim(container: Json, defaults: PodDefaults) -> None:
    """Give the container the pod's claim, and no mount of the GPU's folders, or no claim."""
    _remove_claim(container)
    if defaults.resource_claims:
        _remove_mounts(container)
        resources = container.get("resources") or {}
        claims = [*resources.get("claims", ()), {"name": names.RESOURCE_CLAIM}]
        container["resources"] = {**resources, "claims": claims}


def _remove_claim(container: Json) -> None:
    resources = container.get("resources") or {}
    claims = resources.get("claims") or []
    if any(claim["name"] == names.RESOURCE_CLAIM for claim in claims):
        remaining = [claim for claim in claims if claim["name"] != names.RESOURCE_CLAIM]
        container["resources"] = {**resources, "claims": remaining}


def _remove_mounts(container: Json) -> None:
    mounts = container.get("volumeMounts") or []
    if any(mount["name"] == VOLUME for mount in mounts):
        container["volumeMounts"] = [mount for mount in mounts if mount["name"] != VOLUME]


def _remove_forged_grant(pod: Json) -> None:
    """Remove annotations that only a Binding may write; a new pod has copied or invented them."""
    annotations = pod["metadata"].get("annotations") or {}
    for key in [key for key in annotations if is_grant(key)]:
        del annotations[key]


def _add_pull_secrets(spec: Json, secrets: tuple[str, ...]) -> None:
    own = spec.get("imagePullSecrets") or []
    named = {secret.get("name") for secret in own}
    if added := [{"name": secret} for secret in secrets if secret not in named]:
        spec["imagePullSecrets"] = [*own, *added]


def _hide_gpus(container: Json) -> None:
    """Hide all GPUs: GPU images request all of them by default; the grant is for one container.

    A mount of the MPS folder would show the daemons of every GPU. The creator meant another folder
    by the volume's name, and `mutate_pod` replaces that volume.
    """
    container["env"] = [
        {"name": _VISIBLE_DEVICES, "value": "void"},
        *(v for v in container.get("env") or [] if v["name"] != _VISIBLE_DEVICES),
    ]
    _remove_mounts(container)
    _remove_claim(container)


def _give_gpu(container: Json, ceilings: Ceilings, defaults: PodDefaults) -> None:
    container["resources"] = _with_ceilings(container.get("resources") or {}, ceilings)
    variables = [v for v in container.get("env") or [] if not _is_reserved(v["name"])]
    # Kubernetes expands $(NAME) in the variables after NAME, so the pod's own may refer to these.
    container["env"] = [*_environment(defaults), *variables]
    mounts = _mounts(defaults)
    mount_paths = {mount["mountPath"] for mount in mounts}
    own_mounts = [
        mount
        for mount in container.get("volumeMounts") or []
        if mount["name"] != VOLUME and _absolute(mount["mountPath"]) not in mount_paths
    ]
    container["volumeMounts"] = [*mounts, *own_mounts]
    _set_claim(container, defaults)
    if defaults.mps_uid is not None:
        container["securityContext"] = {
            **(container.get("securityContext") or {}),
            "runAsUser": defaults.mps_uid,
            "runAsNonRoot": True,
        }


def _with_ceilings(resources: Mapping[str, Any], ceilings: Ceilings) -> Json:
    """Add the ceilings that the creator did not set; an extended resource needs limit = request.

    A member of a pool gets them in any case: its slice has the percent and the vCPUs of its runs.
    It names the percent, because kube-scheduler calls an extender for such pods only.
    """
    requests = dict(resources.get("requests") or {})
    limits = dict(resources.get("limits") or {})
    if ceilings.in_slice:
        requests |= {"cpu": _MEMBER_CPU, names.RESOURCE_GPU_PERCENT: "0"}
        limits |= {"cpu": str(ceilings.cpu), names.RESOURCE_GPU_PERCENT: "0"}
        return {**resources, "requests": requests, "limits": limits}
    if "cpu" not in requests and "cpu" not in limits:
        requests["cpu"] = limits["cpu"] = str(ceilings.cpu)
    share = names.RESOURCE_GPU_PERCENT
    percent = requests.get(share, limits.get(share, str(ceilings.gpu_percent)))
    requests.setdefault(share, percent)
    limits.setdefault(share, percent)
    return {**resources, "requests": requests, "limits": limits}


def _mounts(defaults: PodDefaults) -> list[Json]:
    """Mount the folders of the pod's own GPU only."""
    return [
        # The mount path cannot depend on the GPU; the sub-path does.
        {"name": VOLUME, "mountPath": path, "subPathExpr": f"$(ESG_GPU)/{folder}"}
        for folder, path in client_folders(defaults.mps_root).items()
    ]


def _environment(defaults: PodDefaults) -> list[Json]:
    return [
        *({"name": name, "valueFrom": _annotation(key)} for name, key in _GRANTED.items()),
        {"name": "CUDA_MPS_PIPE_DIRECTORY", "value": defaults.pipe_directory},
    ]


def _annotation(key: str) -> Json:
    # With apiVersion, a default: the API server sends it on reinvocation.
    return {"fieldRef": {"apiVersion": "v1", "fieldPath": f"metadata.annotations['{key}']"}}


def _is_reserved(variable: str) -> bool:
    """Return true if esg-scheduler sets or removes the variable.

    CUDA_VISIBLE_DEVICES is removed and not replaced: the container has one GPU, whose index there
    is 0 whatever it is on the node, and some frameworks cannot parse a UUID.
    """
    return (
        variable in _GRANTED
        or variable == "CUDA_VISIBLE_DEVICES"
        or variable.startswith("CUDA_MPS_")
    )


def _absolute(mount_path: str) -> str:
    """Normalise a mount path like the kubelet: ``dev/shm/`` is ``/dev/shm``."""
    return normpath(f"/{mount_path.lstrip('/')}")


def _with_volume(volumes: list[Json], volume: Json) -> list[Json]:
    """Replace the volume of the same name in place, or append it."""
    if any(existing["name"] == volume["name"] for existing in volumes):
        return [volume if old["name"] == volume["name"] else old for old in volumes]
    return [*volumes, volume]
