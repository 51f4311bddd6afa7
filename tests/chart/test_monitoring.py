"""Alerts and dashboard speak of series that there are, and say what they should."""

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest
import yaml
from prometheus_client.core import CounterMetricFamily

from scheduler.agent.metrics import SERIES
from scheduler.metrics import GPU_SERIES, Metrics
from tests.chart.dashboards import DASHBOARD
from tests.chart.rendering import EVERYTHING, Json, one, render
from tests.require import needing
from tests.testbed import REPOSITORY

RULES_TEST = Path(__file__).parent / "rules_test.yaml"
PROMTOOL = shutil.which("promtool")
needs_helm = pytest.mark.usefixtures("helm_is_there")
needs_promtool = needing(PROMTOOL, "promtool is not installed: it is in the package prometheus")


def exposed() -> set[str]:
    """Every name that a scrape of a replica or of an agent may bring."""
    names = {*GPU_SERIES, *SERIES}
    suffixes = {
        "counter": ("_total",),
        "histogram": ("_bucket", "_sum", "_count"),
        "info": ("_info",),
        "gauge": ("",),
    }
    for family in Metrics().registry.collect():
        names |= {family.name + suffix for suffix in suffixes[family.type]}
    return names


def groups() -> list[Json]:
    found: list[Json] = one(render(EVERYTHING), "PrometheusRule")["spec"]["groups"]
    return found


def expressions() -> Iterator[tuple[str, str]]:
    """What asks, and the PromQL that it asks with."""
    for group in groups():
        for rule in group["rules"]:
            yield rule.get("alert") or rule["record"], rule["expr"]
    for panel in DASHBOARD["panels"]:
        for target in panel.get("targets", []):
            yield panel["title"], target["expr"]
    for variable in DASHBOARD["templating"]["list"]:
        if variable["type"] == "query":
            yield f"${variable['name']}", variable["query"]["query"]


@needs_helm
def test_every_series_that_is_asked_for_is_exposed() -> None:
    """Or is recorded by the rules themselves."""
    recorded = {rule["record"] for group in groups() for rule in group["rules"] if "record" in rule}
    there = exposed() | recorded
    for asker, expression in expressions():
        asked = set(re.findall(r"\besg[_:][a-zA-Z0-9_:]+", expression))
        assert asked, asker
        assert asked <= there, asker


@needs_helm
def test_only_counters_are_asked_for_their_rate() -> None:
    """The rate of a gauge is no number that means anything."""
    counters = {
        name for name in exposed() if name.endswith(("_total", "_bucket", "_sum", "_count"))
    }
    counters |= {name for name, series in SERIES.items() if series.kind is CounterMetricFamily}
    for asker, expression in expressions():
        for name in re.findall(r"(?:rate|increase)\((\w+)", expression):
            assert name in counters, asker


@needs_helm
@needs_promtool
def test_the_rules_are_sound_and_fire_when_they_should(tmp_path: Path) -> None:
    """Prometheus' own checker, then its own test runner over series made for them."""
    (tmp_path / "rules.yaml").write_text(yaml.safe_dump({"groups": groups()}))
    shutil.copy(RULES_TEST, tmp_path / "test.yaml")
    for command in (
        ["check", "rules", "--lint-fatal", "rules.yaml"],
        ["test", "rules", "test.yaml"],
    ):
        done = subprocess.run(
            [PROMTOOL or "promtool", *command],
            cwd=tmp_path, capture_output=True, text=True, check=False, timeout=60,
        )  # fmt: skip
        assert done.returncode == 0, done.stdout + done.stderr


@needs_helm
def test_every_alert_says_what_is_so_and_how_grave() -> None:
    """A summary of one line, a description, and one of two severities."""
    for rule in [rule for group in groups() for rule in group["rules"] if "alert" in rule]:
        assert rule["labels"]["severity"] in {"critical", "warning"}, rule["alert"]
        assert len(rule["annotations"]["summary"]) <= 100, rule["alert"]
        assert rule["annotations"]["description"], rule["alert"]


@needs_helm
def test_every_alert_is_explained_to_operators() -> None:
    """What is so and what to do, in the table of docs/operations.md; and no alert that is not."""
    alerts = {rule["alert"] for group in groups() for rule in group["rules"] if "alert" in rule}
    told = (REPOSITORY / "docs" / "operations.md").read_text(encoding="utf-8")
    assert set(re.findall(r"^\| `(Esg\w+)` \|", told, flags=re.MULTILINE)) == alerts


@needs_helm
def test_series_keep_the_namespace_and_the_pod_that_they_speak_of() -> None:
    """Prometheus would put those of the scraped pod in their place."""
    monitors = [each for each in render(EVERYTHING) if each["kind"] == "ServiceMonitor"]
    assert len(monitors) == 2
    for monitor in monitors:
        assert [endpoint["honorLabels"] for endpoint in monitor["spec"]["endpoints"]] == [True]
        assert monitor["metadata"]["labels"]["release"] == "prometheus"


@needs_helm
def test_the_dashboard_is_in_the_cluster_as_it_is_here() -> None:
    """In a ConfigMap that Grafana's sidecar finds by its label."""
    found = one(render(EVERYTHING), "ConfigMap", "-dashboard")
    assert json.loads(found["data"]["esg-scheduler.json"]) == DASHBOARD
    assert found["metadata"]["labels"]["grafana_dashboard"] == "1"


def test_panels_stand_beside_one_another_and_ask_the_chosen_prometheus() -> None:
    """Each has a number and a place of its own, a title, a unit, and no other source."""
    panels = DASHBOARD["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    cells = [
        (panel["gridPos"]["x"] + x, panel["gridPos"]["y"] + y)
        for panel in panels
        for x in range(panel["gridPos"]["w"])
        for y in range(panel["gridPos"]["h"])
    ]
    assert len(set(cells)) == len(cells)
    assert max(x for x, _ in cells) < 24
    for panel in [panel for panel in panels if panel["type"] != "row"]:
        assert panel["title"], panel["id"]
        assert panel["fieldConfig"]["defaults"]["unit"], panel["title"]
        references = [target["refId"] for target in panel["targets"]]
        assert all(before < after for before, after in pairwise(references))
        for each in [panel, *panel["targets"]]:
            assert each["datasource"] == {"type": "prometheus", "uid": "${datasource}"}
