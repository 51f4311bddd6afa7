"""Series of a workflow: few before its first request, and all of them after it."""

import pytest

from scheduler import __version__
from scheduler.dispatch.pods import Share
from scheduler.gateway.metrics import GatewayMetrics, Gauges, PoolGauge
from scheduler.gateway.pod_demand import PodDemand
from scheduler.gateway.serving.recorder import BatchEnded
from scheduler.model.documents import Workflow
from scheduler.model.plan import Prices
from scheduler.planning.metrics import Metrics
from tests.gateway.factories import workflow

KEY = ("n", "w")
QUEUED = {(*KEY, "f"): 0, (*KEY, "g"): 0}
BEFORE_THE_FIRST = {
    "esg_workflow_requests_total": 3,  # by result: alerts must not miss the first request
    "esg_workflow_slo_objective_ratio": 1,
    "esg_workflow_slo_seconds": 1,
}


def gateway_metrics(slo_ms=1000):
    metrics = GatewayMetrics(Prices(), PodDemand(lambda: 0.0))
    metrics.workflow_changed(None, document(slo_ms))
    metrics.gauges = Gauges(QUEUED, {}, {}, {}, 0, {})
    return metrics


def document(slo_ms=1000):
    return Workflow.model_validate(workflow(stages=("f", "g"), slo_ms=slo_ms))


def series_of(metrics):
    """Count the series of the workflow by name."""
    counts = {}
    for family in metrics.registry.collect():
        for sample in family.samples:
            if sample.labels.get("workflow") == "w":
                counts[sample.name] = counts.get(sample.name, 0) + 1
    return counts


def batch_ended(metrics, stage="f"):
    share = Share("NVIDIA A100-SXM4-80GB", 1, 20, 1000)
    metrics.batch_ended(BatchEnded(KEY, stage, 1, 0, share, (0.1,), 0.2, 0.2))


def test_a_gateway_names_its_group():
    """An alert fires for each group of which no gateway is scraped."""
    for group in ("", "a"):
        registry = GatewayMetrics(Prices(), PodDemand(lambda: 0.0), group).registry
        labels = {"version": __version__, "group": group}
        assert registry.get_sample_value("esg_gateway_info", labels) == 1


@pytest.mark.parametrize("kind", [gateway_metrics, Metrics])
def test_a_workflow_without_requests_has_few_series(kind):
    """A cluster has thousands of them, and each scrape renders all series."""
    metrics = kind()
    if kind is Metrics:
        metrics.workflow_changed(None, document())
    assert series_of(metrics) == BEFORE_THE_FIRST


def test_percentile_of_a_profile_is_shown_of_stages_that_have_run():
    """The alert compares the mean run time with it; functions without one have no series."""
    metrics = gateway_metrics()
    batch_ended(metrics, "f")
    batch_ended(metrics, "g")
    ratios = metrics.by_run_stage({(KEY[0], "f"): 1.2, (KEY[0], "other"): 1.5})
    metrics.gauges = Gauges({}, {}, {}, {}, 0, {}, ratios)
    labels = {"namespace": KEY[0], "workflow": KEY[1], "stage": "f"}
    assert metrics.registry.get_sample_value("esg_profile_p95_ratio", labels) == 1.2
    assert series_of(metrics)["esg_profile_p95_ratio"] == 1


def test_the_first_request_begins_the_others():
    metrics = gateway_metrics()
    metrics.call_ended(KEY, "hit", 0.3, cold_start=True)
    batch_ended(metrics)
    counts = series_of(metrics)
    assert {name: counts[name] for name in BEFORE_THE_FIRST} == BEFORE_THE_FIRST
    for name in (
        "esg_workflow_duration_seconds_count",
        "esg_batch_size_count",
        "esg_cost_dollars_total",
        "esg_gateway_cold_starts_total",
        "esg_gateway_queue_rows",
    ):
        assert counts[name] == 1, name


def test_rows_that_wait_are_shown_before_the_first_batch():
    """A stage whose pod has not started yet has a queue."""
    metrics = gateway_metrics()
    metrics.gauges = Gauges({(*KEY, "f"): 0, (*KEY, "g"): 2}, {}, {}, {}, 0, {})
    labels = {"namespace": "n", "workflow": "w", "stage": "g"}
    assert series_of(metrics)["esg_gateway_queue_rows"] == 1
    assert metrics.registry.get_sample_value("esg_gateway_queue_rows", labels) == 2


def test_all_series_end_with_the_workflow():
    metrics = gateway_metrics()
    metrics.call_ended(KEY, "hit", 0.3, cold_start=True)
    batch_ended(metrics)
    metrics.workflow_changed(document(), None)
    metrics.gauges = Gauges({}, {}, {}, {}, 0, {})
    assert series_of(metrics) == {}


def test_a_changed_slo_begins_the_durations_again():
    """Its edge is a bucket's, so the counts of the earlier buckets would not fit."""
    metrics = gateway_metrics()
    metrics.call_ended(KEY, "hit", 0.3)
    metrics.workflow_changed(document(), document(slo_ms=700))
    metrics.call_ended(KEY, "hit", 0.6)
    labels = {"namespace": "n", "workflow": "w"}
    value = metrics.registry.get_sample_value
    assert value("esg_workflow_duration_seconds_bucket", {**labels, "le": "0.7"}) == 1
    assert value("esg_workflow_duration_seconds_count", labels) == 1


def test_a_pool_shows_its_slices_and_what_runs_in_them():
    """The series end with the pool."""
    metrics = gateway_metrics()
    pool = PoolGauge(
        slice_percent=200, running_percent=90, process_percent=410, dollars_per_hour=4.5
    )
    metrics.gauges = Gauges({}, {}, {}, {}, 0, {"n": pool})
    value = metrics.registry.get_sample_value
    percents = {
        of: value("esg_gateway_pool_percent", {"namespace": "n", "of": of})
        for of in ("slices", "running", "processes")
    }
    assert percents == {"slices": 200, "running": 90, "processes": 410}
    assert value("esg_gateway_pool_dollars_per_hour", {"namespace": "n"}) == 4.5
    metrics.gauges = Gauges({}, {}, {}, {}, 0, {})
    assert value("esg_gateway_pool_dollars_per_hour", {"namespace": "n"}) is None
