"""Page of ``esg jobs --out``: completion times, GPU use and placements of policies."""

from collections.abc import Mapping, Sequence

from scheduler import __version__
from workbench.reports.numbers import percent
from workbench.reports.renderer import render, require_extra
from workbench.reports.trained import TrainedRun

_COMPLETION = "Ratio of jobs that ended within a time from their submission."
_USE = "Ratio of all GPUs that jobs hold, over time."
_GANTT = "Jobs on the GPUs over time: a row per GPU, a colour per job; a tooltip names the job."


def trained_page(
    runs: Sequence[TrainedRun], facts: Mapping[str, str], remarks: Sequence[str]
) -> str:
    """Render the page as HTML.

    Raises:
        MissingReportLibraryError: a library of the extra ``workbench`` is not installed.
    """
    require_extra()
    from workbench.reports import drawing, trained_figures  # noqa: PLC0415 - they import matplotlib

    with drawing.house_style():
        completion = trained_figures.completion_times_figure(runs, _COMPLETION) if runs else ""
        use = trained_figures.gpu_use_figure(runs, _USE) if runs else ""
        gantts = [
            (run.name, trained_figures.gantt_figure(run, number, f"{run.name}: {_GANTT}"))
            for number, run in enumerate(runs)
        ]
    return render(
        "trained.html.j2",
        runs=runs,
        facts=list(facts.items()),
        remarks=remarks,
        completion=completion,
        completion_label=_COMPLETION,
        use=use,
        use_label=_USE,
        gantts=gantts,
        gantt_label=_GANTT,
        percent=percent,
        version=__version__,
    )
