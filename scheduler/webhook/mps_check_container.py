"""The init container that looks whether a pod's limits are in force, before its program starts.

It is `esg mps check` under the same environment, with the same mounts and as the same user as the
container that gets the GPU, so what it finds holds there too. Where a limit is not in force it ends
with 1, the pod does not start, and what it found is the container's termination message.
"""

from typing import Any

Json = dict[str, Any]

NAME = "esg-scheduler-mps-check"
# It runs before the others, and so asks for nothing that a function on a GPU does not ask for.
# CUDA alone holds some hundred MiB of the machine's memory in a process.
_RESOURCES = {"cpu": "1", "memory": "1Gi"}


def limit_check(image: str, user: int, environment: list[Json], mounts: list[Json]) -> Json:
    """The container, with the API server's defaults written out, so that it is the same again.

    Args:
        image: the project's own.
        user: that the GPU's container runs as: an MPS server serves one.
        environment: of the GPU's container, as far as it is ours.
        mounts: the GPU's folders, likewise.
    """
    return {
        "name": NAME,
        "image": image,
        "imagePullPolicy": "IfNotPresent",
        "args": ["mps", "check"],
        "env": [
            *environment,
            {"name": "NVIDIA_DRIVER_CAPABILITIES", "value": "compute,utility"},
        ],
        "volumeMounts": mounts,
        "resources": {"requests": dict(_RESOURCES), "limits": dict(_RESOURCES)},
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
