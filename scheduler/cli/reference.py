"""``esg reference``: the reference pages, made from the code so that they cannot drift from it."""

from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any, get_args, get_origin

import typer
from prometheus_client.core import CounterMetricFamily
from pydantic.fields import FieldInfo
from pydantic_settings import BaseSettings

from scheduler.agent.metrics import SERIES
from scheduler.agent.settings import AgentSettings
from scheduler.metrics import GPU_SERIES, Metrics
from scheduler.model.documents import (
    FunctionProfileSpec,
    GpuProfile,
    ProfiledConfiguration,
    Slo,
    Stage,
    WorkflowSpec,
)
from scheduler.settings import Settings

_MADE = "<!-- Made by `make documents` from the code; change it there. -->\n\n"


def reference(
    out: Annotated[Path, typer.Option(help="folder to write to; it is made if it is not there")],
) -> None:
    """Write the reference pages: settings, metrics, documents."""
    out.mkdir(parents=True, exist_ok=True)
    for name, text in reference_pages().items():
        (out / name).write_text(text, encoding="utf-8")
        typer.echo(str(out / name))


def reference_pages() -> dict[str, str]:
    """File name to Markdown."""
    return {"settings.md": _settings(), "metrics.md": _metrics(), "documents.md": _documents()}


def _settings() -> str:
    return (
        f"# Settings\n\n{_MADE}Environment variables of `esg serve`.\n\n"
        + _variables(Settings, "ESG_")
        + "\n## The node agent\n\nEnvironment variables of `esg agent` and `esg mps`.\n\n"
        + _variables(AgentSettings, "ESG_AGENT_")
    )


def _variables(settings: type[BaseSettings], prefix: str) -> str:
    rows = (
        (
            f"`{prefix}{name.upper()}`",
            f"`{_default(field)}`",
            _kind(field.annotation),
            field.description,
        )
        for name, field in settings.model_fields.items()
    )
    return _table(("variable", "default", "values", "meaning"), rows)


def _metrics() -> str:
    families = list(Metrics().registry.collect())
    rows = [
        (
            f"`{_exposed(family.name, family.type)}`",
            family.type,
            ", ".join(f"`{label}`" for label in _labels(family.name)) or "",
            family.documentation,
        )
        for family in families
    ]
    rows += [(f"`{name}`", "gauge", "`node`, `gpu`", text) for name, text in GPU_SERIES.items()]
    of_the_agent = [
        (
            f"`{name}`",
            "counter" if series.kind is CounterMetricFamily else "gauge",
            ", ".join(f"`{label}`" for label in series.labels),
            series.text,
        )
        for name, series in SERIES.items()
    ]
    head = ("series", "type", "labels", "meaning")
    return (
        f"# Metrics\n\n{_MADE}What `GET /metrics` of `esg serve` exposes.\n\n"
        + _table(head, sorted(rows))
        + "\n## The node agent\n\nWhat `GET /metrics` of `esg agent` exposes.\n\n"
        + _table(head, sorted(of_the_agent))
    )


def _documents() -> str:
    parts = [f"# Documents\n\n{_MADE}Group `esg-scheduler.io`, version `v1alpha1`.\n"]
    for title, models in (
        ("Workflow (namespaced)", (WorkflowSpec, Slo, Stage)),
        (
            "FunctionProfile (cluster-wide)",
            (FunctionProfileSpec, GpuProfile, ProfiledConfiguration),
        ),
    ):
        parts.append(f"\n## {title}\n")
        for model in models:
            rows = (
                (
                    f"`{field.alias or name}`",
                    "required" if field.is_required() else f"`{_default(field)}`",
                    _bounds(field),
                    field.description or "",
                )
                for name, field in model.model_fields.items()
            )
            doc = (model.__doc__ or "").splitlines()[0]
            parts.append(f"\n### {model.__name__}\n\n{doc}\n\n")
            parts.append(_table(("field", "default", "bounds", "meaning"), rows))
    return "".join(parts)


def _table(head: tuple[str, ...], rows: Iterable[tuple[Any, ...]]) -> str:
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    for row in rows:
        cells = ("" if cell is None else str(cell).replace("|", "\\|") for cell in row)
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def _default(field: FieldInfo) -> str:
    default = field.get_default(call_default_factory=True, validated_data={})
    return "unset" if default is None else str(default) if default != () else "none"


def _bounds(field: FieldInfo) -> str:
    signs = {"gt": ">", "ge": "≥", "lt": "<", "le": "≤"}
    return ", ".join(
        f"{sign} {getattr(rule, name):g}"
        for rule in field.metadata
        for name, sign in signs.items()
        if getattr(rule, name, None) is not None
    )


def _kind(annotation: Any) -> str:
    if get_origin(annotation) is dict:
        return "JSON object"
    choices = get_args(annotation)
    if choices and all(isinstance(choice, str) for choice in choices):
        return ", ".join(f"`{choice}`" for choice in choices)
    plain = [choice for choice in choices if choice is not type(None)] or [annotation]
    return ", ".join(getattr(kind, "__name__", str(kind)) for kind in plain)


def _exposed(name: str, kind: str) -> str:
    return {"counter": f"{name}_total", "info": f"{name}_info"}.get(kind, name)


def _labels(name: str) -> tuple[str, ...]:
    for collector in vars(Metrics()).values():
        if getattr(collector, "_name", None) == name:
            labels: tuple[str, ...] = getattr(collector, "_labelnames", ())
            return labels
    return ("namespace", "workflow") if name == "esg_workflow_duration_seconds" else ()
