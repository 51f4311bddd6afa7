"""Output for people: a live table, or lines without a terminal; then a summary."""

from collections.abc import Sequence
from typing import Literal

from rich.box import SIMPLE_HEAD
from rich.console import Console, Group
from rich.table import Table
from rich.text import Text

from workbench.demo.summary import DemoComparison, DemoSummary, WorkflowSummary
from workbench.simulation.result import Counts

_COLUMNS = ("workflow", "SLO ms", "done", "in SLO", "p50/SLO", "p99/SLO", "$/1k")


def table(workflows: Sequence[WorkflowSummary], total: WorkflowSummary) -> Table:
    """Return a table with one row per workflow, and one of all."""
    rows = Table(box=SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False)  # 80 columns are enough
    for column in _COLUMNS:
        justify: Literal["left", "right"] = "left" if column == "workflow" else "right"
        rows.add_column(column, justify=justify, no_wrap=True)
    for workflow in workflows:
        rows.add_row(*_row(workflow))
    rows.add_section()
    rows.add_row(*_row(total), style="bold")
    return rows


def state_line(
    *,
    elapsed_s: float,
    total: WorkflowSummary,
    utilisation_ratio: float,
    pods_per_s: float,
    waiting: int,
) -> str:
    """Return the current state in one line."""
    return (
        f"{elapsed_s:5.1f} s  {total.ended.requests:,} of {total.arrived:,} requests done, "
        f"SLO hits {_percent(total.hit_ratio)}; GPUs {_percent(utilisation_ratio)} granted; "
        f"{pods_per_s:.0f} pods placed/s; {waiting} requests waiting"
    )


def live(workflows: Sequence[WorkflowSummary], total: WorkflowSummary, line: str) -> Group:
    """Return the live view."""
    return Group(table(workflows, total), Text(line))


def print_summary(console: Console, summary: DemoSummary) -> None:
    """Print the table and the lines of a whole run."""
    console.print(table(summary.workflows, summary.total))
    for line in summary_lines(summary):
        console.print(line, highlight=False, soft_wrap=True)


def summary_lines(summary: DemoSummary) -> list[str]:
    """Return the lines below the table."""
    placed = (
        f"{summary.pods:,} pods placed in {summary.seconds:.1f} s "
        f"({summary.pods_per_s:.0f} a second), {summary.mean_batch_size:.2f} requests a pod; "
        f"mean GPU share granted {_percent(summary.gpu_utilisation_ratio)}"
    )
    decided = (
        "a decision (filter, prioritize, bind) took "
        f"{_ms(summary.decision_p50_ms)} (p50), {_ms(summary.decision_p99_ms)} (p99)"
    )
    failures = (
        f"{summary.infeasible_filters:,} filters found no feasible node, "
        f"{summary.refused_binds:,} binds were refused, "
        f"{summary.late_plans:,} pods were placed after their SLO was lost"
    )
    return [placed, decided, failures, *_missed(summary.total.ended), _compared(summary.comparison)]


def _missed(ended: Counts) -> list[str]:
    if not ended.misses:
        return []
    queue_ms = ended.missed.queue_ms / ended.misses
    execute_ms = ended.missed.execute_ms / ended.misses
    line = (
        f"the {ended.misses:,} requests that missed their SLO waited {queue_ms:.0f} ms for their "
        f"pods to be placed, and ran {execute_ms:.0f} ms (means)"
    )
    return [line]


def _compared(comparison: DemoComparison) -> str:
    minimum, maximum = comparison.demo_hits
    return (
        "of the requests that were the oldest in each of their pods, the service counted "
        f"{comparison.service_hits:,} hits of {comparison.service_ended:,}; the demo "
        f"{minimum:,} to {maximum:,} of {comparison.demo_ended:,} (before and after the call that "
        f"ends the pod). The service's cost is ${comparison.service_dollars:.4f}; the demo's is "
        f"${comparison.demo_dollars[0]:.4f} to ${comparison.demo_dollars[1]:.4f}: "
        f"{'they agree' if comparison.agree else 'THEY DO NOT AGREE'}"
    )


def _row(row: WorkflowSummary) -> list[str]:
    ended = row.ended
    if not ended.requests:
        return [row.workflow, _slo(row), "0", _percent(row.hit_ratio), "-", "-", "-"]
    return [
        row.workflow,
        _slo(row),
        f"{ended.requests:,}",
        _percent(row.hit_ratio),
        f"{ended.latency.quantile(0.5):.2f}",
        f"{ended.latency.quantile(0.99):.2f}",
        f"{ended.dollars_per_thousand:.3f}",
    ]


def _slo(row: WorkflowSummary) -> str:
    return "" if row.slo_ms is None else f"{row.slo_ms:,.0f}"


def _percent(ratio: float | None) -> str:
    return "-" if ratio is None else f"{100 * ratio:.1f} %"


def _ms(value_ms: float) -> str:
    return f"{value_ms:.1f} ms"
