"""The GPUs that `esg agent` permits `esg mps` to take.

Only the agent knows the cluster: whether a device plugin offers a GPU, and which pods are on it.
The permits are a file, like the states of the daemons: an agent that is replaced withdraws none.
"""

import json
import os
from collections.abc import Iterable
from pathlib import Path


def write_permits(path: Path, uuids: Iterable[str]) -> None:
    """Write the permitted GPUs atomically.

    Raises:
        OSError: the file cannot be written.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    temporary.write_text(json.dumps(sorted(uuids)), encoding="utf-8")
    temporary.replace(path)


def read_permits(path: Path) -> frozenset[str] | None:
    """Read the permitted GPUs; None without a valid file: nothing was decided yet."""
    try:
        uuids = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return None
    if not isinstance(uuids, list) or not all(isinstance(uuid, str) for uuid in uuids):
        return None
    return frozenset(uuids)
