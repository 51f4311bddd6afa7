"""Capacity of the nodes in a file."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import typer

from scheduler.cli.document_files import read_nodes
from scheduler.ledger.ledger import Ledger
from scheduler.ledger.reservation import Reservation
from scheduler.model.fleet_capacity import FleetCapacity
from scheduler.model.names import ANNOTATION_GPUS
from scheduler.model.node import NodeError, checked_node, node_from_json
from scheduler.model.pod import has_ended, is_daemon
from scheduler.model.pod_resources import requested_cpu_milli
from scheduler.placement.options import Limits


def read_fleet(path: Path, limits: Limits) -> FleetCapacity:
    """Read the Nodes of a file, and the daemons among its Pods; a file without GPUs is an error."""
    try:
        capacity = fleet_of(read_nodes(path), limits)
    except NodeError as error:
        raise typer.BadParameter(f"{path}: {error}") from None
    if not capacity.sizes:
        raise typer.BadParameter(
            f"{path}: no Node has a GPU in its annotation {ANNOTATION_GPUS}; the node agent "
            "writes it"
        )
    return capacity


def fleet_of(raws: Iterable[Any], limits: Limits) -> FleetCapacity:
    """Return the capacity of Nodes, less what the daemons among Pods take.

    Raises:
        NodeError: an object is no valid Node.
    """
    ledger = Ledger(limits)
    for number, raw in enumerate(raws, start=1):
        if isinstance(raw, Mapping) and raw.get("kind") == "Pod":
            _add_daemon(raw, ledger)
        else:
            ledger.set_node(node_from_json(checked_node(raw, number)))
    return ledger.fleet.capacity


def _add_daemon(raw: Mapping[str, Any], ledger: Ledger) -> None:
    node = (raw.get("spec") or {}).get("nodeName")
    if not node or has_ended(raw) or not is_daemon(raw):
        return
    metadata = raw["metadata"]
    ledger.confirm(
        Reservation(
            uid=f"{metadata.get('namespace')}/{metadata['name']}",
            namespace=str(metadata.get("namespace")),
            name=metadata["name"],
            node=node,
            cpu_milli=requested_cpu_milli(raw),
            is_daemon=True,
        )
    )
