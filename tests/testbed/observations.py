"""Observations of pods, in the order in which the API server stored their changes.

A test replays them to check every moment, not only the end: the final state does not show an
overcommit of a second.
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
    """Seconds since the start of the run."""
    event: str
    """`ADDED`, `MODIFIED` or `DELETED`."""
    name: str
    uid: str
    phase: str
    node: str
    """Empty while unbound."""
    labels: dict[str, str]
    """Those of esg-scheduler.io, without the prefix."""
    annotations: dict[str, str]
    """Those of esg-scheduler.io, without the prefix."""
    deleting: bool
    ended: bool
    """True if it reserves nothing: no container of it runs, or it is deleted."""

    @classmethod
    def of(cls, event: str, pod: dict[str, Any], *, at_s: float) -> Self:
        """Reduce a watched pod to the fields that tests read."""
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
    """Peak of the grants of one GPU."""

    percent: int
    memory_mib: int
    clients: int


def peak_use(observations: Iterable[Observation]) -> dict[str, GpuUse]:
    """Return the peak sums of percent, memory and pods of every GPU, by UUID.

    A pod counts from the first event with a node until the first event that shows its end; a
    terminating pod counts. The annotations `gpu`, `gpu-percent` and `gpu-memory` have the grants.

    Raises:
        ValueError: an annotation of a bound pod is malformed.
    """
    reservations: dict[str, dict[str, tuple[int, int]]] = defaultdict(dict)
    peaks: dict[str, GpuUse] = {}
    for seen in observations:
        uuid = seen.annotations.get("gpu")
        if not seen.node or uuid is None:
            continue
        on_gpu = reservations[uuid]
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
    """Return the number N in annotation `gpu-memory`, `0=<N>M`; 0 without the annotation.

    Raises:
        ValueError: the annotation has another form.
    """
    text = annotations.get("gpu-memory", "0=0M")
    match = re.fullmatch(r"0=(\d+)M", text)
    if match is None:
        raise ValueError(f"annotation gpu-memory: {text}; write it as 0=<N>M")
    return int(match[1])


def _ours(values: dict[str, str] | None) -> dict[str, str]:
    start = f"{PREFIX}/"
    return {k.removeprefix(start): v for k, v in (values or {}).items() if k.startswith(start)}
