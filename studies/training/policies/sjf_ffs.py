"""SJF-FFS: shortest job first, and a job shares GPUs with the first jobs that fit in memory."""

from math import inf

from studies.training.job import SharableJob
from studies.training.policies.sjf import Sjf


class SjfFfs(Sjf):
    """First fit: sharing is always taken as a gain."""

    def partner_score(self, new: SharableJob, running: SharableJob) -> float | None:
        """Accept each job that fits next to the new one, in the order of nodes."""
        fits = max(new.slowdown_ratio(running), running.slowdown_ratio(new)) < inf
        return 0.0 if fits else None
