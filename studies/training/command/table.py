"""Table of ``esg jobs``: a row for each run."""

from collections.abc import Sequence

from rich.text import Text

from studies.training.runs.setup import JobsOutcome
from workbench.commands.wide_table import print_rows, wide_table

_NAMES = ("workload", "policy", "settings")
_COLUMNS = (
    *_NAMES,
    "seed",
    "mean\nJCT, s",
    "p50\nJCT, s",
    "p99\nJCT, s",
    "makespan\ns",
    "GPU\nuse",
    "restarts",
    "deadlines\nmet",
    "run\ns",
)


def print_jobs_table(outcomes: Sequence[JobsOutcome]) -> None:
    """Print the table on standard output; failed runs are not part of it."""
    complete = [outcome for outcome in outcomes if outcome.result is not None]
    absent = set()
    if not any(outcome.setup.settings for outcome in complete):
        absent.add("settings")
    if not any("deadline_hit_ratio" in outcome.summary() for outcome in complete):
        absent.add("deadlines\nmet")
    shown = [column for column in _COLUMNS if column not in absent]
    table = wide_table(shown, _NAMES)
    for outcome in complete:
        cells = dict(zip(_COLUMNS, _cells(outcome), strict=True))
        table.add_row(*(Text(cells[column]) for column in shown))
    print_rows(table)


def _cells(outcome: JobsOutcome) -> list[str]:
    setup, figures = outcome.setup, outcome.summary()
    return [
        setup.workload_name,
        setup.policy,
        setup.settings_text,
        str(setup.seed),
        f"{figures['mean_jct_s']:,.2f}",
        f"{figures['p50_jct_s']:,.0f}",
        f"{figures['p99_jct_s']:,.0f}",
        f"{figures['makespan_s']:,.0f}",
        f"{100 * figures['gpu_use_ratio']:.0f} %",
        f"{figures['restarts']:,}",
        f"{100 * figures['deadline_hit_ratio']:.1f} %" if "deadline_hit_ratio" in figures else "",
        f"{outcome.wall_s:,.2f}",
    ]
