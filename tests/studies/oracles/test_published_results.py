"""Published results of others: each completion time, where their data are present."""

import pytest

from studies.oracles.catalogue import ORACLES
from studies.oracles.pollux import different_jobs
from tests.studies.training.data import DATA, needs_data


@needs_data
@pytest.mark.slow
@pytest.mark.parametrize("policy", ["tiresias", "optimus"])
def test_every_job_completes_at_the_published_time(policy):
    """Workload 6 of Pollux' evaluation, 160 jobs on 64 GPUs, to the second."""
    assert different_jobs(DATA, policy, 6) == 0


@needs_data
@pytest.mark.slow
def test_half_the_load_is_exact_too():
    """A workload of 80 jobs."""
    assert different_jobs(DATA, "tiresias", 1, "0.5") == 0


def test_no_oracle_is_left_out():
    """All 28 have a number, in order."""
    assert [oracle.number for oracle in ORACLES] == list(range(1, 29))
