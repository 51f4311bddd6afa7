"""Generated parts of docs/paper.md: tables and figures. People write the interpretation."""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from scheduler import __version__
from workbench.reports.points import Panel, Point
from workbench.reports.renderer import require_extra
from workbench.simulation.paper import ABLATION, AS_IS, ESG, Estimate, Findings
from workbench.simulation.scenario import Scenario
from workbench.simulation.workloads.paper import PAPER_SETTINGS, SETTINGS

_MARK = re.compile(r"(<!-- made: (?P<name>[a-z-]+) -->\n).*?(<!-- /made -->)", re.DOTALL)
_CLAIMED = ("infless", "fast-gshare", "orion", "aquatope")  # baselines of the paper
_POLICIES_PNG, _ABLATION_PNG = "paper-policies.png", "paper-ablation.png"


class MarkError(ValueError):
    """Document whose marks do not match the generated blocks."""


@dataclass(frozen=True, slots=True)
class Evaluation:
    """Results of an evaluation and its parameters."""

    policies: Sequence[str]
    findings: Findings
    requests: int
    seeds: int


def with_blocks(text: str, generated: Mapping[str, str]) -> str:
    """Insert the generated blocks between the marks of the document.

    Raises:
        MarkError: the marks do not match the blocks.
    """
    places = [match["name"] for match in _MARK.finditer(text)]
    if sorted(places) != sorted(generated):
        raise MarkError(
            f"has places for {', '.join(places) or 'nothing'}, not {', '.join(generated)}"
        )
    return _MARK.sub(lambda match: f"{match[1]}{generated[match['name']]}{match[3]}", text)


def blocks(evaluation: Evaluation) -> dict[str, str]:
    """Render all blocks by name."""
    return {
        "how": _how(evaluation),
        "hits": _by_setting(evaluation, "hit_rate", 100.0, 1),
        "costs": _by_setting(evaluation, "cost_per_1000", 1.0, 4),
        "reserved": _by_setting(evaluation, "reserved_per_1000", 1.0, 4),
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
        f"and {scenario.cpus} vCPU, run times with {100 * scenario.noise_ratio:g} % of noise, "
        f"{scenario.margin_text}. ± is half of a 95 % confidence interval "
        "over the seeds (Student's t). Profiles are **generated**, not measured.\n"
    )


def _by_setting(evaluation: Evaluation, name: str, scale_ratio: float, digits: int) -> str:
    """A row for each policy, a column for each setting."""
    findings = evaluation.findings
    rows = (
        [
            f"`{policy}`",
            *(
                _text(findings.estimate(name, policy, setting), scale_ratio, digits)
                for setting in SETTINGS
            ),
        ]
        for policy in evaluation.policies
    )
    return _table(["", *SETTINGS], rows)


def _claims(evaluation: Evaluation) -> str:
    """ESG against those whom the paper compares with, where it reports."""
    findings = evaluation.findings
    rows = []
    for policy in (name for name in evaluation.policies if name != ESG):
        for setting in PAPER_SETTINGS:
            hit_gain = findings.against("hit_rate", policy, setting, inverse=True)
            points = findings.difference("hit_rate", policy, setting, AS_IS)
            dearer = findings.against("cost_per_1000", policy, setting)
            reserved = findings.against("paid_per_1000", policy, setting)
            rows.append(
                [
                    f"`{policy}`",
                    setting,
                    _signed(points and _negated(points), 100.0, " points"),
                    _signed(hit_gain, 100.0, " %"),
                    "+61 to +80 %" if policy in _CLAIMED else "",
                    _signed(dearer, 100.0, " %"),
                    _signed(reserved, 100.0, " %"),
                    "+47 to +187 %" if policy in _CLAIMED else "",
                ]
            )
    hits = ["ESG's hit rate", "relatively", "paper"]
    costs = ["its cost over ESG's", "with idle reservations", "paper"]
    return _table(["against", "setting", *hits, *costs], rows)


def _exact(evaluation: Evaluation) -> str:
    """`exact` against `esg` in every setting."""
    findings = evaluation.findings
    rows = (
        [
            setting,
            _signed(findings.difference("hit_rate", "exact", setting, AS_IS), 100.0, " points"),
            _signed(findings.against("cost_per_1000", "exact", setting), 100.0, " %", digits=2),
        ]
        for setting in SETTINGS
    )
    return _table(
        ["setting", "hit rate of `exact` over `esg`", "its cost over that of `esg`"], rows
    )


def _planning(evaluation: Evaluation) -> str:
    findings = evaluation.findings
    rows = []
    for policy in evaluation.policies:
        calls = findings.total("planning_calls", policy)
        requests = findings.total("requests", policy)
        seconds = findings.total("planning_s", policy)
        runs = len(SETTINGS) * evaluation.seeds
        rows.append(
            [
                f"`{policy}`",
                f"{1e6 * seconds / calls:,.0f}" if calls else "-",
                f"{calls / requests:,.1f}" if requests else "-",
                f"{1e3 * findings.total('setup_s', policy) / runs:,.0f}",
            ]
        )
    head = ["", "µs a question, mean", "questions a request", "ms before the first request"]
    return _table(head, rows)


def _ablation(evaluation: Evaluation) -> str:
    """Each variant against ESG as it is."""
    findings = evaluation.findings
    rows = []
    for variant in ABLATION:
        row = [variant.name]
        for setting in PAPER_SETTINGS:
            at = variant.policy, setting, variant.name
            if variant.name == AS_IS:
                row.append(_text(findings.estimate("hit_rate", *at), 100.0, 1) + " %")
                row.append("$" + _text(findings.estimate("cost_per_1000", *at), 1.0, 4))
            else:
                row.append(_signed(findings.difference("hit_rate", *at), 100.0, ""))
                row.append(_signed(findings.against("cost_per_1000", *at), 100.0, " %"))
        rows.append(row)
    head = [""]
    for setting in PAPER_SETTINGS:
        head += [f"{setting}: hit rate, points", "cost"]
    return _table(head, rows)


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def _text(estimate: Estimate | None, scale_ratio: float, digits: int) -> str:
    if estimate is None:
        return "-"
    text = f"{scale_ratio * estimate.mean:,.{digits}f}"
    return (
        text
        if estimate.half_width is None
        else f"{text} ± {scale_ratio * estimate.half_width:,.{digits}f}"
    )


def _signed(estimate: Estimate | None, scale_ratio: float, what: str, *, digits: int = 1) -> str:
    if estimate is None:
        return "-"
    half = (
        "" if estimate.half_width is None else f" ± {scale_ratio * estimate.half_width:,.{digits}f}"
    )
    return f"{scale_ratio * estimate.mean:+,.{digits}f}{half}{what}"


def _negated(estimate: Estimate) -> Estimate:
    return Estimate(-estimate.mean, estimate.half_width, estimate.seeds)


# -- figures


def _policies_png(evaluation: Evaluation) -> bytes:
    require_extra()
    from workbench.reports.paper_figures import positions_png

    findings = evaluation.findings
    panels = []
    for setting in SETTINGS:
        points = []
        for policy in evaluation.policies:
            cost = findings.estimate("cost_per_1000", policy, setting)
            hits = findings.estimate("hit_rate", policy, setting)
            if cost is not None and hits is not None:
                halves = cost.half_width or 0.0, hits.half_width or 0.0
                points.append(Point(policy, cost.mean, hits.mean, *halves))
        panels.append(Panel(setting, tuple(points)))
    return positions_png(panels, "$ per 1,000 requests", "in SLO")


def _ablation_png(evaluation: Evaluation) -> bytes:
    require_extra()
    from workbench.reports.paper_figures import differences_png

    findings = evaluation.findings
    panels = []
    for setting in PAPER_SETTINGS:
        points = []
        for variant in ABLATION[1:]:
            lost = findings.difference("hit_rate", variant.policy, setting, variant.name)
            if lost is not None:
                name = variant.name.replace("`", "")
                points.append(Point(name, 100 * lost.mean, 0.0, 100 * (lost.half_width or 0.0)))
        panels.append(Panel(setting, tuple(points)))
    return differences_png(panels, "hit rate, points")


FIGURES: Mapping[str, Callable[[Evaluation], bytes]] = MappingProxyType(
    {_POLICIES_PNG: _policies_png, _ABLATION_PNG: _ablation_png}
)
