"""Histograms that are observed once or more per request.

prometheus_client's Histogram takes a lock for each of two values and checks its labels each time,
several microseconds in all; an event loop needs neither.
"""

from bisect import bisect_left
from collections.abc import Iterable, Sequence

from prometheus_client import CollectorRegistry
from prometheus_client.core import HistogramMetricFamily, Metric
from prometheus_client.registry import Collector
from prometheus_client.samples import Exemplar


class BucketCounts:
    """One series of a histogram; one thread observes, any thread reads.

    Attributes:
        edges: upper edges of the buckets, ascending, without infinity.
        total: sum of the observed values.
    """

    __slots__ = ("_counts", "_exemplars", "edges", "total")

    def __init__(self, edges: Sequence[float]) -> None:
        self.edges = tuple(edges)
        self.total = 0.0
        self._counts = [0] * (len(self.edges) + 1)
        self._exemplars: dict[int, Exemplar] = {}  # by the index of the bucket

    def observe(self, value: float, times: int = 1) -> None:
        """Count a value, once or several times."""
        self._counts[bisect_left(self.edges, value)] += times
        self.total += value * times

    def set_exemplar(self, exemplar: Exemplar) -> None:
        """Set the exemplar of a bucket, that of the exemplar's value."""
        self._exemplars[bisect_left(self.edges, exemplar.value)] = exemplar

    def cumulative(self) -> list[tuple[str, float] | tuple[str, float, Exemplar]]:
        """Return each bucket's edge, the number of values up to it, and its exemplar if any."""
        reached = 0
        buckets: list[tuple[str, float] | tuple[str, float, Exemplar]] = []
        edges = [repr(float(edge)) for edge in self.edges]
        for index, (edge, count) in enumerate(zip([*edges, "+Inf"], self._counts, strict=True)):
            reached += count
            exemplar = self._exemplars.get(index)
            buckets.append((edge, reached, exemplar) if exemplar else (edge, reached))
        return buckets


class LabelledHistogram(Collector):
    """Histogram with labels and the same buckets for all of its series."""

    def __init__(
        self,
        name: str,
        documentation: str,
        labels: Sequence[str],
        *,
        buckets: Sequence[float],
        registry: CollectorRegistry,
    ) -> None:
        self._family = (name, documentation, labels)
        self._buckets = buckets
        self._series: dict[tuple[str, ...], BucketCounts] = {}
        registry.register(self)

    def labels(self, *values: str) -> BucketCounts:
        """Return the series of these values; it begins with the first call."""
        series = self._series.get(values)
        if series is None:
            series = self._series[values] = BucketCounts(self._buckets)
        return series

    def remove(self, *values: str) -> None:
        """End the series of these values, if there is one."""
        self._series.pop(values, None)

    def collect(self) -> Iterable[Metric]:
        """Render the family for the registry."""
        yield histogram_family(*self._family, self._series)


def histogram_family(
    name: str,
    documentation: str,
    labels: Sequence[str],
    series: dict[tuple[str, ...], BucketCounts],
) -> HistogramMetricFamily:
    """Return series by the values of their labels as a family."""
    family = HistogramMetricFamily(name, documentation, labels=labels)
    for values, counts in list(series.items()):  # a copy: the scrape reads it in a thread
        family.add_metric(values, counts.cumulative(), sum_value=counts.total)
    return family
