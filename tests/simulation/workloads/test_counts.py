"""Counts per minute to arrivals: what is counted arrives, in its minute, for its workflow."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler.model.document_reader import DocumentError
from tests.examples import examples
from tests.simulation.workloads.arriving import WORKFLOWS, azure_csv, collected
from workbench.simulation.workload import CHUNK_MAX
from workbench.simulation.workloads.arrivals import Extent
from workbench.simulation.workloads.azure import Azure

MINUTE_MS = 60_000.0


def per_minute(arrivals, minutes):
    """Arrivals of each workflow in each minute, (workflows, minutes)."""
    times_ms, indices = collected(arrivals)
    counts = np.zeros((len(arrivals.workflows), minutes), int)
    np.add.at(counts, (indices, (times_ms // MINUTE_MS).astype(int)), 1)
    return counts


@st.composite
def traces(draw):
    """Some functions over some minutes, with at least one request."""
    minutes = draw(st.integers(1, 5))
    row = st.lists(st.integers(0, 40), min_size=minutes, max_size=minutes)
    names = st.text("abcdef0123456789", min_size=1, max_size=8)
    counts = draw(st.dictionaries(names, row, min_size=1, max_size=6))
    counts["some"] = [1] * minutes
    return counts


@examples(60)
@given(traces(), st.sampled_from(["random", "even"]), st.integers(1, 4), st.integers(0, 2**32))
def test_counts_are_conserved(tmp_path_factory, trace, within, workflows, seed):
    """Each minute has what was counted, of the workflow to which the function belongs in turn."""
    file = azure_csv(tmp_path_factory.mktemp("trace") / "trace.csv", trace)
    keys = WORKFLOWS[:workflows]
    workload = Azure(file=file, within_minute=within)
    minutes = len(trace["some"])
    expected = np.zeros((workflows, minutes), int)
    for i, name in enumerate(sorted(trace)):
        expected[i % workflows] += trace[name]
    assert (expected == per_minute(workload.arrivals(keys, seed=seed), minutes)).all()
    rates = list(workload.mean_rate_rps(keys).values())
    assert rates == pytest.approx(list(expected.sum(axis=1) / (minutes * 60)))


@pytest.fixture
def trace(tmp_path):
    counts = {"f": [10, 0, 300, 7], "g": [0, 20, 50, 1], "h": [5, 5, 5, 5]}
    return azure_csv(tmp_path / "trace.csv", counts, first_minute=480)


@pytest.mark.parametrize(
    ("window", "expected"),
    [
        ({}, [15, 25, 355, 13]),
        ({"first_minute": 481}, [25, 355, 13]),
        ({"minutes": 2}, [15, 25]),
        ({"first_minute": 482, "minutes": 2}, [355, 13]),
    ],
)
def test_a_window_of_minutes(trace, window, expected):
    """Its first minute begins at time 0."""
    arrivals = Azure(file=trace, **window).arrivals(WORKFLOWS, seed=1)
    assert expected == per_minute(arrivals, len(expected)).sum(axis=0).tolist()


@pytest.mark.parametrize(
    ("window", "message"),
    [
        ({"first_minute": 479}, "firstMinute: is 479, but the trace has minutes 480 to 483"),
        ({"first_minute": 484}, "firstMinute: is 484, but the trace has minutes 480 to 483"),
        (
            {"first_minute": 482, "minutes": 3},
            "minutes: the window ends with 484, but the trace has minutes 480 to 483",
        ),
    ],
)
def test_a_window_is_inside_the_trace(trace, window, message):
    """Otherwise it is told what the trace has."""
    with pytest.raises(DocumentError, match=f"^workload azure: {message}$"):
        Azure(file=trace, **window).arrivals(WORKFLOWS, seed=1)


def test_a_mapping_of_functions(trace):
    """Those that it names, and no others."""
    workload = Azure(file=trace, workflow_of={"f": "other/c", "h": "a"})
    counts = per_minute(workload.arrivals(WORKFLOWS, seed=1), 4)
    assert counts.tolist() == [[5, 5, 5, 5], [0] * 4, [0] * 4, [10, 0, 300, 7]]


@pytest.mark.parametrize(
    ("mapping", "message"),
    [
        ({"x": "a"}, "workflowOf: 'x' is no function; the trace has f, g, h"),
        ({"f": "x"}, "workflowOf: 'x' is not a workflow; there are default/a"),
    ],
)
def test_a_mapping_names_what_there_is(trace, mapping, message):
    """Functions of the trace and workflows of the catalogue."""
    with pytest.raises(DocumentError, match=f"^workload azure: {message}"):
        Azure(file=trace, workflow_of=mapping).arrivals(WORKFLOWS, seed=1)


def test_nothing_in_the_window(trace):
    """A run without a request would say nothing."""
    workload = Azure(file=trace, workflow_of={"f": "a"}, first_minute=481, minutes=1)
    for ask in (
        lambda: workload.arrivals(WORKFLOWS, seed=1),
        lambda: workload.mean_rate_rps(WORKFLOWS),
    ):
        with pytest.raises(DocumentError, match="no request of these functions is in the window"):
            ask()


@pytest.mark.parametrize(("factor", "spread"), [(0.3, 0.3 * 0.7), (2.0, 0.0), (7.25, 0.25 * 0.75)])
def test_a_trace_is_thinned_or_replicated(tmp_path, factor, spread):
    """In proportion in every minute; the part of a copy is a matter of chance for each request."""
    traced = np.array([1_000, 40_000, 0, 9_000])
    file = azure_csv(tmp_path / "trace.csv", {"f": traced})
    rate_rps = factor * traced.sum() / 240
    workload = Azure(file=file, rate_rps=rate_rps)
    one = WORKFLOWS[:1]
    (counts,) = per_minute(workload.arrivals(one, seed=1), 4)
    deviation = np.sqrt(traced * spread)
    assert (np.abs(counts - factor * traced) <= 4 * deviation).all()
    assert workload.mean_rate_rps(one) == {one[0]: pytest.approx(rate_rps)}


def test_workflows_at_random(tmp_path):
    """Whatever the function, a request is of each workflow with the same probability."""
    file = azure_csv(tmp_path / "trace.csv", {"f": [40_000, 0], "g": [10, 1]})
    workload = Azure(file=file, workflow_of="at-random")
    counts = per_minute(workload.arrivals(WORKFLOWS, seed=1), 2)
    assert counts.sum(axis=0).tolist() == [40_010, 1]
    assert counts[:, 0] == pytest.approx(10_000, rel=0.05)
    assert set(workload.mean_rate_rps(WORKFLOWS).values()) == {40_011 / 120 / 4}


@pytest.mark.parametrize("count", [1, 7, 2 * CHUNK_MAX + 5])
def test_even_arrivals_are_equally_spaced(tmp_path, count):
    """Each in the middle of its part of the minute, also where a minute has several chunks."""
    file = azure_csv(tmp_path / "trace.csv", {"f": [0, count], "g": [0, 3]})
    arrivals = Azure(file=file, within_minute="even").arrivals(WORKFLOWS[:2], seed=1)
    times_ms, indices = collected(arrivals)
    expected_ms = MINUTE_MS * (1 + (np.arange(count) + 0.5) / count)
    assert np.allclose(times_ms[indices == 0], expected_ms, rtol=1e-12)
    assert np.allclose(times_ms[indices == 1], [70_000.0, 90_000.0, 110_000.0], rtol=1e-12)


def test_random_arrivals_are_uniform_within_a_minute(tmp_path):
    """Also where a minute has several chunks."""
    file = azure_csv(tmp_path / "trace.csv", {"f": [3 * CHUNK_MAX]})
    times_ms, _ = collected(Azure(file=file).arrivals(WORKFLOWS[:1], seed=1, extent=Extent()))
    tenths = np.bincount((times_ms // 6_000).astype(int), minlength=10)
    assert tenths == pytest.approx(0.3 * CHUNK_MAX, rel=0.03)
