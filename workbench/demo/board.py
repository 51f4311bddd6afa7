"""Output for people: a live table, or lines without a terminal; then a summary."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Literal

from rich.box import SIMPLE_HEAD
from rich.console import Console, Group
from rich.table import Table
from rich.text import Text

from workbench.demo.results import Results, WorkflowResults
from workbench.demo.summary import DemoSummary, PodKind

_COLUMNS = ("workflow", "SLO ms", "answered", "in SLO", "p50", "p99 ms", "rows")
_NO_ANSWER = 0


def live(summary: DemoSummary, waiting: int) -> Group:
    """Return the live view: the requests that count, or, before the first of them, the others."""
    lines = state_line(summary, waiting), *pod_lines(summary.pods)
    return Group(table(summary.results.current), *map(Text, lines))


def print_summary(console: Console, summary: DemoSummary) -> None:
    """Print the table and the lines of a whole run."""
    console.print(table(summary.results.counted, kept_up=summary.kept_up))
    for line in summary_lines(summary):
        console.print(line, highlight=False, soft_wrap=True)


def table(results: Results, *, kept_up: bool = True) -> Table:
    """Return a table with one row per workflow, and one of all."""
    rows = Table(box=SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False)  # 80 columns are enough
    for column in _COLUMNS:
        justify: Literal["left", "right"] = "left" if column == "workflow" else "right"
        rows.add_column(column, justify=justify, no_wrap=True)
    for workflow in results.workflows:
        rows.add_row(*_row(workflow, kept_up=kept_up))
    rows.add_section()
    rows.add_row(*_row(results.total, kept_up=kept_up), style="bold")
    return rows


def state_line(summary: DemoSummary, waiting: int) -> str:
    """Return the current state in one line."""
    results = summary.results
    total = results.current.total
    phase = "in SLO" if results.current is results.counted else "in SLO while pods start"
    return (
        f"{summary.seconds:5.1f} s  {_percent(total.hit_ratio)} of {total.ended:,} requests "
        f"{phase}, {waiting} in progress; {summary.batches:,} batches; "
        f"{_pods_text(summary)} hold {_percent(summary.reserved_ratio)} of the GPUs, runs "
        f"use {_percent(summary.busy_ratio)}; ${summary.dollars:.4f}"
    )


def pod_lines(pods: Mapping[PodKind, int]) -> list[str]:
    """Return a line for each function with its pods by share and state."""
    functions: defaultdict[str, defaultdict[str, list[str]]]
    functions = defaultdict(lambda: defaultdict(list))
    for kind, number in sorted(pods.items()):
        share = f"{kind.gpu_percent} % GPU, {kind.cpu} vCPU" if kind.cpu else "no node"
        functions[kind.function][share].append(f"{number} {kind.state}")
    return [
        f"  {function:20} " + "; ".join(f"{s}: {', '.join(n)}" for s, n in shares.items())
        for function, shares in functions.items()
    ]


def summary_lines(summary: DemoSummary) -> list[str]:
    """Return the lines below the table."""
    warm_up, total = summary.results.warm_up.total, summary.results.counted.total
    before = (
        f"before, while the first pods started: {_percent(warm_up.hit_ratio)} of "
        f"{warm_up.ended:,} requests in SLO"
    )
    used = (
        f"{summary.batches:,} batches, {summary.rows_per_batch:.2f} requests each; "
        f"{_pods_text(summary)} held {_percent(summary.reserved_ratio)} of "
        f"{summary.gpus} GPUs and used {_percent(summary.busy_ratio)}; "
        f"${summary.dollars_per_thousand:.3f} per 1,000 requests, idle pods included"
        f"{_limit_text(summary)}"
    )
    late = (
        f"the client sent its requests {summary.client_late_p99_ms:.1f} ms late, and the played "
        f"model servers ran {summary.server_late_p99_ms:.1f} ms too long (99th percentiles)"
    )
    lines = [before, used, *pod_lines(summary.pods), late, _waits_line(summary)]
    lines += [*_failures(warm_up), *_failures(total)]
    if not summary.kept_up:
        lines.append(
            "THIS MACHINE DID NOT KEEP UP with client and model servers, which are not the "
            "product: no hit rate can be told. Run fewer programs beside, or --load=light"
        )
    return lines


def _limit_text(summary: DemoSummary) -> str:
    ratio = summary.paid_limit_ratio
    return "" if ratio is None else f": {ratio:.2f} times the limit B0"


def _waits_line(summary: DemoSummary) -> str:
    if None in summary.core_wait_ratios:
        return "extender and gateway: it is not known how long they waited for a core"
    extender, gateway = map(_percent, summary.core_wait_ratios)
    return (
        f"the extender's main thread waited {extender} of the time for a core, the gateway's "
        f"{gateway}"
    )


def _pods_text(summary: DemoSummary) -> str:
    return (
        f"{sum(summary.pods.values())} pods ({summary.pods_started} started, "
        f"{summary.pods_ended} ended)"
    )


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
