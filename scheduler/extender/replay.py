"""Replay: take the decisions of a snapshot again, offline."""

from collections.abc import Mapping
from typing import Any

from scheduler.extender.explanation import explain
from scheduler.extender.scheduling import Scheduler
from scheduler.extender.snapshot import SnapshotError, restore_state


def replay(snapshot: Mapping[str, Any], name: str | None = None) -> list[dict[str, Any]]:
    """Explain the pending pods of a snapshot, as ``/v1/explain`` does; ``name`` selects one.

    Args:
        snapshot: JSON of ``/v1/snapshot``.
        name: namespace/name of a pod. Default: all pending pods.

    Raises:
        SnapshotError: it is not a snapshot of this version, or has no such pending pod.
    """
    state = restore_state(snapshot)
    scheduler = Scheduler(state)
    nodes = state.ledger.node_names()
    pods = {f"{pod.namespace}/{pod.name}": pod for pod in state.pods.pending.values()}
    if name is not None and name not in pods:
        pending = ", ".join(sorted(pods)) or "none"
        raise SnapshotError(
            f"pod {name} is not pending in the snapshot (pending: {pending}); "
            "give its namespace/name, or save a snapshot while it waits"
        )
    selected = pods.values() if name is None else [pods[name]]
    return [explain(scheduler, pod.raw, nodes) for pod in selected]
