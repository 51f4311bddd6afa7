"""Panels of the dashboard, and their queries with Grafana's variables substituted."""

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from tests.chart.rendering import CHART

UNITS: dict[str, Callable[[float], str]] = {
    "percentunit": lambda value: f"{100 * value:.4g} %",
    "s": lambda value: f"{1000 * value:.4g} ms" if value < 1 else f"{value:.3g} s",
    "bytes": lambda value: f"{value / 2**30:.4g} GiB",
    "currencyUSD": lambda value: f"${value:.3g}",
    "reqps": lambda value: f"{value:.3g} req/s",
    "ops": lambda value: f"{value:,.6g} a second",
    "celsius": lambda value: f"{value:.3g} °C",
    "none": lambda value: f"{value:g}",
    "short": lambda value: f"{value:.4g}",
}

DASHBOARD = json.loads((CHART / "files" / "dashboard.json").read_text(encoding="utf-8"))


@dataclass(frozen=True, slots=True)
class Query:
    """Query of a panel."""

    text: str
    """PromQL with Grafana's variables in it."""
    legend: str
    """Name of a series; ``{{label}}`` is replaced with the label's value."""

    def promql(self, *, rate_interval_s: float) -> str:
        """Return the PromQL that Grafana sends if "All" is selected in every variable.

        Raises:
            ValueError: the query has a variable that the dashboard does not define.
        """
        variables = {variable["name"]: ".*" for variable in DASHBOARD["templating"]["list"]}
        variables["__rate_interval"] = f"{round(rate_interval_s * 1000)}ms"

        def value(reference: re.Match[str]) -> str:
            name = reference[1]
            if name not in variables:
                raise ValueError(f"${name} in {self.text!r} is no variable of the dashboard")
            return variables[name]

        return re.sub(r"\$(\w+)", value, self.text)

    def series_name(self, labels: Mapping[str, str]) -> str:
        """Return the name that Grafana shows for a series in the legend."""
        if not self.legend:
            return " ".join(labels.values())
        return re.sub(r"\{\{\s*(\w+)\s*\}\}", lambda label: labels.get(label[1], ""), self.legend)


@dataclass(frozen=True, slots=True)
class Panel:
    """Panel of the dashboard; position and size are in units of its 24-column grid."""

    title: str
    kind: str
    unit: str
    x: int
    y: int
    width: int
    height: int
    queries: tuple[Query, ...]


def panels() -> list[Panel]:
    """Return all panels in the dashboard's order; the title of a row is a panel without queries."""
    return [_panel(document) for document in DASHBOARD["panels"]]


def _panel(document: Mapping[str, Any]) -> Panel:
    position = document["gridPos"]
    return Panel(
        title=document["title"],
        kind=document["type"],
        unit=document.get("fieldConfig", {}).get("defaults", {}).get("unit", ""),
        x=position["x"],
        y=position["y"],
        width=position["w"],
        height=position["h"],
        queries=tuple(
            Query(target["expr"], target.get("legendFormat", ""))
            for target in document.get("targets", [])
        ),
    )
