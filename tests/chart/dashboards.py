"""The dashboard's panels, and what they ask once Grafana has put in what was chosen."""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tests.chart.rendering import CHART

DASHBOARD = json.loads((CHART / "files" / "dashboard.json").read_text(encoding="utf-8"))


@dataclass(frozen=True, slots=True)
class Query:
    """One question of a panel."""

    text: str
    """PromQL with Grafana's variables in it."""
    legend: str
    """``{{label}}`` stands for a label's value."""

    def filled(self, *, rate_interval_s: float) -> str:
        """PromQL as Grafana sends it where everything is chosen.

        Raises:
            ValueError: a variable is in it that the dashboard does not have.
        """
        chosen = {each["name"]: ".*" for each in DASHBOARD["templating"]["list"]}
        chosen["__rate_interval"] = f"{round(rate_interval_s * 1000)}ms"

        def value(found: re.Match[str]) -> str:
            if found[1] not in chosen:
                raise ValueError(f"${found[1]} in {self.text!r} is no variable of the dashboard")
            return chosen[found[1]]

        return re.sub(r"\$(\w+)", value, self.text)

    def named(self, labels: Mapping[str, str]) -> str:
        """What Grafana writes beside the line of a series."""
        if not self.legend:
            return " ".join(labels.values())
        return re.sub(r"\{\{\s*(\w+)\s*\}\}", lambda found: labels.get(found[1], ""), self.legend)


@dataclass(frozen=True, slots=True)
class Panel:
    """A rectangle of the dashboard, in its 24 columns."""

    title: str
    kind: str
    unit: str
    x: int
    y: int
    width: int
    height: int
    queries: tuple[Query, ...]


def panels() -> list[Panel]:
    """All of them, in the dashboard's order; a row's title is a panel without queries."""
    return [_panel(each) for each in DASHBOARD["panels"]]


def _panel(told: Mapping[str, Any]) -> Panel:
    place = told["gridPos"]
    return Panel(
        title=told["title"],
        kind=told["type"],
        unit=told.get("fieldConfig", {}).get("defaults", {}).get("unit", ""),
        x=place["x"],
        y=place["y"],
        width=place["w"],
        height=place["h"],
        queries=tuple(
            Query(target["expr"], target.get("legendFormat", ""))
            for target in told.get("targets", [])
        ),
    )
