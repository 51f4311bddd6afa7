"""Cost at an equal hit rate: the headroom with which each policy reaches a target.

Hit rates and costs of policies do not compare while one pays for hits that another does without. So
each policy that holds containers gets the headroom that it needs, and no more: from none, in steps
up to the first that reaches the target, or down to the last that does. The policy that ships takes
its reserve from the objective of the workflows: it runs once, with the target as objective.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from studies.headrooms import HEADROOM_RATIOS
from studies.paper.evaluation import (
    AS_IS,
    SHIPPED,
    Estimate,
    EvaluationSize,
    Findings,
    Order,
    Variant,
    order_of,
)

POLICIES = (
    "warm",
    "infless",
    "infless-code",
    "fast-gshare",
    "fast-gshare-code",
    "orion",
    "orion-code",
)


@dataclass(frozen=True, slots=True)
class AtTarget:
    """The cheapest headroom of those tried that reaches the target, or the best without one.

    Attributes:
        headroom_ratio: headroom that was set in the scenario.
        hit_rate: ratio of the requests within their SLO.
        dollars: cost per 1,000 requests of what was set aside.
        bound_ratio: ratio of the cost to the least cost of the requests; None without a bound.
        reached: true if the mean hit rate reaches the target.
    """

    headroom_ratio: float
    hit_rate: Estimate
    dollars: Estimate
    bound_ratio: Estimate | None
    reached: bool


def variant_of(policy: str, headroom_ratio: float, target_ratio: float) -> Variant:
    """Return a policy with a headroom, or with the target as objective."""
    if policy == SHIPPED:
        changes = {"objective": target_ratio}
        return Variant(name=f"objective {target_ratio:g}", policy=policy, changes=changes)
    name = f"headroom {headroom_ratio:+g}" if headroom_ratio else AS_IS
    changes = {"headroom_ratio": headroom_ratio} if headroom_ratio else {}
    return Variant(name=name, policy=policy, changes=changes)


def next_round(
    findings: Findings,
    policies: Sequence[str],
    size: EvaluationSize,
    target_ratios: Sequence[float],
) -> list[Order]:
    """Return the next runs of the searches for all targets, each once; empty: all are over.

    With each round the common warm-up may grow, and a search that was over may go on.
    """
    unique = {
        order.key: order
        for target_ratio in target_ratios
        for order in next_orders(findings, policies, size, target_ratio)
    }
    return list(unique.values())


def next_orders(
    findings: Findings, policies: Sequence[str], size: EvaluationSize, target_ratio: float
) -> list[Order]:
    """Return the runs of the next headroom of each search that goes on; empty: all are over."""
    return [
        order_of(variant_of(policy, headroom_ratio, target_ratio), setting, size, seed)
        for policy in policies
        for setting in size.settings
        for headroom_ratio in [_next_ratio(findings, policy, setting, target_ratio)]
        if headroom_ratio is not None
        for seed in range(size.seeds)
    ]


def at_target(
    findings: Findings, policy: str, setting: str, target_ratio: float
) -> AtTarget | None:
    """Return the outcome of a search; None without a run."""
    tried = [
        AtTarget(
            ratio,
            hits,
            dollars,
            findings.estimate("paid_over_bound", policy, setting, variant),
            hits.mean >= target_ratio,
        )
        for ratio in ((0.0,) if policy == SHIPPED else HEADROOM_RATIOS)
        for variant in [variant_of(policy, ratio, target_ratio).name]
        if (hits := findings.estimate("hit_rate", policy, setting, variant)) is not None
        if (dollars := findings.estimate("cost_per_1000", policy, setting, variant)) is not None
    ]
    reached = [outcome for outcome in tried if outcome.reached]
    if reached:
        return min(reached, key=lambda outcome: outcome.dollars.mean)
    return max(tried, key=lambda outcome: outcome.hit_rate.mean, default=None)


def _next_ratio(findings: Findings, policy: str, setting: str, target_ratio: float) -> float | None:
    """Walk on the grid from 0: up while the target is missed, else down while it is reached."""
    start = HEADROOM_RATIOS.index(0.0)

    def hits_of(headroom_ratio: float) -> Estimate | None:
        variant = variant_of(policy, headroom_ratio, target_ratio).name
        return findings.estimate("hit_rate", policy, setting, variant)

    first = hits_of(0.0)
    if first is None:
        return 0.0
    if policy == SHIPPED:
        return None
    is_down = first.mean >= target_ratio
    ratios = HEADROOM_RATIOS[:start][::-1] if is_down else HEADROOM_RATIOS[start + 1 :]
    for ratio in ratios:
        hits = hits_of(ratio)
        if hits is None:
            return ratio
        if (hits.mean >= target_ratio) is not is_down:
            return None
    return None
