"""Page of ``esg simulate --out``: SLO attainment and cost of policies."""

from collections.abc import Sequence
from statistics import fmean

from scheduler import __version__
from workbench.reports.numbers import milliseconds, percent
from workbench.reports.renderer import render, require_extra
from workbench.reports.simulated import PHASES, Comparison, SimulatedPolicy, seed_sigma

_NEAR_RATIO = 0.01  # of all requests: about the difference between two seeds


def simulated_page(comparison: Comparison) -> str:
    """Render the page as HTML; without policies it has only facts and remarks.

    Raises:
        MissingLibraryError: a library of the extra ``report`` is not installed.
    """
    require_extra()
    from workbench.reports import drawing, simulated_figures  # noqa: PLC0415 - they import matplotlib

    labels = _labels(comparison)
    drawn = {
        "rates": simulated_figures.rates_figure,
        "split": simulated_figures.split_figure,
        "latencies": simulated_figures.latencies_figure,
        "hits": simulated_figures.hits_figure,
        "fill": simulated_figures.fill_figure,
        "missed": simulated_figures.missed_figure,
    }
    with drawing.house_style():
        svg = {
            name: draw(comparison, labels[name]) if comparison.policies else ""
            for name, draw in drawn.items()
        }
    return render(
        "simulated.html.j2",
        comparison=comparison,
        labels=labels,
        svg=svg,
        phases=PHASES,
        best=_best(comparison),
        ms=milliseconds,
        percent=percent,
        spread=_spread,
        version=__version__,
    )


def _spread(values: Sequence[float], factor: float, digits: int) -> str:
    """Format mean and standard deviation over seeds, multiplied by ``factor``."""
    spread = seed_sigma(values)
    text = f"{factor * fmean(values):,.{digits}f}"
    return text if spread is None else f"{text} ± {factor * spread:,.{digits}f}"


def _labels(comparison: Comparison) -> dict[str, str]:
    """Describe each figure in words."""
    whiskers = "; whiskers: the standard deviation over seeds" if comparison.seeds > 1 else ""
    first = " of the first seed" if comparison.seeds > 1 else ""
    return {
        "rates": "Left: requests within their SLO. Right: what is paid, idle shares included"
        f"{whiskers}.",
        "split": "What is paid over the limit B0, the least cost of the same requests in time. "
        "Pale parts are negative. The outline is the rest of the nodes on which anything was "
        "held: it is paid where nodes are rented.",
        "latencies": "Fraction of all requests over latency divided by SLO. A line crosses the "
        "dashed line at its hit rate; a line that ends below 100 % has dropped requests.",
        "hits": f"Requests within their SLO by the time of their arrival{first}, the warm-up "
        "included.",
        "fill": f"Reserved fraction of all GPUs' share over time{first}.",
        "missed": "The time of a missed request, on its longest chain of stages: "
        f"{', '.join(PHASES)}.",
    }


def _best(comparison: Comparison) -> list[tuple[str, SimulatedPolicy, SimulatedPolicy]]:
    """Return each setting's policy with the highest hit rate, and the cheapest one near it.

    A policy that meets hardly any SLO may well be the cheapest.
    """
    best = []
    for setting in comparison.settings:
        policies = comparison.under(setting)
        keeps = max(policies, key=lambda policy: policy.hit_ratio)
        near = [policy for policy in policies if policy.hit_ratio >= keeps.hit_ratio - _NEAR_RATIO]
        best.append(
            (setting, keeps, min(near, key=lambda policy: policy.cost_dollars_per_thousand))
        )
    return best
