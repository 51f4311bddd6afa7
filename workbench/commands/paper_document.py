"""What of docs/paper.md is made: tables and figures. The reading of them is written by people."""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from scheduler import __version__
from workbench.reports.points import Panel, Point, differences_svg, positions_svg
from workbench.simulation.paper import ABLATION, AS_IS, ESG, Estimate, Findings
from workbench.simulation.scenario import Scenario
from workbench.simulation.workloads.paper import PAPER_SETTINGS, SETTINGS

_MARK = re.compile(r"(<!-- made: (?P<name>[a-z-]+) -->\n).*?(<!-- /made -->)", re.DOTALL)
_CLAIMED = ("infless", "fast-gshare", "orion", "aquatope")  # whom the paper compares with
_POLICIES_SVG, _ABLATION_SVG = "paper-policies.svg", "paper-ablation.svg"


class MarkError(ValueError):
    """The document has not the marks between which tables belong."""


@dataclass(frozen=True, slots=True)
class Evaluation:
    """All that was found, and how it was asked for."""

    policies: Sequence[str]
    findings: Findings
    requests: int
    seeds: int


def with_blocks(text: str, made: Mapping[str, str]) -> str:
    """The document with what is made put between its marks.

    Raises:
        MarkError: a block has no place, or a place no block.
    """
    places = [match["name"] for match in _MARK.finditer(text)]
    if sorted(places) != sorted(made):
        raise MarkError(f"has places for {', '.join(places) or 'nothing'}, not {', '.join(made)}")
    return _MARK.sub(lambda match: f"{match[1]}{made[match['name']]}{match[3]}", text)


def blocks(evaluation: Evaluation) -> dict[str, str]:
    """By name what is made."""
    return {
        "how": _how(evaluation),
        "hits": _by_setting(evaluation, "hit_rate", 100.0, 1),
        "costs": _by_setting(evaluation, "cost_dollars_per_1000", 1.0, 4),
        "reserved": _by_setting(evaluation, "reserved_dollars_per_1000", 1.0, 4),
        "claims": _claims(evaluation),
        "exact": _exact(evaluation),
        "planning": _planning(evaluation),
        "ablation": _ablation(evaluation),
    }


# -- tables


def _how(evaluation: Evaluation) -> str:
    scenario = Scenario()
    return (
        f"Made by `make paper` with esg-scheduler {__version__}: {evaluation.requests:,} requests "
        f"a run, {evaluation.seeds} seeds, {scenario.nodes} nodes of {scenario.gpus_per_node} GPU "
        f"and {scenario.cpus} vCPU, run times with {100 * scenario.noise_ratio:g} % of noise, a "
        f"margin of {100 * scenario.margin_ratio:g} %. ± is half of a 95 % confidence interval "
        "over the seeds (Student's t). Profiles are **generated**, not measured.\n"
    )


def _by_setting(evaluation: Evaluation, name: str, unit: float, digits: int) -> str:
    """A row for each policy, a column for each setting."""
    found = evaluation.findings
    rows = (
        [
            f"`{policy}`",
            *(_told(found.estimate(name, policy, setting), unit, digits) for setting in SETTINGS),
        ]
        for policy in evaluation.policies
    )
    return _table(["", *SETTINGS], rows)


def _claims(evaluation: Evaluation) -> str:
    """ESG against those whom the paper compares with, where it reports."""
    found = evaluation.findings
    rows = []
    for policy in (each for each in evaluation.policies if each != ESG):
        for setting in PAPER_SETTINGS:
            more = found.against("hit_rate", policy, setting, inverse=True)
            points = found.difference("hit_rate", policy, setting, AS_IS)
            dearer = found.against("cost_dollars_per_1000", policy, setting)
            held = found.against("paid_per_1000", policy, setting)
            rows.append(
                [
                    f"`{policy}`",
                    setting,
                    _signed(points and _negated(points), 100.0, " points"),
                    _signed(more, 100.0, " %"),
                    "+61 to +80 %" if policy in _CLAIMED else "",
                    _signed(dearer, 100.0, " %"),
                    _signed(held, 100.0, " %"),
                    "+47 to +187 %" if policy in _CLAIMED else "",
                ]
            )
    hits = ["ESG's hit rate", "relatively", "paper"]
    costs = ["its cost over ESG's", "with what is held idle", "paper"]
    return _table(["against", "setting", *hits, *costs], rows)


def _exact(evaluation: Evaluation) -> str:
    """`exact` against `esg` in every setting."""
    found = evaluation.findings
    rows = (
        [
            setting,
            _signed(found.difference("hit_rate", "exact", setting, AS_IS), 100.0, " points"),
            _signed(
                found.against("cost_dollars_per_1000", "exact", setting), 100.0, " %", digits=2
            ),
        ]
        for setting in SETTINGS
    )
    return _table(
        ["setting", "hit rate of `exact` over `esg`", "its cost over that of `esg`"], rows
    )


def _planning(evaluation: Evaluation) -> str:
    found = evaluation.findings
    rows = []
    for policy in evaluation.policies:
        calls = found.total("planning_calls", policy)
        requests = found.total("requests", policy)
        seconds = found.total("planning_s", policy)
        runs = len(SETTINGS) * evaluation.seeds
        rows.append(
            [
                f"`{policy}`",
                f"{1e6 * seconds / calls:,.0f}" if calls else "-",
                f"{calls / requests:,.1f}" if requests else "-",
                f"{1e3 * found.total('setup_s', policy) / runs:,.0f}",
            ]
        )
    head = ["", "µs a question, mean", "questions a request", "ms before the first request"]
    return _table(head, rows)


def _ablation(evaluation: Evaluation) -> str:
    """Each variant against ESG as it is."""
    found = evaluation.findings
    rows = []
    for variant in ABLATION:
        row = [variant.name]
        for setting in PAPER_SETTINGS:
            at = variant.policy, setting, variant.name
            if variant.name == AS_IS:
                row.append(_told(found.estimate("hit_rate", *at), 100.0, 1) + " %")
                row.append("$" + _told(found.estimate("cost_dollars_per_1000", *at), 1.0, 4))
            else:
                row.append(_signed(found.difference("hit_rate", *at), 100.0, ""))
                row.append(_signed(found.against("cost_dollars_per_1000", *at), 100.0, " %"))
        rows.append(row)
    head = [""]
    for setting in PAPER_SETTINGS:
        head += [f"{setting}: hit rate, points", "cost"]
    return _table(head, rows)


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def _told(estimate: Estimate | None, unit: float, digits: int) -> str:
    if estimate is None:
        return "-"
    text = f"{unit * estimate.mean:,.{digits}f}"
    return (
        text
        if estimate.half_width is None
        else f"{text} ± {unit * estimate.half_width:,.{digits}f}"
    )


def _signed(estimate: Estimate | None, unit: float, what: str, *, digits: int = 1) -> str:
    if estimate is None:
        return "-"
    half = "" if estimate.half_width is None else f" ± {unit * estimate.half_width:,.{digits}f}"
    return f"{unit * estimate.mean:+,.{digits}f}{half}{what}"


def _negated(estimate: Estimate) -> Estimate:
    return Estimate(-estimate.mean, estimate.half_width, estimate.seeds)


# -- figures


def _policies_svg(evaluation: Evaluation) -> str:
    found = evaluation.findings
    panels = []
    for setting in SETTINGS:
        points = []
        for policy in evaluation.policies:
            cost = found.estimate("cost_dollars_per_1000", policy, setting)
            hits = found.estimate("hit_rate", policy, setting)
            if cost is not None and hits is not None:
                halves = cost.half_width or 0.0, hits.half_width or 0.0
                points.append(Point(policy, cost.mean, hits.mean, *halves))
        panels.append(Panel(setting, tuple(points)))
    told = "Hit rate and cost of each policy under the nine settings; the tables have the numbers."
    return positions_svg(panels, "$ per 1,000 requests", "in SLO", told)


def _ablation_svg(evaluation: Evaluation) -> str:
    found = evaluation.findings
    panels = []
    for setting in PAPER_SETTINGS:
        points = []
        for variant in ABLATION[1:]:
            lost = found.difference("hit_rate", variant.policy, setting, variant.name)
            if lost is not None:
                name = variant.name.replace("`", "")
                points.append(Point(name, 100 * lost.mean, 0.0, 100 * (lost.half_width or 0.0)))
        panels.append(Panel(setting, tuple(points)))
    told = "Hit rate of each variant of ESG less that of ESG as it is, under three settings."
    return differences_svg(panels, "hit rate, points", told)


FIGURES: Mapping[str, Callable[[Evaluation], str]] = MappingProxyType(
    {_POLICIES_SVG: _policies_svg, _ABLATION_SVG: _ablation_svg}
)
