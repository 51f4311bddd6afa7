"""The values: what may be set, what is refused, and whether it arrives."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from pydantic_settings import BaseSettings

from helm.documents import (
    OF_THE_CHART,
    OF_THE_CHART_FOR_AGENTS,
    SCHEMA,
    documents,
)
from scheduler.agent.settings import AgentSettings
from scheduler.settings import Settings
from tests.chart.rendering import (
    CHART,
    EVERYTHING,
    Json,
    RefusedError,
    containers,
    environment,
    helm,
    render,
)

SCHEMA_OF_VALUES = json.loads(SCHEMA.read_text())
needs_helm = pytest.mark.usefixtures("helm_is_there")
# Objects whose content is Kubernetes' own, and is left to the API server.
OPEN = {"kubernetes"}


def resolved(schema: Json) -> Json:
    for each in [schema, *schema.get("allOf", [])]:
        if "$ref" in each:
            name = each["$ref"].rpartition("/")[2]
            return {**SCHEMA_OF_VALUES["definitions"][name], **schema}
    return schema


def groups(schema: Json, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Json]]:
    """Every object of the schema that has keys of its own, and where it is."""
    schema = resolved(schema)
    if "properties" in schema:
        yield path, schema
    for name, each in schema.get("properties", {}).items():
        yield from groups(each, (*path, name))


def at(values: Json, path: tuple[str, ...]) -> Json:
    for name in path:
        values = values.setdefault(name, {})
    return values


@needs_helm
@pytest.mark.parametrize("values", [[], [EVERYTHING]], ids=["defaults", "everything"])
def test_the_chart_is_clean(values: list[Path]) -> None:
    """Helm's own linter finds nothing, and warnings count."""
    flags = [flag for path in values for flag in ("--values", str(path))]
    assert "0 chart(s) failed" in helm("lint", "--strict", str(CHART), *flags)


@needs_helm
def test_a_key_that_is_not_known_is_refused_wherever_it_stands(tmp_path: Path) -> None:
    """A slip in a name must not pass as a setting that does nothing."""
    values: Json = {}
    paths = [path for path, _ in groups(SCHEMA_OF_VALUES) if path != ("global",)]
    for path in paths:
        at(values, path)["slip"] = 1
    (tmp_path / "slips.yaml").write_text(yaml.safe_dump(values))
    with pytest.raises(RefusedError) as told:
        render(tmp_path / "slips.yaml")
    for path in paths:
        place = f"'/{'/'.join(path)}'" if path else "''"
        assert f"at {place}: additional properties 'slip' not allowed" in str(told.value)


def test_every_group_says_whether_it_is_closed() -> None:
    """All are, but those that are Kubernetes' own."""

    def unsaid(schema: Any, path: str) -> Iterator[str]:
        if isinstance(schema, list):
            for number, each in enumerate(schema):
                yield from unsaid(each, f"{path}/{number}")
        if not isinstance(schema, dict):
            return
        if schema.get("type") == "object" and schema.get("additionalProperties") in (None, True):
            yield path
        for name, each in schema.items():
            if name != "default":
                yield from unsaid(each, f"{path}/{name}" if path else name)

    definitions = [f"definitions/{name}" for name in OPEN]
    assert list(unsaid({**SCHEMA_OF_VALUES, "additionalProperties": False}, "")) == definitions


def test_schema_and_defaults_have_the_same_keys() -> None:
    """What has a default is described, and what is described has a default."""
    defaults = yaml.safe_load((CHART / "values.yaml").read_text())

    def differ(schema: Json, values: Json, path: tuple[str, ...]) -> Iterator[str]:
        schema = resolved(schema)
        for name in schema["properties"].keys() ^ values.keys():
            yield ".".join((*path, name))
        for name, each in schema["properties"].items():
            told = resolved(each)
            filled = isinstance(values.get(name), dict) and values[name]
            if "properties" in told and filled and set(values[name]) <= set(told["properties"]):
                yield from differ(told, values[name], (*path, name))

    groups_of_their_own = {"global"}
    assert set(differ(SCHEMA_OF_VALUES, defaults, ())) == groups_of_their_own


def test_every_value_is_described() -> None:
    """The page of values has a meaning for each, and each setting keeps its own."""
    for path, group in groups(SCHEMA_OF_VALUES):
        if path and path[-1] in {"affinity", "resources"}:
            continue
        for name, each in group["properties"].items():
            told = resolved(each)
            is_group = "properties" in told and name not in {"settings", "affinity", "resources"}
            assert told.get("description") or is_group, (*path, name)


def test_what_is_made_from_the_code_is_as_the_code_says() -> None:
    """CRDs, the schema's settings and the page of values are what `make documents` would write."""
    for path, text in documents().items():
        assert path.read_text(encoding="utf-8") == text, f"{path}: run `make documents`"


@needs_helm
@pytest.mark.parametrize(
    ("settings", "prefix", "of_the_chart", "container"),
    [
        (Settings, "ESG_", OF_THE_CHART, "Deployment/extender"),
        (AgentSettings, "ESG_AGENT_", OF_THE_CHART_FOR_AGENTS, "DaemonSet/agent"),
        (AgentSettings, "ESG_AGENT_", OF_THE_CHART_FOR_AGENTS, "DaemonSet/mps"),
    ],
)
def test_every_setting_arrives_as_it_was_set(
    settings: type[BaseSettings],
    prefix: str,
    of_the_chart: set[str],
    container: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Numbers, truths, texts and maps: what stands in the values is what the program reads."""
    wanted = settings(**NOT_DEFAULT[settings])
    changed = wanted.model_dump(mode="json", exclude_unset=True)
    allowed = set(settings.model_fields) - of_the_chart
    assert changed.keys() == allowed, "a setting is missing here"
    given = {"settings": changed} if settings is Settings else {"agent": {"settings": changed}}
    told = environment(dict(containers(render(**given)))[container])
    for name, value in told.items():
        monkeypatch.setenv(name, value)
    read = settings()
    assert {name: getattr(read, name) for name in allowed} == {
        name: getattr(wanted, name) for name in allowed
    }
    assert {f"{prefix}{name.upper()}" for name in allowed} <= told.keys()


@needs_helm
@pytest.mark.parametrize(
    "settings",
    [{name: "1"} for name in sorted(OF_THE_CHART)],
    ids=lambda settings: next(iter(settings)),
)
def test_what_the_chart_sets_itself_is_no_value(settings: Json) -> None:
    """Its probes, Services and certificates rely on it."""
    with pytest.raises(RefusedError, match="not allowed"):
        render(settings=settings)


@needs_helm
@pytest.mark.parametrize(
    "given",
    [
        {"settings": {"policy": "cheapest"}},
        {"settings": {"margin_ratio": 2}},
        {"settings": {"candidates": "five"}},
        {"scheduler": {"replicas": 0}},
        {"webhook": {"failurePolicy": "fail"}},
        {"image": {"digest": "sha256:12"}},
        {"mps": {"root": "run/mps"}},
        {"agent": {"settings": {"read_every_s": 60}}},
        {"scheduler": {"name": "default-scheduler"}},
        {"networkPolicy": {"apiServerPorts": []}},
        {"webhook": {"certificateDays": 1_000_000}},
        *(
            {"scheduler": {"kubeScheduler": {"extraArgs": [flag]}}}
            for flag in (
                "--config=/mine",
                "--leader-elect=false",
                "--leader-elect",
                "--bind-address=::1",
                "--leader-elect-resource-name=mine",
                "--secure-port=0",
                "--secure_port=0",
                "--write-config-to=/tmp/it",
            )
        ),
    ],
    ids=json.dumps,
)
def test_what_cannot_work_is_refused_before_it_is_installed(given: Json) -> None:
    """The schema has the bounds of the settings, and of the chart's own values."""
    with pytest.raises(RefusedError, match="don't meet the specifications of the schema"):
        render(**given)


@needs_helm
def test_flags_that_touch_nothing_of_the_chart_s_are_let_through() -> None:
    """A refusal by the beginning of a name would take others with it."""
    flags = ["--v=4", "--configure-cloud=1", "--bind-address-of=a", "--feature-gates=A=true"]
    scheduler = {"kubeScheduler": {"extraArgs": flags}}
    command = dict(containers(render(scheduler=scheduler)))["Deployment/kube-scheduler"]["command"]
    assert command[-len(flags) :] == flags


@needs_helm
def test_function_pods_namespaces_are_told_of_too() -> None:
    """After the agents', the notes tell of theirs, which pods that mount of the host need."""
    notes = helm("install", "esg", str(CHART), "--dry-run=client", "--namespace", "serving")
    _, _, step = notes.partition("3. Create FunctionProfiles")
    assert (
        "kubectl label namespace <namespace> pod-security.kubernetes.io/enforce=privileged" in step
    )


NOT_DEFAULT: dict[type[BaseSettings], Json] = {
    Settings: {
        "health_host": "::",
        "body_max_mib": 32,
        "log_level": "debug",
        "log_json": True,
        "webhook_host": "::",
        "mps_uid": 1000,
        "ceiling_headroom_ratio": 0.25,
        "vcpu_hour_dollars": 0.05,
        "gpu_hour_dollars": 3,
        "gpu_hour_dollars_of": {"Tesla T4": 0.35, "a \"model\" of 40 % 'more'": 1},
        "policy": "esg",
        "group_size": 4,
        "latency": "p95",
        "candidates": 7,
        "on_lost_slo": "cheapest",
        "margin_ratio": 0.1,
        "cold_start": True,
        "network_mib_per_s": 1250.5,
        "expansions_max": 1_000_000,
        "placement": "spread",
        "filter_nodes_max": 0,
        "gpu_percent_max": 150,
        "gpu_clients_max": 40,
        "server_context_mib": 2048,
        "api_timeout_s": 2.5,
        "assumed_ttl_s": 100,
        "stale_after_s": 1e6,
        "abandoned_after_s": 1200,
        "keep_alive_s": 60,
    },
    AgentSettings: {
        "host": "::",
        "log_level": "warning",
        "log_json": True,
        "read_every_s": 1.5,
        "nvml_silent_after_s": 10,
        "nvml_restart_after_s": 90,
        "forget_after_s": 1e7,
        "xids_ignored": "13,31",
        "ecc_uncorrected_max": 2,
        "mps_silent_after_s": 7,
        "mps_control": "/usr/bin/nvidia-cuda-mps-control",
        "mps_exclusive": False,
        "mps_multiuser": True,
        "mps_own_shm": False,
        "mps_check_every_s": 1,
        "mps_ask_timeout_s": 4,
        "mps_fault_grace_s": 20,
        "mps_stop_s": 60,
    },
}
