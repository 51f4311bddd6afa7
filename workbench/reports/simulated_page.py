"""The page of ``esg simulate --out``: what policies do to SLOs and to the bill."""

from collections.abc import Sequence
from statistics import fmean

from scheduler import __version__
from workbench.reports.numbers import milliseconds, percent
from workbench.reports.simulated import PHASES, Comparison, SimulatedPolicy, deviation
from workbench.reports.writing import need_libraries, written

_NEAR = 0.01  # of all requests: no more than what two seeds differ by


def simulated_page(compared: Comparison) -> str:
    """The whole page as HTML; without any policy it has its facts and remarks alone.

    Raises:
        MissingLibraryError: a library of the extra ``report`` is not installed.
    """
    need_libraries()
    from workbench.reports import drawing, simulated_figures  # noqa: PLC0415 - they import matplotlib

    told = _told(compared)
    drawn = {
        "rates": simulated_figures.rates_figure,
        "latencies": simulated_figures.latencies_figure,
        "fill": simulated_figures.fill_figure,
        "missed": simulated_figures.missed_figure,
    }
    with drawing.house_style():
        svg = {
            name: draw(compared, told[name]) if compared.policies else ""
            for name, draw in drawn.items()
        }
    return written(
        "simulated.html.j2",
        compared=compared,
        told=told,
        svg=svg,
        phases=PHASES,
        best=_best(compared),
        ms=milliseconds,
        percent=percent,
        spread=_spread,
        version=__version__,
    )


def _spread(values: Sequence[float], unit: float, digits: int) -> str:
    """The mean over seeds, and the standard deviation; ``unit`` times what is given."""
    spread = deviation(values)
    told = f"{unit * fmean(values):,.{digits}f}"
    return told if spread is None else f"{told} ± {unit * spread:,.{digits}f}"


def _told(compared: Comparison) -> dict[str, str]:
    """What each figure shows, in words."""
    whiskers = "; whiskers: the standard deviation over seeds" if compared.seeds > 1 else ""
    first = " of the first seed" if compared.seeds > 1 else ""
    return {
        "rates": f"Left: requests within their SLO. Right: what was paid for what ran{whiskers}.",
        "latencies": "The part of all requests that have ended after so many SLOs. Where a line "
        "crosses the dashed one is its hit rate; what never reaches 100 % has dropped the rest.",
        "fill": f"The part of all GPUs' share that is held, over time{first}.",
        "missed": "The time of a missed request, on its longest chain of stages: "
        f"{', '.join(PHASES)}.",
    }


def _best(compared: Comparison) -> list[tuple[str, SimulatedPolicy, SimulatedPolicy]]:
    """For each setting: who keeps most SLOs, and who costs least of those that keep about as many.

    Who keeps hardly any may well cost least.
    """
    found = []
    for setting in compared.settings:
        policies = compared.under(setting)
        keeps = max(policies, key=lambda each: each.hit_ratio)
        near = [each for each in policies if each.hit_ratio >= keeps.hit_ratio - _NEAR]
        found.append((setting, keeps, min(near, key=lambda each: each.cost_per_1000)))
    return found
