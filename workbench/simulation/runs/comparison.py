"""One warm-up for all policies of a comparison, so that they are judged on the same requests."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace

from workbench.simulation.runs.job import Outcome


def with_common_warm_up(outcomes: Sequence[Outcome]) -> list[Outcome]:
    """Return the outcomes with the longest warm-up that MSER-5 found for the same arrivals.

    Complete runs of one setting and seed serve the same requests; the others keep their own.
    """
    longest_ms: defaultdict[tuple[str, int], float] = defaultdict(float)
    for outcome in outcomes:
        if outcome.result is not None and outcome.whole:
            arrivals = outcome.job.setting, outcome.job.seed
            warmup_ms = outcome.result.steady_state.warmup_ms
            longest_ms[arrivals] = max(longest_ms[arrivals], warmup_ms)
    return [
        _with_warm_up(outcome, longest_ms[outcome.job.setting, outcome.job.seed])
        for outcome in outcomes
    ]


def _with_warm_up(outcome: Outcome, warmup_ms: float) -> Outcome:
    result = outcome.result
    if result is None or not outcome.whole or result.steady_state.rule != "MSER-5":
        return outcome
    if result.steady_state.warmup_ms == warmup_ms:
        return outcome
    return replace(outcome, result=result.since(warmup_ms))
