"""Histograms of requests against those of prometheus_client."""

from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry, Histogram, disable_created_metrics
from prometheus_client import generate_latest as render

from scheduler.histograms import LabelledHistogram

EDGES = (0.5, 1, 2.5)
LABELS = ["namespace", "stage"]
SERIES = st.tuples(st.sampled_from("ab"), st.sampled_from(["x", 'y"\n']))
VALUES = st.integers(0, 30).map(lambda eighths: eighths / 8)  # sums of these are exact


@given(st.lists(st.tuples(SERIES, VALUES, st.integers(1, 3)), max_size=20), st.sets(SERIES))
def test_a_scrape_is_that_of_prometheus_client(observed, removed):
    """A value that is counted several times in one call is one that is observed as often."""
    disable_created_metrics()
    registry, twin_registry = CollectorRegistry(), CollectorRegistry()
    histogram = LabelledHistogram("h", "A text.", LABELS, buckets=EDGES, registry=registry)
    twin = Histogram("h", "A text.", LABELS, buckets=EDGES, registry=twin_registry)
    for labels, value, times in observed:
        histogram.labels(*labels).observe(value, times)
        for _ in range(times):
            twin.labels(*labels).observe(value)
    for labels in removed:
        histogram.remove(*labels)
        twin.remove(*labels)
    assert render(registry) == render(twin_registry)
