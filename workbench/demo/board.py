"""What a person sees: a live table, or lines where there is no terminal; then a summary."""

from collections.abc import Sequence
from typing import Literal

from rich.box import SIMPLE_HEAD
from rich.console import Console, Group
from rich.table import Table
from rich.text import Text

from workbench.demo.figures import DemoComparison, Misses, Summary, WorkflowFigures

_COLUMNS = ("workflow", "SLO ms", "done", "in SLO", "p50/SLO", "p99/SLO", "$/1k")


def table(workflows: Sequence[WorkflowFigures], total: WorkflowFigures) -> Table:
    """One row a workflow, and one of all."""
    made = Table(box=SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False)  # 80 columns are enough
    for column in _COLUMNS:
        justify: Literal["left", "right"] = "left" if column == "workflow" else "right"
        made.add_column(column, justify=justify, no_wrap=True)
    for each in workflows:
        made.add_row(*_row(each))
    made.add_section()
    made.add_row(*_row(total), style="bold")
    return made


def state_line(
    *, elapsed_s: float, total: WorkflowFigures, fill: float, pods_per_second: float, waiting: int
) -> str:
    """The moment in one line."""
    return (
        f"{elapsed_s:5.1f} s  {total.done:,} of {total.arrived:,} requests done, "
        f"SLO hits {_percent(total.hit_rate)}; GPUs {_percent(fill)} granted; "
        f"{pods_per_second:.0f} pods placed/s; {waiting} requests wait"
    )


def live(workflows: Sequence[WorkflowFigures], total: WorkflowFigures, line: str) -> Group:
    """The live picture."""
    return Group(table(workflows, total), Text(line))


def print_summary(console: Console, summary: Summary) -> None:
    """The end."""
    console.print(table(summary.workflows, summary.total))
    for line in summary_lines(summary):
        console.print(line, highlight=False, soft_wrap=True)


def summary_lines(summary: Summary) -> list[str]:
    """What the table does not tell."""
    placed = (
        f"{summary.pods:,} pods placed in {summary.seconds:.1f} s "
        f"({summary.pods_per_second:.0f} a second), {summary.batch_mean:.2f} requests a pod; "
        f"in the mean {_percent(summary.gpu_fill_mean)} of the GPUs granted"
    )
    decided = (
        "a decision (filter, prioritize, bind) took "
        f"{_ms(summary.decision_p50_ms)} (p50), {_ms(summary.decision_p99_ms)} (p99)"
    )
    troubles = (
        f"{summary.filters_nowhere:,} filters found no room, {summary.binds_refused:,} binds were "
        f"refused, {summary.plans_late:,} pods were placed when the SLO was lost already"
    )
    return [placed, decided, troubles, *_missed(summary.misses), _compared(summary.comparison)]


def _missed(misses: Misses | None) -> list[str]:
    if misses is None:
        return []
    told = (
        f"the {misses.count:,} requests that missed were {misses.late_ms:.0f} ms late in the mean: "
        f"they waited {misses.waited_ms:.0f} ms for their pods to be placed, and ran "
        f"{misses.beyond_plan_ms:+.0f} ms against the plan"
    )
    return [told]


def _compared(comparison: DemoComparison) -> str:
    least, most = comparison.demo_hits
    return (
        "of the requests that were the oldest in each of their pods, the service counted "
        f"{comparison.service_hits:,} hits of {comparison.service_ended:,}; this side "
        f"{least:,} to {most:,} of {comparison.demo_ended:,} (before and after the call that ends "
        f"the pod); ${comparison.service_dollars:.4f} were spent, or "
        f"{comparison.demo_dollars[0]:.4f} to {comparison.demo_dollars[1]:.4f}: "
        f"{'they agree' if comparison.agree else 'THEY DO NOT AGREE'}"
    )


def _row(each: WorkflowFigures) -> list[str]:
    return [
        each.workflow,
        "" if each.slo_ms is None else f"{each.slo_ms:,.0f}",
        f"{each.done:,}",
        _percent(each.hit_rate),
        _ratio(each.p50_over_slo),
        _ratio(each.p99_over_slo),
        "-" if each.cost_per_1000 is None else f"{each.cost_per_1000:.3f}",
    ]


def _percent(ratio: float | None) -> str:
    return "-" if ratio is None else f"{100 * ratio:.1f} %"


def _ratio(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"


def _ms(value: float | None) -> str:
    return "-" if value is None else f"{value:.1f} ms"
