"""Generated jobs of an environment: its policies differ on them."""

import pytest

from studies.training.engine import simulate_jobs
from studies.training.runs.setup import JobsSetup, load


@pytest.mark.slow
@pytest.mark.parametrize(
    ("environment", "policies"),
    [
        ("shockwave", ("themis", "max-min", "gandiva-fair", "allox")),
        ("andreas", ("fifo", "edf")),
        ("pollux", ("tiresias", "fifo", "tiresias-events", "las", "gittins", "qssf", "optimus")),
        ("servers", ("oasis", "fifo", "srtf", "edf", "optimus")),
        ("sharing", ("sjf-bsbf", "sjf-ffs", "tiresias-events")),
    ],
)
def test_policies_differ_without_data(environment, policies):
    """Jobs wait, so that no two policies have the same mean completion time."""
    means_s = set()
    for name in policies:
        jobs, policy = load(JobsSetup(policy=name, environment=environment))
        means_s.add(simulate_jobs(jobs, policy, name).mean_jct_s)
    assert len(means_s) == len(policies)
