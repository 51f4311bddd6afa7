"""Limits of the times that batches run, as far as profiles say."""

from scheduler.dispatch.pods import LONGEST_RATIO
from scheduler.model.documents import FunctionProfile


def longest_run_s(profile: FunctionProfile) -> float:
    """Return the longest time of a run, in seconds, as far as the profile says."""
    rows = (row for gpu in profile.spec.gpus for row in gpu.configurations)
    return LONGEST_RATIO * max(row.p95_ms or row.latency_ms for row in rows) / 1000
