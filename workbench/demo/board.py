"""Output for people: a live table, or lines without a terminal; then a summary."""

from collections.abc import Mapping, Sequence
from typing import Literal

from rich.box import SIMPLE_HEAD
from rich.console import Console, Group
from rich.table import Table
from rich.text import Text

from workbench.demo.results import WorkflowResults
from workbench.demo.summary import DemoSummary

_COLUMNS = ("workflow", "SLO ms", "answered", "in SLO", "p50", "p99 ms", "rows")
_NO_ANSWER = 0


def live(summary: DemoSummary, waiting: int) -> Group:
    """Return the live view."""
    return Group(
        table(summary), Text(state_line(summary, waiting)), *map(Text, pod_lines(summary.pods))
    )


def print_summary(console: Console, summary: DemoSummary) -> None:
    """Print the table and the lines of a whole run."""
    console.print(table(summary))
    for line in summary_lines(summary):
        console.print(line, highlight=False, soft_wrap=True)


def table(summary: DemoSummary) -> Table:
    """Return a table with one row per workflow, and one of all."""
    rows = Table(box=SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False)  # 80 columns are enough
    for column in _COLUMNS:
        justify: Literal["left", "right"] = "left" if column == "workflow" else "right"
        rows.add_column(column, justify=justify, no_wrap=True)
    for workflow in summary.results.workflows:
        rows.add_row(*_row(workflow, kept_up=summary.kept_up))
    rows.add_section()
    rows.add_row(*_row(summary.results.total, kept_up=summary.kept_up), style="bold")
    return rows


def state_line(summary: DemoSummary, waiting: int) -> str:
    """Return the current state in one line."""
    total = summary.results.total
    return (
        f"{summary.seconds:5.1f} s  {total.ended:,} requests ended, {waiting} in progress; SLO "
        f"hits {_percent(total.hit_ratio)}; {summary.batches:,} batches; "
        f"{sum(summary.pods.values())} pods hold {_percent(summary.held_ratio)} of the GPUs, runs "
        f"use {_percent(summary.busy_ratio)}; ${summary.dollars:.4f}"
    )


def pod_lines(pods: Mapping[tuple[str, int, int], int]) -> list[str]:
    """Return a line for each function with its pods by share."""
    functions: dict[str, list[str]] = {}
    for (function, cpu, percent), number in sorted(pods.items()):
        functions.setdefault(function, []).append(f"{number} x {percent} % GPU, {cpu} vCPU")
    return [f"  {function:20} {'; '.join(shares)}" for function, shares in functions.items()]


def summary_lines(summary: DemoSummary) -> list[str]:
    """Return the lines below the table."""
    total = summary.results.total
    used = (
        f"{summary.batches:,} batches, {summary.rows_per_batch:.2f} requests each; "
        f"{sum(summary.pods.values())} pods held {_percent(summary.held_ratio)} of "
        f"{summary.gpus} GPUs and used {_percent(summary.busy_ratio)}; "
        f"${summary.dollars_per_thousand:.3f} per 1,000 requests, idle pods included"
    )
    late = (
        f"the client sent its requests {summary.client_late_p99_ms:.1f} ms late, and the played "
        f"model servers ran {summary.server_late_p99_ms:.1f} ms too long (99th percentiles)"
    )
    lines = [used, *pod_lines(summary.pods), late, *_failures(total)]
    if not summary.kept_up:
        lines.append(
            "THIS MACHINE DID NOT KEEP UP with client and model servers, which are not the "
            "product: no hit rate can be told. Run fewer programs beside, or --load=light"
        )
    return lines


def _failures(total: WorkflowResults) -> Sequence[str]:
    lines = [
        f"{number:,} requests got no answer"
        if status == _NO_ANSWER
        else f"{number:,} requests were answered with status {status}"
        for status, number in sorted(total.refusals.items())
    ]
    if total.wrong:
        lines.append(f"{total.wrong:,} ANSWERS WERE WRONG")
    return lines


def _row(row: WorkflowResults, *, kept_up: bool) -> list[str]:
    slo = "" if row.slo_ms is None else f"{row.slo_ms:,.0f}"
    p50_ms, p99_ms = row.latency_ms(50), row.latency_ms(99)
    if p50_ms is None or p99_ms is None:
        return [row.name, slo, "0", _percent(row.hit_ratio), "-", "-", "-"]
    return [
        row.name,
        slo,
        f"{row.answered:,}",
        _percent(row.hit_ratio) if kept_up else "too slow",
        f"{p50_ms:,.0f}",
        f"{p99_ms:,.0f}",
        f"{row.rows_per_batch:.2f}",
    ]


def _percent(ratio: float | None) -> str:
    return "-" if ratio is None else f"{100 * ratio:.1f} %"
