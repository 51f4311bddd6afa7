"""Limits of the times that batches run, as far as profiles say."""

from scheduler.model.documents import FunctionProfile

RUN_RATIO = 1.25  # of the longest run in the profile: runs vary


def longest_run_s(profile: FunctionProfile) -> float:
    """Return the longest time of a run, in seconds, as far as the profile says."""
    rows = (row for gpu in profile.spec.gpus for row in gpu.configurations)
    return RUN_RATIO * max(row.p95_ms or row.latency_ms for row in rows) / 1000
