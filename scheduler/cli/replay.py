"""``esg replay``: decide again offline from a snapshot."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import typer

from scheduler.extender.replay import replay
from scheduler.extender.snapshot import SnapshotError
from scheduler.model.message_text import reason_of

_NODES_SHOWN = 20


def replay_snapshot(snapshot: Path, pod: str | None, *, as_json: bool) -> None:
    """Print the decisions on the pending pods of a snapshot."""
    try:
        explanations = replay(_read(snapshot), pod)
    except SnapshotError as error:
        raise typer.BadParameter(f"{snapshot}: {error}") from None
    if as_json:
        typer.echo(json.dumps(explanations, indent=2))
        return
    if not explanations:
        typer.echo("no pod is pending in the snapshot")
    typer.echo("\n\n".join(_text(explanation) for explanation in explanations), nl=True)


def _read(path: Path) -> Mapping[str, Any]:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        reason = reason_of(error)
        raise SnapshotError(f"cannot be read: {reason}; save it with curl …/v1/snapshot") from None
    if not isinstance(content, dict):
        raise SnapshotError("it is not a JSON object; save it with curl …/v1/snapshot")
    return content


def _text(explanation: Mapping[str, Any]) -> str:
    lines = [f"pod {explanation['pod']} (uid {explanation['uid']})"]
    if explanation["error"]:
        return "\n".join([*lines, f"  refused: {explanation['error']}"])
    plan = explanation["plan"]
    if plan is not None:
        lines += _plan_lines(plan, explanation["selected_candidate"])
    feasible, infeasible = explanation["feasible_nodes"], explanation["infeasible_nodes"]
    lines.append(f"  feasible nodes ({len(feasible)}): {_listed(feasible)}")
    lines.append(f"  infeasible nodes ({sum(explanation['reasons'].values())}):")
    lines += [f"    {name}: {reason}" for name, reason in list(infeasible.items())[:_NODES_SHOWN]]
    if len(infeasible) > _NODES_SHOWN:
        lines.append(f"    and {len(infeasible) - _NODES_SHOWN} more; --json lists them")
    return "\n".join(lines)


def _plan_lines(plan: Mapping[str, Any], selected: int | None) -> list[str]:
    budget_ms = plan["budget_ms"]
    budget = "no time budget" if budget_ms is None else f"budget {budget_ms:,.1f} ms"
    lines = [f"  plan: {'feasible' if plan['feasible'] else plan['message']}; {budget}"]
    lines.append(
        "  candidates: batch  vCPU  GPU %     MiB  start ms   path ms  dollars    GPU model"
    )
    for index, candidate in enumerate(plan["candidates"]):
        lines.append(
            f"  {'->' if index == selected else '  '}{index:7} "
            f"{candidate['batch']:6} {candidate['cpu']:5} {candidate['gpu_percent']:6} "
            f"{candidate['memory_mib']:7} {candidate['start_ms']:9,.0f} "
            f"{candidate['path_ms']:9,.1f}  {candidate['path_cost']:.2e}  {candidate['gpu_model']}"
        )
    return lines


def _listed(names: list[str]) -> str:
    suffix = f" and {len(names) - _NODES_SHOWN} more" if len(names) > _NODES_SHOWN else ""
    return (", ".join(names[:_NODES_SHOWN]) or "none") + suffix
