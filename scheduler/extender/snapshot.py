"""Snapshot of the state as JSON, and the state rebuilt from it.

The same decisions can be taken again offline, but for two things that only the process knows: the
GPUs held for pods whose victims are being evicted, and promises to gangs and to members of pools.
"""

from collections.abc import Collection, Mapping
from typing import Any

from scheduler.ledger.reservation import Reservation
from scheduler.model.documents import to_manifest
from scheduler.model.node import Gpu, Node
from scheduler.model.pod import FunctionPod
from scheduler.model.progress import UNKNOWN_PROGRESS, InstanceProgress
from scheduler.planning.metrics import Metrics
from scheduler.planning.pods import PendingPod, describe
from scheduler.planning.state import State
from scheduler.settings import Settings

SNAPSHOT_VERSION = 5


class SnapshotError(ValueError):
    """A file that is not a snapshot of this version; the message says why."""


def take_snapshot(state: State) -> dict[str, Any]:
    """Serialise the state."""
    catalogue = state.documents.catalogue
    nodes = state.ledger.snapshot()
    shown = {pod["uid"] for node in nodes for gpu in node["gpus"] for pod in gpu["pods"]}
    return {
        "version": SNAPSHOT_VERSION,
        "time": state.clock(),
        "settings": state.settings.model_dump(mode="json"),
        "workflows": [to_manifest(w) for w in catalogue.workflows.values()],
        "profiles": [to_manifest(p) for p in catalogue.profiles.values()],
        "nodes": nodes,
        # Home nodes are chosen by row; a removed node leaves an empty one.
        "node_rows": [node and node.name for node in state.ledger.fleet.nodes],
        "node_problems": state.nodes.problems,
        # Reservations without a GPU, or on a node or GPU that is not there now.
        "other_reservations": [
            reservation.as_json() | {"node": reservation.node, "gpu": reservation.gpu_uuid}
            for reservation in state.ledger.reservations()
            if reservation.uid not in shown
        ],
        "pending": [_pending(state, pod) for pod in state.pods.pending.values()],
    }


def _pending(state: State, pod: PendingPod) -> dict[str, Any]:
    """Serialise a pending pod, with the nodes where its function and its predecessors ran."""
    stage_nodes: Mapping[str, str] = {}
    warm_nodes: Collection[str] = ()
    progress = UNKNOWN_PROGRESS
    later_waits_ms = 0.0
    if pod.function_pod is not None:
        function = state.documents.function_of(pod.function_pod)
        stage_nodes = state.history.stage_nodes(pod.function_pod)
        warm_nodes = state.history.warm_nodes(pod.namespace, function)
        progress = state.history.progress(pod.function_pod, state.clock())
        later_waits_ms = state.history.later_waits_ms(pod.function_pod)
    return {
        "name": f"{pod.namespace}/{pod.name}",
        "pod": pod.raw,
        "stage_nodes": dict(stage_nodes),
        "warm_nodes": sorted(warm_nodes),
        "ended_stages": sorted(progress.ended),
        "running_stages_ms": dict(progress.running_ms),
        "progress_is_known": progress.is_known,
        "later_waits_ms": later_waits_ms,
    }


class RecordedHistory:
    """Run history of the pending pods of a snapshot."""

    def __init__(
        self,
        stage_nodes: Mapping[str, Mapping[str, str]],
        progress: Mapping[str, InstanceProgress],
        later_waits_ms: Mapping[str, float],
    ) -> None:
        """Create it from what was recorded for each pod, by its UID."""
        self._stage_nodes = stage_nodes
        self._progress = progress
        self._later_waits_ms = later_waits_ms
        self._warm_nodes: dict[tuple[str, str], frozenset[str]] = {}

    def record_warm(self, namespace: str, function: str, nodes: Collection[str]) -> None:
        """Record the nodes on which a function is warm."""
        self._warm_nodes[namespace, function] = frozenset(nodes)

    def stage_nodes(self, pod: FunctionPod) -> Mapping[str, str]:
        """Nodes of the stages of the pod's instance, by stage."""
        return self._stage_nodes.get(pod.uid, {})

    def progress(self, pod: FunctionPod, now_s: float) -> InstanceProgress:  # noqa: ARG002
        """Stages of the pod's instance that had ended or ran."""
        return self._progress.get(pod.uid, UNKNOWN_PROGRESS)

    def later_waits_ms(self, pod: FunctionPod) -> float:
        """Observed waits at all stages after the pod's, ms."""
        return self._later_waits_ms.get(pod.uid, 0.0)

    def warm_nodes(self, namespace: str, function: str) -> frozenset[str]:
        """Nodes on which the function is warm."""
        return self._warm_nodes.get((namespace, function), frozenset())


def restore_state(snapshot: Mapping[str, Any]) -> State:
    """Rebuild the state of a snapshot; its clock stands still at the snapshot's time.

    Raises:
        SnapshotError: it is not a snapshot of this version.
    """
    if snapshot.get("version") != SNAPSHOT_VERSION:
        raise SnapshotError(
            f"snapshot version {snapshot.get('version')!r} cannot be read: this esg reads version "
            f"{SNAPSHOT_VERSION}; use the esg of the service that wrote the snapshot"
        )
    try:
        return _restore(snapshot)
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise SnapshotError(
            f"the snapshot is incomplete or was edited ({type(error).__name__}: {error}); "
            "save /v1/snapshot again"
        ) from error


def _restore(snapshot: Mapping[str, Any]) -> State:
    settings = Settings.model_validate(snapshot["settings"])
    time_s = float(snapshot["time"])
    state = State(settings, Metrics(settings.prices), clock=lambda: time_s, monotonic=lambda: 0.0)
    state.documents.workflows.replace(snapshot["workflows"])
    state.documents.profiles.replace(snapshot["profiles"])
    _restore_nodes(state, snapshot)
    state.nodes.problems.update(snapshot["node_problems"])
    for entry in snapshot["pending"]:
        state.pods.upsert(entry["pod"])
    pending = {entry["pod"]["metadata"]["uid"]: entry for entry in snapshot["pending"]}
    history = RecordedHistory(
        {uid: entry["stage_nodes"] for uid, entry in pending.items()},
        {
            uid: InstanceProgress(
                frozenset(entry["ended_stages"]),
                entry["running_stages_ms"],
                entry["progress_is_known"],
            )
            for uid, entry in pending.items()
        },
        {uid: float(entry["later_waits_ms"]) for uid, entry in pending.items()},
    )
    for entry in snapshot["pending"]:
        pod = describe(entry["pod"]).function_pod
        if pod is not None:
            function = state.documents.function_of(pod)
            history.record_warm(pod.namespace, function, entry["warm_nodes"])
    state.history = history
    return state


def _restore_nodes(state: State, snapshot: Mapping[str, Any]) -> None:
    ledger = state.ledger
    nodes = {node["name"]: node for node in snapshot["nodes"]}
    empty_rows = []
    for row, name in enumerate(snapshot["node_rows"]):
        if name is None:
            empty_rows.append(f"empty row {row}")
            ledger.set_node(Node(empty_rows[-1], (), 0))
            continue
        gpus = tuple(Gpu.model_validate(gpu) for gpu in nodes[name]["gpus"])
        ledger.set_node(Node(name, gpus, nodes[name]["cpu_milli"]))
    for name in empty_rows:
        ledger.remove_node(name)
    for name, node in nodes.items():
        for gpu in node["gpus"]:
            for pod in gpu["pods"]:
                ledger.adopt(_reservation(pod, name, gpu["uuid"]))
    for pod in snapshot["other_reservations"]:
        ledger.adopt(_reservation(pod, pod["node"], pod["gpu"]))


def _reservation(pod: Mapping[str, Any], node: str, gpu_uuid: str | None) -> Reservation:
    return Reservation(
        uid=pod["uid"],
        namespace=pod["namespace"],
        name=pod["name"],
        node=node,
        cpu_milli=pod["cpu_milli"],
        gpu_uuid=gpu_uuid,
        gpu_percent=pod["gpu_percent"],
        memory_mib=pod["memory_mib"],
        batch=pod["batch"],
        function=pod["function"],
        priority=pod["priority"],
        is_daemon=pod["is_daemon"],
        pool=pod["pool"],
        group=pod["group"],
        is_ending=pod["is_ending"],
        slice_percent=pod["slice_percent"],
        slice_cpu_milli=pod["slice_cpu_milli"],
        assumed_at_s=None if pod["state"] == "confirmed" else 0.0,
    )
