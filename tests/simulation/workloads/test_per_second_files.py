"""Counts per second: requests in their seconds, and bad rows by file, line and column."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler.model.document_reader import DocumentError
from tests.simulation.workloads.arriving import WORKFLOWS, collected
from workbench.simulation.workloads.registry import parse_workload


def workload(file, text, **parameters):
    file.write_text(text, encoding="utf-8")
    return parse_workload("per-second", {"file": str(file), **parameters}, "test")


@given(
    counts=st.lists(
        st.tuples(st.integers(0, 50), st.integers(0, 50)), min_size=1, max_size=9
    ).filter(lambda rows: any(map(any, rows)))
)
def test_every_request_is_in_its_second(tmp_path_factory, counts):
    """Counts of each workflow and second agree with the file, whichever second begins it."""
    rows = "".join(f"{100 + i},{a},{c}\n" for i, (a, c) in enumerate(counts))
    counted = workload(tmp_path_factory.mktemp("files") / "counts.csv", f"second,a,other/c\n{rows}")
    times_ms, indices = collected(counted.arrivals(WORKFLOWS, seed=1))
    for second, row in enumerate(counts):
        inside = indices[times_ms // 1000 == second]
        assert [int(n) for n in np.bincount(inside, minlength=4)] == [row[0], 0, 0, row[1]]
    expected_rps = [sum(column) / len(counts) for column in zip(*counts, strict=True)]
    rates_rps = list(counted.mean_rate_rps(WORKFLOWS).values())
    assert rates_rps == pytest.approx([expected_rps[0], 0.0, 0.0, expected_rps[1]])


def test_one_column_is_of_random_workflows(tmp_path):
    counted = workload(tmp_path / "all.csv", "second,requests\n0,4000\n1,4000\n")
    _, indices = collected(counted.arrivals(WORKFLOWS, seed=1))
    assert np.bincount(indices) == pytest.approx([2000] * 4, rel=0.1)
    assert counted.mean_rate_rps(WORKFLOWS)["default", "a"] == 1000.0


def test_a_rate_scales_the_counts(tmp_path):
    """The mean is as asked, and busy seconds stay busy."""
    counted = workload(tmp_path / "all.csv", "second,a\n0,1000\n1,3000\n", rateRps=5000.0)
    times_ms, _ = collected(counted.arrivals(WORKFLOWS, seed=1))
    assert np.bincount((times_ms // 1000).astype(int)) == pytest.approx([2500, 7500], rel=0.05)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("second,a\n0,1\n1,x\n", "line 3: column a: 'x' is no whole number from 0 to 1,000,000"),
        ("second,a\n0,-1\n", "line 2: column a: '-1' is no whole number"),
        ("second,a\n0,1\n2,1\n", "line 3: column second: 2 follows 0; add 1"),
        ("second,a\n0,1\nx,1\n", "line 3: column second: 'x' is no whole number"),
        ("second,a\n0\n", "line 2: has 1 values for 2 columns"),
        ("second,z\n0,1\n", "column z: 'z' is not a workflow; there are default/a"),
        ("second,b\n0,1\n", "write NAMESPACE/b"),
        ("second,a,default/a\n0,1,1\n", "the workflow 'default/a' has two columns"),
        ("second\n0\n", "has no column of counts"),
        ("time,a\n0,1\n", "is not a workflow"),
        ("a\n1\n", "there is no second; there are a"),
        ("second,a\n0,0\n", "counts no request"),
        ("", "is empty"),
    ],
)
def test_a_file_that_is_wrong(tmp_path, text, message):
    """File, line and column are named before anything runs."""
    file = tmp_path / "counts.csv"
    counted = workload(file, text)
    with pytest.raises(DocumentError) as refused:
        counted.arrivals(WORKFLOWS, seed=1)
    (problem,) = refused.value.problems
    assert str(problem).startswith(str(file))
    assert message in str(problem)
