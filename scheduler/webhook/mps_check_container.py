"""The init container that checks that a pod's GPU limits are enforced, before its program starts.

It runs `esg mps check` with the environment, the mounts and the user of the container that gets the
GPU, so its result holds there too. If a limit is not enforced, it exits with status 1, the pod does
not start, and the container's termination message says why.
"""

from typing import Any

from scheduler.model.names import CONTAINER_MPS_CHECK

Json = dict[str, Any]

# It runs before the other containers, so it requests no resource that a GPU function does not need;
# and no vCPU where the function requests none. A CUDA process alone takes some hundred MiB of the
# machine's memory.
_RESOURCES = {"cpu": "1", "memory": "1Gi"}


def mps_check_container(
    image: str, user: int, environment: list[Json], mounts: list[Json], requests: dict[str, str]
) -> Json:
    """Build the container, with the API server's defaults, so that a second call changes nothing.

    Args:
        image: image of the project.
        user: user of the GPU's container: an MPS server serves one user.
        environment: variables of the GPU's container that esg-scheduler sets.
        mounts: mounts of the GPU's folders.
        requests: requests in place of its own, by resource.
    """
    return {
        "name": CONTAINER_MPS_CHECK,
        "image": image,
        "imagePullPolicy": "IfNotPresent",
        "args": ["mps", "check"],
        "env": [
            *environment,
            {"name": "NVIDIA_DRIVER_CAPABILITIES", "value": "compute,utility"},
        ],
        "volumeMounts": mounts,
        "resources": {"requests": _RESOURCES | requests, "limits": dict(_RESOURCES)},
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]},
            "readOnlyRootFilesystem": True,
            "runAsNonRoot": True,
            "runAsUser": user,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "terminationMessagePath": "/dev/termination-log",
        "terminationMessagePolicy": "FallbackToLogsOnError",
    }
