"""``esg status``: workflows, functions and GPUs as tables, as the live page shows them."""

import asyncio
import json
import sys
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import typer

from scheduler.cli.failure import failing_on, stopped_by_ctrl_c
from scheduler.cli.gateway_documents import GatewayReadError, other_port, read_documents

_WATCH_S = 2.0
_CLEAR = "\x1b[H\x1b[2J"
_NODES_MAX = 40
_WORKFLOWS = ("workflow", "SLO ms", "objective", "in SLO 5m", "in SLO 1h", "burnt 1h", "req/s",
              "p50 ms", "p99 ms", "$/1k ran", "set aside", "limit B0")  # fmt: skip
_FUNCTIONS = ("function", "ready", "starting", "wanted", "waiting", "rows/batch", "run/profile",
              "$/h")  # fmt: skip
_GPUS = ("node", "GPUs", "granted", "empty", "unhealthy", "pods")


def print_status(url: str, kubeconfig: Path | None, *, watch: bool, as_json: bool) -> None:
    """Print the tables once, or every two seconds until Ctrl-C."""
    with failing_on(GatewayReadError), stopped_by_ctrl_c():
        asyncio.run(_print(url, kubeconfig, watch=watch, as_json=as_json))


async def _print(url: str, kubeconfig: Path | None, *, watch: bool, as_json: bool) -> None:
    while True:
        overviews = await read_documents("/v1/overview", url, kubeconfig)
        if not overviews:
            raise GatewayReadError(
                f"the live page is off; set ESG_PAGE=true (settings.page), or {other_port(url)}"
            )
        gpus = await _gpus(url, kubeconfig)
        status = _merged(overviews, gpus)
        text = json.dumps(status, indent=2) if as_json else tables(status)
        typer.echo((_CLEAR if watch and sys.stdout.isatty() else "") + text)
        if not watch:
            return
        await asyncio.sleep(_WATCH_S)


async def _gpus(url: str, kubeconfig: Path | None) -> Mapping[str, Any]:
    """Return GPUs as the first gateway that can reads them from the extender."""
    try:
        reports = await read_documents("/v1/gpus", url, kubeconfig, is_one_enough=True)
    except GatewayReadError as error:
        return {"nodes": [], "problem": str(error)}
    unset = {"nodes": [], "problem": "set ESG_GATEWAY_EXTENDER_URL of the gateway"}
    return next(iter(reports.values()), unset)


def _merged(overviews: Mapping[str, Any], gpus: Mapping[str, Any]) -> dict[str, Any]:
    """Join what the gateways say.

    Each workflow is that of the gateway with most requests, each function that of most pods. The
    replicas of a group have one pool in a namespace.
    """
    problems: dict[str, str] = {}
    by_group_dollars: dict[tuple[str, str], float] = {}
    for name, overview in overviews.items():
        group = overview["group"]
        by_group_dollars |= {
            (group, namespace): dollars for namespace, dollars in overview["pools"].items()
        }
        problems |= overview["problems"]
        if overview["not_ready"]:
            problems[f"{name} is not ready"] = overview["not_ready"]
    pools: defaultdict[str, float] = defaultdict(float)
    for (_, namespace), dollars in by_group_dollars.items():
        pools[namespace] += dollars
    return {
        "workflows": _largest(overviews, "workflows", "per_s"),
        "functions": _largest(overviews, "functions", "ready"),
        "pools": pools,
        "problems": problems,
        "gpus": gpus,
    }


def _largest(overviews: Mapping[str, Any], part: str, size: str) -> list[Mapping[str, Any]]:
    """Return the rows of all gateways by name; of several with one name, that of the largest."""
    rows: dict[tuple[str, str], Any] = {}
    for overview in overviews.values():
        for row in overview[part]:
            key = row["namespace"], row["name"]
            if key not in rows or row[size] > rows[key][size]:
                rows[key] = row
    return [rows[key] for key in sorted(rows)]


def tables(status: Mapping[str, Any]) -> str:
    """Return the three tables."""
    workflows = [
        (
            f"{row['namespace']}/{row['name']}",
            _number(row["slo_ms"], 0),
            _percent(row["objective"]),
            _percent(row["in_slo_5m"]),
            _percent(row["in_slo_1h"]),
            _percent(row["budget_burnt_1h"], 0),
            _number(row["per_s"], 1),
            _number(row["p50_ms"], 0),
            _number(row["p99_ms"], 0),
            _number(row["ran_per_1000"], 4),
            _number(row["set_aside_per_1000"], 4),
            _number(row["bound_per_1000"], 4),
        )
        for row in status["workflows"]
    ]
    functions = [
        (
            f"{row['namespace']}/{row['name']}",
            *(str(row[key]) for key in ("ready", "starting", "wanted", "queued_rows")),
            _number(row["rows_per_batch"], 2),
            _number(row["run_over_profile"], 2),
            _number(row["dollars_per_hour"], 2),
        )
        for row in status["functions"]
    ]
    pools = [
        f"\npool of namespace {name}: ${dollars:,.2f}/h for its slices"
        for name, dollars in sorted(status["pools"].items())
    ]
    nodes = status["gpus"]["nodes"]
    parts = [_table(_WORKFLOWS, workflows), "".join([_table(_FUNCTIONS, functions), *pools])]
    parts.append(_table(_GPUS, [_node(node) for node in nodes[:_NODES_MAX]]))
    if len(nodes) > _NODES_MAX:
        parts[-1] += f"\nand {len(nodes) - _NODES_MAX} more nodes; --json lists them"
    if problem := status["gpus"].get("problem"):
        parts[-1] += f"\nGPUs cannot be read: {problem}"
    parts += [f"{name}: {text}" for name, text in status["problems"].items()]
    return "\n\n".join(parts)


def _node(node: Mapping[str, Any]) -> Sequence[str]:
    gpus = node["gpus"]
    return (
        node["name"],
        str(len(gpus)),
        f"{sum(100 - gpu['free_percent'] for gpu in gpus)} %",
        str(sum(gpu["free_percent"] == 100 for gpu in gpus)),  # noqa: PLR2004
        str(sum(not gpu["healthy"] for gpu in gpus)),
        str(sum(len(gpu["pods"]) for gpu in gpus)),
    )


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [head, *rows]
    widths = [max(len(line[i]) for line in lines) for i in range(len(head))]
    texts = []
    for first, *others in lines:
        cells = map(str.rjust, others, widths[1:])
        texts.append("  ".join([first.ljust(widths[0]), *cells]))
    return "\n".join(texts)


def _percent(ratio: float | None, digits: int = 1) -> str:
    return "-" if ratio is None else f"{100 * ratio:.{digits}f} %"


def _number(value: float | None, digits: int) -> str:
    return "-" if value is None else f"{value:,.{digits}f}"
