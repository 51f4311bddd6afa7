"""Writes what the chart takes from the code, so that it cannot drift from it.

    python -m helm.documents    # `make documents` does

Those are its CRDs, the settings in its schema of values, and the page that tells all values. The
rest of the schema is written by hand: it is the one place that says what a value means.
"""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml
from pydantic_settings import BaseSettings

from scheduler.agent.settings import AgentSettings
from scheduler.cluster.crds import crds_yaml
from scheduler.settings import Settings

REPOSITORY = Path(__file__).resolve().parents[1]
CHART = REPOSITORY / "helm" / "esg-scheduler"
SCHEMA = CHART / "values.schema.json"
PAGE = REPOSITORY / "docs" / "reference" / "values.md"

# What the chart itself must know, and so sets: addresses that its probes and Services name, and
# what two parts of it must agree on.
OF_THE_CHART = {
    "host", "port", "observe_port", "webhook_port", "tls_cert", "tls_key", "mps_root",
    "mps_check_image", "scheduler_name",
}  # fmt: skip
OF_THE_CHART_FOR_AGENTS = {"port", "mps_root", "mps_uid", "require_mps"}

_HEAD = """\
# Values of the chart

<!-- Made by `make documents` from values.schema.json and values.yaml; change it there. -->

What `helm install` takes by `--values` and `--set`; any other key is refused. (`--set` makes a text
of `0.1`: give fractions in a file, or by `--set-json`.)

The settings of the programs are in [settings.md](settings.md). Their names there, in lower case
and without `ESG_` or `ESG_AGENT_`, are the keys of `settings` and of `agent.settings`. The chart
sets some itself, and they are no keys: {own}; of the agent {own_of_agents}.
"""
Json = dict[str, Any]


def documents() -> dict[Path, str]:
    """Path to text."""
    schema = json.loads(SCHEMA.read_text(encoding="utf-8"))
    parts = schema["properties"]
    parts["settings"]["properties"] = settings_schema(Settings, OF_THE_CHART)
    parts["agent"]["properties"]["settings"]["properties"] = settings_schema(
        AgentSettings, OF_THE_CHART_FOR_AGENTS
    )
    return {
        CHART / "crds" / "esg-scheduler.io.yaml": crds_yaml(),
        SCHEMA: json.dumps(schema, indent=2, ensure_ascii=False) + "\n",
        PAGE: values_page(schema),
    }


def settings_schema(settings: type[BaseSettings], besides: set[str]) -> Json:
    """A schema for each setting that a user of the chart may set, by its name."""
    properties = settings.model_json_schema()["properties"]
    return {
        name: {key: value for key, value in told.items() if key not in {"title", "format"}}
        for name, told in properties.items()
        if name not in besides
    }


def values_page(schema: Json) -> str:
    """The page of all values: what each means, may be, and is where nobody sets it."""
    values = yaml.safe_load((CHART / "values.yaml").read_text(encoding="utf-8"))
    lines = [
        _HEAD.format(own=_names(OF_THE_CHART), own_of_agents=_names(OF_THE_CHART_FOR_AGENTS)),
        "| value | default | may be | meaning |",
        "|---|---|---|---|",
    ]
    for path, told, default in _leaves(schema, values):
        cells = (f"`{path}`", f"`{json.dumps(default)}`", _kind(told, schema), told["description"])
        lines.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    return "\n".join(lines) + "\n"


def _leaves(
    schema: Mapping[str, Any], values: Mapping[str, Any], prefix: str = ""
) -> Iterator[tuple[str, Json, Any]]:
    """Every value that is no mere group of others: its path, its schema, its default."""
    for name, told in schema["properties"].items():
        if name not in values:
            continue  # Helm's own
        path = f"{prefix}{name}"
        if told.get("properties") and name not in {"settings", "issuerRef"}:
            yield from _leaves(told, values[name], f"{path}.")
        else:
            yield path, told, values[name]


def _kind(told: Json, schema: Json) -> str:
    for each in told.get("allOf", []):
        name = each["$ref"].rpartition("/")[2]
        told = {**schema["definitions"][name], **told}
    if choices := told.get("enum"):
        return ", ".join(f"`{choice}`" for choice in choices)
    signs = {"minimum": "≥", "exclusiveMinimum": ">", "maximum": "≤"}
    bounds = [f"{sign} {told[key]}" for key, sign in signs.items() if key in told]
    return " ".join([told["type"], ", ".join(bounds)]).strip()


def _names(settings: set[str]) -> str:
    return ", ".join(f"`{name}`" for name in sorted(settings))


def main() -> None:
    """Write them."""
    for path, text in documents().items():
        path.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
