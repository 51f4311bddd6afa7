"""Published results of others: each completion time, where their data are present."""

from importlib import import_module
from pkgutil import iter_modules

import pytest

from studies import oracles
from studies.oracles.catalogue import ORACLES
from studies.oracles.pollux import different_jobs
from tests.data_of_others import DATA, needs_data


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
    """The catalogue has those of every module, numbered from 1 without a gap."""
    modules = iter_modules(oracles.__path__, prefix=f"{oracles.__name__}.")
    defined = {o for m in modules for o in getattr(import_module(m.name), "ORACLES", ())}
    assert set(ORACLES) == defined
    assert [oracle.number for oracle in ORACLES] == list(range(1, len(defined) + 1))
