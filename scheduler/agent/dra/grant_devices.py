"""CDI devices of granted pods: a specification for each resource claim, in the runtime's folder.

A container with the device has the MPS pipe directory and the /dev/shm of its GPU, at the paths at
which a volume would mount them. The container runtime reads the specification at each start of a
container, so it stays until the kubelet releases the claim.
"""

import json
import re
from pathlib import Path

from scheduler.agent.whole_file import write_whole
from scheduler.model.mps_folders import client_folders
from scheduler.model.names import CDI_GRANT

_CDI_VERSION = "0.6.0"
_CLAIM_UID = re.compile(r"[0-9a-f]([-0-9a-f]{0,61}[0-9a-f])?", re.ASCII)


class GrantDevices:
    """The specifications of a node.

    Args:
        folder: folder of the container runtime for CDI.
        mps_root: host folder with one folder per GPU.
    """

    def __init__(self, folder: Path, mps_root: str) -> None:
        self._folder = folder
        self._mps_root = mps_root

    def write(self, claim_uid: str, gpu_uuid: str) -> str:
        """Write the specification of a claim on a GPU, atomically; return the device's name.

        Raises:
            OSError: it cannot be written.
        """
        path = self._path(claim_uid)
        self._folder.mkdir(parents=True, exist_ok=True)
        write_whole(path, json.dumps(self._specification(claim_uid, gpu_uuid)))
        return f"{CDI_GRANT}={claim_uid}"

    def remove(self, claim_uid: str) -> None:
        """Remove the specification of a claim, if there is one.

        Raises:
            OSError: it cannot be removed.
        """
        self._path(claim_uid).unlink(missing_ok=True)

    def _path(self, claim_uid: str) -> Path:
        if _CLAIM_UID.fullmatch(claim_uid) is None:
            raise OSError(f"the UID of a claim is no UID: {claim_uid!r}")
        return self._folder / f"{CDI_GRANT.replace('/', '-')}-{claim_uid}.json"

    def _specification(self, claim_uid: str, gpu_uuid: str) -> dict[str, object]:
        options = ["bind", "rw", "nosuid", "nodev"]
        edits = [
            {
                "hostPath": f"{self._mps_root}/{gpu_uuid}/{folder}",
                "containerPath": path,
                "options": options,
            }
            for folder, path in client_folders(self._mps_root).items()
        ]
        device = {"name": claim_uid, "containerEdits": {"mounts": edits}}
        return {"cdiVersion": _CDI_VERSION, "kind": CDI_GRANT, "devices": [device]}
