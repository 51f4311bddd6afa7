"""The dashboard and the rules in a real Prometheus that scraped the demo."""

from collections.abc import Iterator

import pytest

from tests.chart.dashboards import Panel, panels
from tests.chart.rendering import EVERYTHING, one, render
from tests.chart.scraped import PROMETHEUS, Scraped, Series, scraped_demo
from tests.require import needing

pytestmark = [
    needing(PROMETHEUS, "Prometheus is not installed"),
    pytest.mark.usefixtures("helm_is_there"),
]
SCRAPED_EVERY_S = 0.5
# What a process uses of a GPU is told where there are pods and processes; the demo has neither.
WITHOUT_DATA = {"Memory of a pod, of its limit"}
ASKING = [panel for panel in panels() if panel.queries]


@pytest.fixture(scope="module")
def scraped(helm_is_there: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scraped]:
    groups = one(render(EVERYTHING), "PrometheusRule")["spec"]["groups"]
    folder = tmp_path_factory.mktemp("prometheus")
    with scraped_demo(
        folder, seconds=8, load="normal", scraped_every_s=SCRAPED_EVERY_S, rules=groups
    ) as found:
        yield found


def answers(scraped: Scraped, panel: Panel) -> list[list[Series]]:
    """By query, what the panel would draw of the run."""
    return [
        scraped.prometheus.over(
            query.filled(rate_interval_s=4 * scraped.scraped_every_s),
            since=scraped.began,
            until=scraped.ended,
            step_s=scraped.scraped_every_s,
        )
        for query in panel.queries
    ]


@pytest.mark.parametrize("panel", ASKING, ids=[panel.title for panel in ASKING])
def test_every_panel_shows_something(scraped: Scraped, panel: Panel) -> None:
    """Prometheus takes each query, and has numbers for it where the demo has something to tell."""
    found = answers(scraped, panel)
    if panel.title in WITHOUT_DATA:
        assert not any(found)
    else:
        assert all(found)


def test_counters_are_scraped_before_their_first_request(scraped: Scraped) -> None:
    """Prometheus has a zero of each to tell the first from; a birth with it would hide it."""
    found = scraped.prometheus.over(
        "esg_workflow_requests_total",
        since=scraped.began, until=scraped.ended, step_s=SCRAPED_EVERY_S,
    )  # fmt: skip
    assert len(found) == 4 * 3  # of four workflows, each result
    assert {series.points[0][1] for series in found} == {0}
    assert max(series.points[-1][1] for series in found) > 0


def test_every_rule_is_evaluated_without_error(scraped: Scraped) -> None:
    """All that the chart's PrometheusRule holds, over series as they really are."""
    rules = scraped.prometheus.rules()
    assert len(rules) > 20
    for rule in rules:
        assert rule["health"] == "ok", (rule["name"], rule.get("lastError"))


def test_the_rules_record_what_the_alerts_ask_for(scraped: Scraped) -> None:
    """Each recorded series is there, of every workflow."""
    for name in {
        rule["name"] for rule in scraped.prometheus.rules() if rule["type"] == "recording"
    }:
        found = scraped.prometheus.over(
            name, since=scraped.began, until=scraped.ended, step_s=SCRAPED_EVERY_S
        )
        assert len({series.labels["workflow"] for series in found}) == 4, name


def test_a_gpu_that_falls_ill_is_an_alert(scraped: Scraped) -> None:
    """One did half-way; it waits for its five minutes. Nodes without an agent are told too."""
    states = {
        rule["name"]: rule["state"]
        for rule in scraped.prometheus.rules()
        if rule["type"] == "alerting"
    }
    assert states["EsgGpuUnhealthy"] == "pending"
    assert states["EsgAgentMissing"] == "pending"
    assert states["EsgSchedulerMissing"] == states["EsgGpuOvercommitted"] == "inactive"
