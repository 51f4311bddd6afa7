"""``esg why``: the stages of one request, and the cause of its lateness."""

import asyncio
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import typer

from scheduler.cli.failure import fail, failing_on
from scheduler.cli.gateway_documents import GatewayReadError, read_documents

_BAR = 40  # characters of the allowed time
_ROW = "  {:16} {:>4}  {:>9}  {:>9}  {:>9}  {:>9}  {:>9}  {:>9}  {}"


def explain_request(identifier: str, url: str, kubeconfig: Path | None, *, as_json: bool) -> None:
    """Print the report of a request."""
    with failing_on(GatewayReadError):
        reports = asyncio.run(read_documents(f"/v1/requests/{identifier}", url, kubeconfig))
    if not reports:
        fail(
            f"no gateway has the request {identifier}: it was in time and is not of the sample, or "
            "later ones have taken its place (ESG_GATEWAY_TRACE_MAX_MIB)"
        )
    for report in reports.values():
        typer.echo(json.dumps(report, indent=2) if as_json else text(report))


def text(report: Mapping[str, Any]) -> str:
    """Return the text of a report."""
    end = {"hit": "answered in time", "miss": "answered late", "dropped": "without an answer"}
    workflow = f"{report['namespace']}/{report['workflow']}"
    lines = [
        f"request {report['id']} of {workflow}: {end[report['result']]}",
        f"  arrived {report['arrived']}",
        f"  {report['latency_ms']:,.1f} ms, {report['allowed_ms']:,.1f} ms allowed",
    ]
    if report["error"]:
        lines.append(f"  {report['error']}")
    if report["cause"]:
        lines.append(f"cause: {report['cause']}: {report['explanation']}")
    lines.append("time on the critical path:")
    scale = _BAR / max(report["allowed_ms"], 1.0)
    for name, part_ms in report["parts_ms"].items():
        if part_ms:
            bar = "#" * min(round(part_ms * scale), 2 * _BAR)
            lines.append(f"  {name:13} {part_ms:10,.1f} ms  {bar}")
    names = ("stage", "rows", "cold start", "queue", "share", "run", "profile", "slack", "pod")
    if report["stages"]:
        lines += ["stages, ms (* on the critical path; slack: left as the batch began):"]
        lines.append(_ROW.format(*names))
    for stage in report["stages"]:
        keys = ("cold_start_ms", "queue_ms", "share_ms", "run_ms", "profiled_ms", "slack_ms")
        where = f"{stage['pod']}, {stage['gpu_percent']} % GPU, {stage['cpu']} vCPU"
        lines.append(
            _ROW.format(
                stage["stage"] + ("*" if stage["critical"] else ""),
                stage["rows"],
                *(f"{stage[key]:,.1f}" for key in keys),
                where + (f": {stage['error']}" if stage["error"] else ""),
            )
        )
    lines += [
        f"  {wait['stage']}: waited from {wait['since_ms']:,.1f} ms on ({wait['missing']})"
        for wait in report["waits"]
    ]
    return "\n".join(lines)
