"""Alerts and dashboard: their queries, their texts, and the objects they are installed as."""

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
from scheduler.gateway.metrics import GatewayMetrics
from scheduler.gateway.pod_demand import PodDemand
from scheduler.model.plan import Prices
from scheduler.planning.gpu_series import GPU_SERIES, SLICE_SERIES
from scheduler.planning.metrics import Metrics
from scheduler.webhook.metrics import WebhookMetrics
from tests.chart.dashboards import DASHBOARD
from tests.chart.rendering import EVERYTHING, Json, one, render
from tests.require import needing
from tests.testbed import REPOSITORY

# Series of DCGM's exporter, of Kubernetes' programs, and of Prometheus itself.
FOREIGN = ("DCGM_FI_PROF_SM_ACTIVE", "kubernetes_build_info", "ALERTS")
RULES_TEST = Path(__file__).parent / "rules_test.yaml"
PROMTOOL = shutil.which("promtool")
needs_helm = pytest.mark.usefixtures("helm_built")
needs_promtool = needing(PROMTOOL, "promtool is not installed: install the package prometheus")


def exposed() -> set[str]:
    """Return every series name that a scrape of one of the programs may contain."""
    names = {*GPU_SERIES, *SLICE_SERIES, *SERIES}
    suffixes = {
        "counter": ("_total",),
        "histogram": ("_bucket", "_sum", "_count"),
        "info": ("_info",),
        "gauge": ("",),
    }
    gateway = GatewayMetrics(Prices(), PodDemand(lambda: 0.0))
    for registry in (Metrics().registry, WebhookMetrics().registry, gateway.registry):
        for family in registry.collect():
            names |= {family.name + suffix for suffix in suffixes[family.type]}
    return names


def groups() -> list[Json]:
    rule_groups: list[Json] = one(render(EVERYTHING), "PrometheusRule")["spec"]["groups"]
    return rule_groups


def expressions() -> Iterator[tuple[str, str]]:
    """Yield the name of every rule, panel and variable, with its PromQL."""
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
def test_every_queried_series_exists() -> None:
    """A program exposes it, or a rule records it."""
    recorded = {rule["record"] for group in groups() for rule in group["rules"] if "record" in rule}
    existing = exposed() | recorded
    for source, expression in expressions():
        queried = set(re.findall(r"\besg[_:][a-zA-Z0-9_:]+", expression))
        assert queried or any(name in expression for name in FOREIGN), source
        assert queried <= existing, source


@needs_helm
def test_rates_are_of_counters_only() -> None:
    """The rate of a gauge has no meaning."""
    counters = {
        name for name in exposed() if name.endswith(("_total", "_bucket", "_sum", "_count"))
    }
    counters |= {name for name, series in SERIES.items() if series.kind is CounterMetricFamily}
    for source, expression in expressions():
        for name in re.findall(r"(?:rate|increase)\((\w+)", expression):
            assert name in counters, source


@pytest.mark.slow
@needs_helm
@needs_promtool
def test_promtool_accepts_the_rules_and_their_unit_tests_pass(tmp_path: Path) -> None:
    """`promtool check rules`, then `promtool test rules` with the series of rules_test.yaml."""
    (tmp_path / "rules.yaml").write_text(yaml.safe_dump({"groups": groups()}))
    shutil.copy(RULES_TEST, tmp_path / "test.yaml")
    for command in (
        ["check", "rules", "--lint-fatal", "rules.yaml"],
        ["test", "rules", "test.yaml"],
    ):
        done = subprocess.run(
            [PROMTOOL or "promtool", *command],
            cwd=tmp_path, capture_output=True, text=True, check=False, timeout=300,
        )  # fmt: skip
        assert done.returncode == 0, done.stdout + done.stderr


@needs_helm
def test_every_alert_has_a_severity_and_texts() -> None:
    """It has a summary of one line, a description, and one of two severities."""
    for rule in [rule for group in groups() for rule in group["rules"] if "alert" in rule]:
        assert rule["labels"]["severity"] in {"critical", "warning"}, rule["alert"]
        assert len(rule["annotations"]["summary"]) <= 100, rule["alert"]
        assert rule["annotations"]["description"], rule["alert"]


@needs_helm
def test_every_alert_names_its_runbook() -> None:
    """docs/runbooks.md has a section of every alert of the chart and of no others."""
    urls = {
        rule["alert"]: rule["annotations"]["runbook_url"]
        for group in groups()
        for rule in group["rules"]
        if "alert" in rule
    }
    page = (REPOSITORY / "docs" / "runbooks.md").read_text(encoding="utf-8")
    assert set(re.findall(r"^## (\w+)$", page, flags=re.MULTILINE)) == urls.keys()
    for alert, url in urls.items():
        assert url == f"https://wiki.example/esg#{alert.lower()}"


@needs_helm
def test_series_keep_their_labels_namespace_and_pod() -> None:
    """Without honorLabels, Prometheus replaces them with those of the scraped pod."""
    monitors = [o for o in render(EVERYTHING) if o["kind"] == "ServiceMonitor"]
    assert len(monitors) == 4
    for monitor in monitors:
        assert monitor["spec"]["endpoints"][0]["honorLabels"] is True
        assert monitor["metadata"]["labels"]["release"] == "prometheus"


def test_the_first_row_has_the_stats_that_people_look_for() -> None:
    """SLO, load, latency, GPUs, pods, alerts; with thresholds and a link to what to do."""
    row = DASHBOARD["panels"][:7]
    assert [panel["title"] for panel in row[1:]] == [
        "In SLO",
        "Requests per second",
        "99th percentile, of the SLO",
        "GPUs set aside, busy",
        "Pods wanted, ready",
        "Alerts that fire",
    ]
    headings = (REPOSITORY / "docs" / "runbooks.md").read_text(encoding="utf-8")
    anchors = {heading.lower() for heading in re.findall(r"(?m)^#+ (\w+)$", headings)}
    for panel in row[1:]:
        assert panel["type"] == "stat"
        assert panel["gridPos"]["y"] == 1
        assert panel["fieldConfig"]["defaults"]["thresholds"]["steps"]
        [link] = panel["links"]
        assert link["url"].rpartition("#")[2] in anchors, panel["title"]


@pytest.mark.slow
@needs_helm
def test_links_of_the_dashboard_go_to_the_runbooks_of_the_values() -> None:
    """`monitoring.rules.runbookUrl` is one value for alerts and dashboard."""
    values: Json = {
        "rules": {"runbookUrl": "https://wiki.example/esg"},
        "dashboard": {"enabled": True},
    }
    config_map = one(render(monitoring=values), "ConfigMap", "-dashboard")
    dashboard = json.loads(config_map["data"]["esg-scheduler.json"])
    links = [
        link["url"] for part in (dashboard, *dashboard["panels"]) for link in part.get("links", [])
    ]
    assert {url.partition("#")[0] for url in links} == {"https://wiki.example/esg"}


@pytest.mark.slow
@needs_helm
def test_a_config_map_has_the_dashboard() -> None:
    """Grafana's sidecar selects the ConfigMap by its label."""
    monitoring = {"dashboard": {"enabled": True}}
    config_map = one(render(monitoring=monitoring), "ConfigMap", "-dashboard")
    assert json.loads(config_map["data"]["esg-scheduler.json"]) == DASHBOARD
    assert config_map["metadata"]["labels"]["grafana_dashboard"] == "1"


def test_panels_do_not_overlap_and_query_the_selected_prometheus() -> None:
    """Ids and grid cells are unique; every panel has a title, a unit and the selected source."""
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
        for queried in [panel, *panel["targets"]]:
            assert queried["datasource"] == {"type": "prometheus", "uid": "${datasource}"}
