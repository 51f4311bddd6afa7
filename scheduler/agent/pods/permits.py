"""The GPUs that `esg agent` permits `esg mps` to take.

Only the agent knows the cluster: whether a device plugin offers a GPU, and which pods are on it.
The permits are a file, like the states of the daemons: an agent that is replaced withdraws none.
"""

import json
from collections.abc import Iterable
from pathlib import Path

from scheduler.agent.whole_file import write_whole


def write_permits(path: Path, uuids: Iterable[str]) -> None:
    """Write the permitted GPUs atomically.

    Raises:
        OSError: the file cannot be written.
    """
    write_whole(path, json.dumps(sorted(uuids)))


def read_permits(path: Path) -> frozenset[str] | None:
    """Read the permitted GPUs; None without a valid file: nothing was decided yet."""
    try:
        uuids = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return None
    if not isinstance(uuids, list) or not all(isinstance(uuid, str) for uuid in uuids):
        return None
    return frozenset(uuids)
