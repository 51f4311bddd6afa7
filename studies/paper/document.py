"""Generated parts of docs/paper.md: tables and figures. People write the interpretation."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from types import MappingProxyType

from studies.page import made_by, markdown_table, plus_minus, repeated
from studies.paper import equal_hits
from studies.paper.evaluation import (
    ABLATION,
    AS_IS,
    ESG,
    RESIZED,
    RESIZED_POLICIES,
    SHIPPED,
    Estimate,
    EvaluationSize,
    Findings,
)
from workbench.reports.points import Panel, Point
from workbench.simulation.cost_split import PARTS, CostSplit, mean_split
from workbench.simulation.registry import container_policy_names
from workbench.simulation.scenario import Scenario
from workbench.simulation.workloads.paper import PAPER_SETTINGS

_CLAIMED = (*equal_hits.POLICIES[1:], "aquatope")  # the paper's baselines, and their public code
_POLICIES_PNG, _EQUAL_PNG = "paper-policies.png", "paper-equal-hits.png"
_PARTS = 10  # of a run, in the table over time


@dataclass(frozen=True, slots=True)
class Evaluation:
    """Results of an evaluation and its parameters.

    Attributes:
        target_ratios: hit rates at which costs are compared.
    """

    policies: Sequence[str]
    findings: Findings
    size: EvaluationSize
    target_ratios: Sequence[float]

    @property
    def reported(self) -> list[str]:
        """The settings that the paper reports, of those that ran."""
        return [setting for setting in PAPER_SETTINGS if setting in self.size.settings]


def blocks(evaluation: Evaluation) -> dict[str, str]:
    """Render all blocks by name."""
    return {name: render(evaluation) for name, render in BLOCKS.items()}


# -- tables


def _how(evaluation: Evaluation) -> str:
    scenario, size = Scenario(), evaluation.size
    options = ""
    if tuple(size.settings) != PAPER_SETTINGS:
        options = repeated("--setting", size.settings)
    options += " --ablation" if size.ablation else ""
    options += "" if size.pooled else " --reserved"
    if len(evaluation.policies) < len(container_policy_names()):
        options += repeated("--policy", evaluation.policies[1:])
    command = f"esg paper --minutes {size.minutes:g} --seeds {size.seeds}{options}"
    return (
        f"{made_by(command)} (`make paper` has the defaults): {size.minutes:g} simulated "
        f"minutes of arrivals a run, {size.seeds_text}, {scenario.nodes} nodes of "
        f"{scenario.gpus_per_node} GPU and {scenario.cpus} vCPU, run times with "
        f"{100 * scenario.noise_ratio:g} % of noise, {scenario.margin_text}. A container has the "
        f"share that it started with, and idle shares are paid.{size.pooled_text} All policies "
        "begin with warm containers of their own choice; the warm-up (MSER-5; the longest one of "
        "all policies, for the same requests) is left out of every number but those over time. ± "
        "is half of a 95 % confidence interval over the seeds (Student's t); that of a difference "
        "in hits or in what is paid is over batches of the requests, which both policies served. "
        "Profiles are **generated**, not measured.\n"
    )


def _by_setting(evaluation: Evaluation, name: str, scale_ratio: float, digits: int) -> str:
    """A row for each policy, a column for each setting."""
    findings, settings = evaluation.findings, evaluation.size.settings
    rows = (
        [
            f"`{policy}`",
            *(
                _text(findings.estimate(name, policy, setting), scale_ratio, digits)
                for setting in settings
            ),
        ]
        for policy in evaluation.policies
    )
    return markdown_table(["", *settings], rows)


def _equal(evaluation: Evaluation) -> str:
    return "\n".join(_equal_at(evaluation, ratio) for ratio in evaluation.target_ratios)


def _equal_at(evaluation: Evaluation, target_ratio: float) -> str:
    """Cost at a target, over that of the policy that ships."""
    findings = evaluation.findings
    names = [name for name in equal_hits.POLICIES if name in evaluation.policies]
    head = [
        "",
        "setting",
        "headroom",
        "in SLO, %",
        "set aside, $ per 1,000",
        "paid / B0",
        f"over `{SHIPPED}`",
    ]
    rows = []
    for setting in evaluation.size.settings:
        shipped = equal_hits.at_target(findings, SHIPPED, setting, target_ratio)
        for policy in names:
            search = equal_hits.at_target(findings, policy, setting, target_ratio)
            if search is None:
                continue
            excess = "-"
            if shipped is not None and shipped.reached and search.reached and policy != SHIPPED:
                excess = f"{100 * (search.dollars.mean / shipped.dollars.mean - 1):+,.1f} %"
            rows.append(
                [
                    f"`{policy}`",
                    setting,
                    f"{100 * search.headroom_ratio:+.0f} %",
                    _text(search.hit_rate, 100.0, 1) + ("" if search.reached else " (not reached)"),
                    _text(search.dollars, 1.0, 4),
                    _text(search.bound_ratio, 1.0, 2),
                    excess,
                ]
            )
    return (
        f"Target: {100 * target_ratio:g} % of the requests within their SLO.\n\n"
        + markdown_table(head, rows)
    )


def _idle(evaluation: Evaluation) -> str:
    """Costs without a run, then all parts of what is paid as means over the seeds."""
    findings = evaluation.findings
    rows = []
    for policy in evaluation.policies:
        for setting in evaluation.size.settings:
            splits = findings.values("split_per_1000", policy, setting)
            if splits and None not in splits:
                split = mean_split([CostSplit(**parts) for parts in splits])
                sizes = [size for _, size in split.of_limit().parts()]
                rows.append([f"`{policy}`", setting, *(f"{size:z.3f}" for size in sizes)])
    return (
        _by_setting(evaluation, "idle_per_1000", 1.0, 4)
        + "\nWhere the money goes, over B0. All parts but the last add up to what is paid "
        "([limit.md](limit.md)):\n\n" + markdown_table(["", "setting", *PARTS], rows)
    )


def _over_time(evaluation: Evaluation) -> str:
    """Hit rates by tenth of the run, in the settings that the paper reports."""
    findings = evaluation.findings
    head = ["", "setting", *(f"{i + 1}" for i in range(_PARTS))]
    rows = [
        [f"`{policy}`", setting, *(f"{100 * ratio:.0f}" for ratio in _mean_ratios(values))]
        for setting in evaluation.reported
        for policy in evaluation.policies
        for values in [findings.values("hits_by_tenth", policy, setting)]
        if values
    ]
    return markdown_table(head, rows)


def _mean_ratios(values: Sequence[Sequence[float]]) -> list[float]:
    return [fmean(ratios) for ratios in zip(*values, strict=True)]


def _states(evaluation: Evaluation) -> str:
    """Verdicts on the steady state, and the warm-up that was left out."""
    findings, settings = evaluation.findings, evaluation.size.settings
    rows = []
    for policy in evaluation.policies:
        row = [f"`{policy}`"]
        for setting in settings:
            verdicts = Counter(findings.values("steady_state", policy, setting))
            warmup = findings.estimate("warmup_s", policy, setting)
            text = ", ".join(f"{name}" for name, _ in verdicts.most_common())
            row.append(f"{text} ({warmup.mean:.0f} s)" if warmup else "-")
        rows.append(row)
    return markdown_table(["", *settings], rows)


def _claims(evaluation: Evaluation) -> str:
    """The policy that ships against those whom the paper compares with, where it reports."""
    findings = evaluation.findings
    rows = []
    for policy in (name for name in evaluation.policies if name != SHIPPED):
        for setting in evaluation.reported:
            hit_gain = findings.against("hit_rate", policy, setting, inverse=True)
            points = findings.difference("hit_rate", policy, setting)
            paid = findings.against("cost_per_1000", policy, setting)
            ran = findings.against("ran_per_1000", policy, setting)
            rows.append(
                [
                    f"`{policy}`",
                    setting,
                    _signed(points and _negated(points), 100.0, " points"),
                    _signed(hit_gain, 100.0, " %"),
                    "+61 to +80 %" if policy in _CLAIMED else "",
                    _signed(paid, 100.0, " %"),
                    _signed(ran, 100.0, " %"),
                    "+47 to +187 %" if policy in _CLAIMED else "",
                ]
            )
    hits = [f"hit rate of `{SHIPPED}`", "relatively", "paper"]
    costs = [f"paid over `{SHIPPED}`", "of it for what ran", "paper"]
    return markdown_table(["against", "setting", *hits, *costs], rows)


def _resized(evaluation: Evaluation) -> str:
    """The ablation of fixed shares: hits and cost when shares change from run to run."""
    findings = evaluation.findings
    rows = []
    for policy in RESIZED_POLICIES:
        for setting in evaluation.size.settings:
            if RESIZED not in findings.variants(policy, setting):
                continue
            row = [f"`{policy}`", setting]
            for variant in (AS_IS, RESIZED):
                row.append(_text(findings.estimate("hit_rate", policy, setting, variant), 100.0, 1))
                for name, digits in (("cost_per_1000", 4), ("paid_over_bound", 2)):
                    estimate = findings.estimate(name, policy, setting, variant)
                    row.append(_text(estimate, 1.0, digits))
            rows.append(row)
    paid = ["paid", "/ B0"]
    fixed, free = ["fixed: in SLO, %", *paid], ["changing: in SLO, %", *paid]
    return markdown_table(["", "setting", *fixed, *free], rows)


def _planning(evaluation: Evaluation) -> str:
    findings = evaluation.findings
    rows = []
    for policy in evaluation.policies:
        calls = findings.total("planning_calls", policy)
        requests = findings.total("arrived", policy)
        seconds = findings.total("planning_s", policy)
        runs = len(evaluation.size.settings) * evaluation.size.seeds
        rows.append(
            [
                f"`{policy}`",
                f"{1e6 * seconds / calls:,.0f}" if calls else "-",
                f"{calls / requests:,.1f}" if requests else "-",
                f"{1e3 * findings.total('setup_s', policy) / runs:,.0f}",
            ]
        )
    head = ["", "µs a question, mean", "questions a request", "ms before the first request"]
    return markdown_table(head, rows)


def _ablation(evaluation: Evaluation) -> str:
    """Each variant against ESG with shares that change."""
    if not evaluation.size.ablation:
        return "Not run: `esg paper --ablation` does.\n"
    findings = evaluation.findings
    rows = []
    for variant in ABLATION:
        row = [variant.name]
        for setting in evaluation.reported:
            at = variant.policy, setting, variant.name
            if variant.name == RESIZED:
                row.append(_text(findings.estimate("hit_rate", *at), 100.0, 1) + " %")
                row.append("$" + _text(findings.estimate("cost_per_1000", *at), 1.0, 4))
            else:
                hits = findings.difference("hit_rate", *at, to=ESG, base=RESIZED)
                row.append(_signed(hits, 100.0, ""))
                paid = findings.against("cost_per_1000", *at, to=ESG, base=RESIZED)
                row.append(_signed(paid, 100.0, " %"))
        rows.append(row)
    head = [""]
    for setting in evaluation.reported:
        head += [f"{setting}: hit rate, points", "paid"]
    return markdown_table(head, rows)


def _text(estimate: Estimate | None, scale_ratio: float, digits: int, sign: str = "") -> str:
    if estimate is None:
        return "-"
    half_width = None if estimate.half_width is None else scale_ratio * estimate.half_width
    return plus_minus(scale_ratio * estimate.mean, half_width, digits, sign)


def _signed(estimate: Estimate | None, scale_ratio: float, unit: str) -> str:
    return "-" if estimate is None else _text(estimate, scale_ratio, 1, "+") + unit


def _negated(estimate: Estimate) -> Estimate:
    return Estimate(-estimate.mean, estimate.half_width, estimate.seeds)


# -- figures


def _policies_png(evaluation: Evaluation) -> bytes:
    findings = evaluation.findings
    panels = []
    for setting in evaluation.size.settings:
        points = []
        for policy in evaluation.policies:
            cost = findings.estimate("cost_per_1000", policy, setting)
            hits = findings.estimate("hit_rate", policy, setting)
            if cost is not None and hits is not None:
                points.append(_point(policy, cost, hits))
        panels.append(Panel(setting, tuple(points)))
    return _positions_png(panels)


def _equal_png(evaluation: Evaluation) -> bytes:
    """Each policy with the headroom that reaches the first target, or nearly does."""
    panels = []
    for setting in evaluation.size.settings:
        searches = {
            policy: equal_hits.at_target(
                evaluation.findings, policy, setting, evaluation.target_ratios[0]
            )
            for policy in equal_hits.POLICIES
            if policy in evaluation.policies
        }
        points = [
            _point(name, search.dollars, search.hit_rate)
            for name, search in searches.items()
            if search
        ]
        panels.append(Panel(setting, tuple(points)))
    return _positions_png(panels)


def _point(policy: str, cost: Estimate, hits: Estimate) -> Point:
    halves = cost.half_width or 0.0, hits.half_width or 0.0
    return Point(policy, cost.mean, hits.mean, *halves)


def _positions_png(panels: Sequence[Panel]) -> bytes:
    from workbench.reports.paper_figures import positions_png

    return positions_png(panels, "$ paid per 1,000 requests", "in SLO")


BLOCKS: Mapping[str, Callable[[Evaluation], str]] = MappingProxyType(
    {
        "how": _how,
        "equal": _equal,
        "hits": lambda evaluation: _by_setting(evaluation, "hit_rate", 100.0, 1),
        "costs": lambda evaluation: _by_setting(evaluation, "cost_per_1000", 1.0, 4),
        "bound": lambda evaluation: _by_setting(evaluation, "paid_over_bound", 1.0, 2),
        "idle": _idle,
        "time": _over_time,
        "states": _states,
        "claims": _claims,
        "resized": _resized,
        "planning": _planning,
        "ablation": _ablation,
    }
)
FIGURES: Mapping[str, Callable[[Evaluation], bytes]] = MappingProxyType(
    {_POLICIES_PNG: _policies_png, _EQUAL_PNG: _equal_png}
)
