"""``esg why``: the stages of one request and the cause of its lateness, or a list of late ones."""

import asyncio
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import typer

from scheduler.cli.failure import fail, failing_on
from scheduler.cli.gateway_documents import GatewayReadError, other_port, read_documents

_BAR = 60  # characters of the whole time
_LINE = "{:20} {:30} {:>10} {:>10} {:>10}  {:18}  {}"
_LINES = "request", "workflow", "late, ms", "took, ms", "SLO, ms", "arrived, UTC", "cause"
_ROW = "  {:16} {:>4}  {:>9}  {:>9}  {:>9}  {:>9}  {:>9}  {:>9}  {}"


def explain_request(identifier: str, url: str, kubeconfig: Path | None, *, as_json: bool) -> None:
    """Print the report of a request."""
    with failing_on(GatewayReadError):
        path = f"/v1/requests/{identifier}"
        reports = asyncio.run(read_documents(path, url, kubeconfig, is_one_enough=True))
    if not reports:
        _late_requests(url, kubeconfig)  # it is a gateway
        fail(
            f"no gateway has the request {identifier}: it was in time and is not of the sample, or "
            "later ones have taken its place (ESG_GATEWAY_TRACE_MAX_MIB)"
        )
    for report in reports.values():
        typer.echo(json.dumps(report, indent=2) if as_json else text(report))


def list_late_requests(url: str, kubeconfig: Path | None, *, as_json: bool) -> None:
    """Print the last late requests of all gateways, the newest first."""
    rows = sorted(
        (row for document in _late_requests(url, kubeconfig).values() for row in document),
        key=lambda row: str(row["arrived"]),
        reverse=True,
    )
    if as_json:
        typer.echo(json.dumps(rows, indent=2))
    elif rows:
        typer.echo("\n".join(_LINE.format(*cells) for cells in [_LINES, *map(_line, rows)]))
    else:
        typer.echo("No request was late.")


def _late_requests(url: str, kubeconfig: Path | None) -> Mapping[str, Any]:
    """Return the last late requests by gateway; fail if there is no gateway."""
    with failing_on(GatewayReadError):
        documents = asyncio.run(read_documents("/v1/requests", url, kubeconfig))
    if not documents:
        fail(f"no gateway has /v1/requests; {other_port(url)}")
    return documents


def _line(row: Mapping[str, Any]) -> tuple[str, ...]:
    return (
        row["client_id"] or row["id"],
        f"{row['namespace']}/{row['workflow']}",
        *(f"{row[key]:,.1f}" for key in ("late_ms", "latency_ms", "allowed_ms")),
        row["arrived"][5:23].replace("T", " "),
        f"{row['error']} ({row['explanation']})" if row["error"] else row["explanation"],
    )


def text(report: Mapping[str, Any]) -> str:
    """Return the text of a report."""
    end = {"hit": "answered in time", "miss": "answered late", "dropped": "without an answer"}
    workflow = f"{report['namespace']}/{report['workflow']}"
    lines = [
        f"request {report['id']} of {workflow}: {end[report['result']]}",
        f"  arrived {report['arrived']}",
        f"  {report['latency_ms']:,.1f} ms, {report['allowed_ms']:,.1f} ms allowed",
    ]
    if client_id := report.get("client_id"):
        lines.append(f"  id of its client: {client_id}")
    if report["error"]:
        lines.append(f"  {report['error']}")
    if report["cause"]:
        lines.append(f"cause: {report['cause']}: {report['explanation']}")
    lines.append("time on the critical path:")
    scale = _BAR / max(report["allowed_ms"], report["latency_ms"], 1.0)
    for name, part_ms in report["parts_ms"].items():
        if part_ms:
            bar = "#" * round(part_ms * scale)
            lines.append(f"  {name:13} {part_ms:10,.1f} ms  {bar}".rstrip())
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
