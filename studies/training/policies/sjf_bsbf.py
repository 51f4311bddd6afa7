"""SJF-BSBF: shortest job first, and a job shares GPUs only where this shortens the mean.

For a pair of jobs on the same GPUs, the mean completion time is least if the new job starts at once
or when the running one has ended; no other start is better. A job takes the partners with the least
mean, and waits if too few of them gain by sharing.
"""

from math import inf

from studies.training.job import SharableJob
from studies.training.policies.sjf import Sjf
from studies.training.shared_gpus import mean_sequential_s, mean_together_s


class SjfBsbf(Sjf):
    """Best sharing benefit first."""

    def partner_score(self, new: SharableJob, running: SharableJob) -> float | None:
        """Accept a job if to share is better than to wait for its end."""
        if max(new.slowdown_ratio(running), running.slowdown_ratio(new)) == inf:
            return None
        together_s = mean_together_s(new, running)
        return together_s if together_s < mean_sequential_s(new, running) else None
