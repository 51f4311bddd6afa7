"""What was seen of the pods, in the order in which the API server stored it.

A test replays it to judge every moment, not only the end: an over-commit of a second leaves no
trace in the final state.
"""

import re
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Self

from tests.testbed.pods import PREFIX


@dataclass(frozen=True, kw_only=True)
class Observation:
    """One pod at one event of the watch."""

    at_s: float
    """Seconds since the run began."""
    event: str
    """`ADDED`, `MODIFIED` or `DELETED`."""
    name: str
    uid: str
    phase: str
    node: str
    """Empty while unbound."""
    labels: dict[str, str]
    """Ours only, without the prefix."""
    annotations: dict[str, str]
    """Ours only, without the prefix."""
    deleting: bool
    ended: bool
    """Whether it holds nothing any more: no container of it runs, or it is gone."""

    @classmethod
    def of(cls, event: str, pod: dict[str, Any], *, at_s: float) -> Self:
        """Reduce a watched pod to what tests ask about."""
        metadata, status = pod["metadata"], pod.get("status", {})
        phase = status.get("phase", "")
        return cls(
            at_s=at_s,
            event=event,
            name=metadata["name"],
            uid=metadata["uid"],
            phase=phase,
            node=pod["spec"].get("nodeName", ""),
            labels=_ours(metadata.get("labels")),
            annotations=_ours(metadata.get("annotations")),
            deleting="deletionTimestamp" in metadata,
            ended=event == "DELETED" or phase in {"Succeeded", "Failed"},
        )


@dataclass(frozen=True, kw_only=True)
class GpuUse:
    """The most that was granted of one GPU at any one moment."""

    percent: int
    memory_mib: int
    clients: int


def peak_use(observations: Iterable[Observation]) -> dict[str, GpuUse]:
    """For each GPU by UUID, the highest sum of each kind over its pods at any observed moment.

    A pod counts from the event that shows it bound until one that shows it ended; a terminating
    pod counts. Grants are read from the annotations `gpu`, `gpu-percent` and `gpu-memory`.

    Raises:
        ValueError: an annotation of a bound pod cannot be read.
    """
    holding: dict[str, dict[str, tuple[int, int]]] = defaultdict(dict)
    peaks: dict[str, GpuUse] = {}
    for seen in observations:
        uuid = seen.annotations.get("gpu")
        if not seen.node or uuid is None:
            continue
        on_gpu = holding[uuid]
        if seen.ended:
            on_gpu.pop(seen.uid, None)
            continue
        on_gpu[seen.uid] = int(seen.annotations["gpu-percent"]), granted_mib(seen.annotations)
        peak = peaks.get(uuid, GpuUse(percent=0, memory_mib=0, clients=0))
        peaks[uuid] = GpuUse(
            percent=max(peak.percent, sum(percent for percent, _ in on_gpu.values())),
            memory_mib=max(peak.memory_mib, sum(mib for _, mib in on_gpu.values())),
            clients=max(peak.clients, len(on_gpu)),
        )
    return peaks


def granted_mib(annotations: dict[str, str]) -> int:
    """The number in annotation `gpu-memory`, `0=<N>M`; 0 when there is none.

    Raises:
        ValueError: it is written in another way.
    """
    text = annotations.get("gpu-memory", "0=0M")
    found = re.fullmatch(r"0=(\d+)M", text)
    if found is None:
        raise ValueError(f"gpu-memory is not 0=<N>M: {text}")
    return int(found[1])


def _ours(values: dict[str, str] | None) -> dict[str, str]:
    start = f"{PREFIX}/"
    return {k.removeprefix(start): v for k, v in (values or {}).items() if k.startswith(start)}
