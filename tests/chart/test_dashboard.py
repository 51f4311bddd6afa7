"""Dashboard and rules in a real Prometheus that scraped extender and gateway of the demo."""

from collections.abc import Iterator

import pytest

from tests.chart.dashboards import UNITS, Panel, panels
from tests.chart.prometheus_harness import PROMETHEUS, ScrapedDemo, Series, scraped_demo
from tests.chart.rendering import EVERYTHING, one, render
from tests.require import needing

pytestmark = [
    pytest.mark.slow,
    needing(PROMETHEUS, "Prometheus is not installed"),
    pytest.mark.usefixtures("helm_built"),
]
SCRAPED_EVERY_S = 0.5
# Pods' GPU memory needs pods and GPU processes, and the webhook needs an API server that calls it;
# the demo has none of them, and its pods are reserved.
WITHOUT_DATA = {
    "GPU memory of a pod, relative to its limit",
    "Webhook call duration, 99th percentile",
    "Webhook calls by result",
    "Slices of pools, and their members",
}
PANELS_WITH_QUERIES = [panel for panel in panels() if panel.queries]


@pytest.fixture(scope="module")
def scraped(helm_built: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ScrapedDemo]:
    groups = one(render(EVERYTHING), "PrometheusRule")["spec"]["groups"]
    folder = tmp_path_factory.mktemp("prometheus")
    with scraped_demo(
        folder, seconds=8, load="normal", scraped_every_s=SCRAPED_EVERY_S, rules=groups
    ) as harness:
        yield harness


def query_results(scraped: ScrapedDemo, panel: Panel) -> list[list[Series]]:
    """Return the series of each query of the panel, with rates over the whole load.

    A busy machine may scrape less often than it should.
    """
    return [
        scraped.prometheus.query_range(
            query.promql(rate_interval_s=scraped.end_s - scraped.start_s),
            start_s=scraped.start_s,
            end_s=scraped.end_s,
            step_s=scraped.scraped_every_s,
        )
        for query in panel.queries
    ]


@pytest.mark.parametrize(
    "panel", PANELS_WITH_QUERIES, ids=[panel.title for panel in PANELS_WITH_QUERIES]
)
def test_every_panel_has_data(scraped: ScrapedDemo, panel: Panel) -> None:
    """Prometheus accepts every query, and returns series for what the demo produces."""
    results = query_results(scraped, panel)
    if panel.title in WITHOUT_DATA:
        assert not any(results)
    else:
        assert all(results)


def test_the_picture_has_every_unit() -> None:
    """`make dashboard-picture` formats the values of each panel."""
    assert {panel.unit for panel in PANELS_WITH_QUERIES} <= UNITS.keys()


def test_counters_are_scraped_at_zero_before_the_first_request(scraped: ScrapedDemo) -> None:
    """Each counter exists from the start: `increase` misses a series that starts at 1."""
    counters = scraped.prometheus.query_range(
        "esg_workflow_requests_total",
        start_s=scraped.start_s, end_s=scraped.end_s, step_s=SCRAPED_EVERY_S,
    )  # fmt: skip
    assert len(counters) == 2 * 4 * 3  # extender and gateway, four workflows, three results
    assert {series.points[0][1] for series in counters} == {0}
    assert max(series.points[-1][1] for series in counters) > 0


def test_every_rule_is_evaluated_without_error(scraped: ScrapedDemo) -> None:
    """Prometheus evaluates the chart's PrometheusRule over real series."""
    rules = scraped.prometheus.rules()
    assert len(rules) > 20
    for rule in rules:
        assert rule["health"] == "ok", (rule["name"], rule.get("lastError"))


def test_recording_rules_have_a_series_of_every_workflow(scraped: ScrapedDemo) -> None:
    """The alerts need every recorded series for each of the four workflows."""
    for name in {
        rule["name"]
        for rule in scraped.prometheus.rules()
        if rule["type"] == "recording" and rule["name"].startswith("esg:workflow_")
    }:
        recorded = scraped.prometheus.query_range(
            name, start_s=scraped.start_s, end_s=scraped.end_s, step_s=SCRAPED_EVERY_S
        )
        assert len({series.labels["workflow"] for series in recorded}) == 4, name


def test_an_unhealthy_gpu_makes_an_alert_pending(scraped: ScrapedDemo) -> None:
    """A GPU fails half-way; its alert fires after five minutes. So does that of missing agents."""
    states = {
        rule["name"]: rule["state"]
        for rule in scraped.prometheus.rules()
        if rule["type"] == "alerting"
    }
    assert states["EsgGpuUnhealthy"] == "pending"
    assert states["EsgAgentMissing"] == "pending"
    assert states["EsgSchedulerMissing"] == states["EsgGpuOvercommitted"] == "inactive"
