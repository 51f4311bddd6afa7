"""Pools on a real control plane: more processes than fit, and what runs always fits."""

import pytest

from tests.e2e.served_trace import table
from tests.e2e.test_serving import check_answers, served_beside

pytestmark = pytest.mark.nightly


def test_more_processes_than_fit_never_run_above_their_slice(esg, capsys):
    """Processes of a GPU have more than 100 % together, and the runs on it never have."""
    served, simulations, trace = served_beside(esg, pooled=True)
    with capsys.disabled():
        print(f"\n{table(served, simulations, trace)}")  # noqa: T201 - for people
    check_answers(served, trace)
    assert served.most_process_percent > 100
    assert served.most_running_percent <= 100
