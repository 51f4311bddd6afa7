"""Values: their schema, the values it refuses, and their way to the programs."""

import json
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml
from pydantic_settings import BaseSettings

from helm.documents import (
    OF_THE_CHART,
    OF_THE_CHART_FOR_AGENTS,
    OF_THE_CHART_FOR_GATEWAYS,
    SCHEMA,
    VALUES,
    documents,
    value_comments,
)
from scheduler.agent.settings import AgentSettings
from scheduler.gateway.settings import GatewaySettings
from scheduler.settings import Settings
from tests.chart.rendering import (
    CHART,
    EVERYTHING,
    Json,
    RefusedError,
    containers,
    environment,
    helm,
    one,
    render,
)

SCHEMA_OF_VALUES = json.loads(SCHEMA.read_text())
needs_helm = pytest.mark.usefixtures("helm_built")
# Objects of Kubernetes, which the API server validates.
OPEN = {"kubernetes"}


def resolved(schema: Json) -> Json:
    for part in [schema, *schema.get("allOf", [])]:
        if "$ref" in part:
            name = part["$ref"].rpartition("/")[2]
            return {**SCHEMA_OF_VALUES["definitions"][name], **schema}
    return schema


def groups(schema: Json, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Json]]:
    """Yield path and schema of every object of the schema that defines keys."""
    schema = resolved(schema)
    if "properties" in schema:
        yield path, schema
    for name, field in schema.get("properties", {}).items():
        yield from groups(field, (*path, name))


def at(values: Json, path: tuple[str, ...]) -> Json:
    for name in path:
        values = values.setdefault(name, {})
    return values


@pytest.mark.slow
@needs_helm
@pytest.mark.parametrize("values", [[], [EVERYTHING]], ids=["defaults", "everything"])
def test_helm_lint_passes(values: list[Path]) -> None:
    """Helm's linter has no errors and no warnings."""
    flags = [flag for path in values for flag in ("--values", str(path))]
    assert "0 chart(s) failed" in helm("lint", "--strict", str(CHART), *flags)


@needs_helm
def test_an_unknown_key_is_refused_in_every_group(tmp_path: Path) -> None:
    """A misspelt key must not be ignored."""
    values: Json = {}
    paths = [path for path, _ in groups(SCHEMA_OF_VALUES) if path != ("global",)]
    for path in paths:
        at(values, path)["misspelt"] = 1
    (tmp_path / "misspelt.yaml").write_text(yaml.safe_dump(values))
    with pytest.raises(RefusedError) as refused:
        render(tmp_path / "misspelt.yaml")
    for path in paths:
        place = f"'/{'/'.join(path)}'" if path else "''"
        assert f"at {place}: additional properties 'misspelt' not allowed" in str(refused.value)


def test_every_group_is_closed() -> None:
    """Only objects of Kubernetes may have keys that the schema does not list."""

    def open_objects(schema: Any, path: str) -> Iterator[str]:
        if isinstance(schema, list):
            for number, item in enumerate(schema):
                yield from open_objects(item, f"{path}/{number}")
        if not isinstance(schema, dict):
            return
        if schema.get("type") == "object" and schema.get("additionalProperties") in (None, True):
            yield path
        for name, part in schema.items():
            if name != "default":
                yield from open_objects(part, f"{path}/{name}" if path else name)

    definitions = [f"definitions/{name}" for name in OPEN]
    assert (
        list(open_objects({**SCHEMA_OF_VALUES, "additionalProperties": False}, "")) == definitions
    )


def test_schema_and_defaults_have_the_same_keys() -> None:
    """Every value with a default has a schema, and the reverse."""
    defaults = yaml.safe_load((CHART / "values.yaml").read_text())

    def differences(schema: Json, values: Json, path: tuple[str, ...]) -> Iterator[str]:
        schema = resolved(schema)
        for name in schema["properties"].keys() ^ values.keys():
            yield ".".join((*path, name))
        for name, field in schema["properties"].items():
            group = resolved(field)
            filled = isinstance(values.get(name), dict) and values[name]
            if "properties" in group and filled and set(values[name]) <= set(group["properties"]):
                yield from differences(group, values[name], (*path, name))

    assert set(differences(SCHEMA_OF_VALUES, defaults, ())) == set()


def test_every_value_has_a_comment() -> None:
    """`helm show values` says above each value what it is: `# -- TEXT`, as helm-docs reads it."""

    def leaves(values: Json, schema: Json, path: tuple[str, ...] = ()) -> Iterator[str]:
        for name, value in values.items():
            part = schema["properties"][name]
            if "properties" in part and name not in {"settings", "issuerRef"}:
                yield from leaves(value, part, (*path, name))
            else:
                yield ".".join((*path, name))

    text = VALUES.read_text(encoding="utf-8")
    assert value_comments(text).keys() == set(leaves(yaml.safe_load(text), SCHEMA_OF_VALUES))


def test_the_comment_of_a_value_may_have_several_lines() -> None:
    """A comment belongs to the key below it; other comments are no descriptions."""
    text = "# heading\na:\n  # -- one\n  # two\n  b: 1\n  # not this\n  c: 2\n# -- three\nd: {}\n"
    assert value_comments(text) == {"a.b": "one two", "d": "three"}


def test_every_value_is_described() -> None:
    """Every value has a description for the page of values; settings keep those of the code."""
    for path, group in groups(SCHEMA_OF_VALUES):
        if path and path[-1] in {"affinity", "resources"}:
            continue
        for name, field in group["properties"].items():
            value = resolved(field)
            is_group = "properties" in value and name not in {"settings", "affinity", "resources"}
            assert value.get("description") or is_group, (*path, name)


def test_generated_files_are_current() -> None:
    """CRDs, the schema's settings and the page of values are as `make documents` writes them."""
    for path, text in documents().items():
        assert path.read_text(encoding="utf-8") == text, f"{path}: run `make documents`"


@needs_helm
@pytest.mark.parametrize(
    ("settings", "prefix", "set_by_the_chart", "container"),
    [
        (Settings, "ESG_", OF_THE_CHART, "Deployment/extender"),
        (Settings, "ESG_", OF_THE_CHART, "Deployment/webhook"),
        (GatewaySettings, "ESG_GATEWAY_", OF_THE_CHART_FOR_GATEWAYS, "Deployment/gateway"),
        (AgentSettings, "ESG_AGENT_", OF_THE_CHART_FOR_AGENTS, "DaemonSet/agent"),
        (AgentSettings, "ESG_AGENT_", OF_THE_CHART_FOR_AGENTS, "DaemonSet/mps"),
    ],
)
def test_every_setting_reaches_its_program(
    settings: type[BaseSettings],
    prefix: str,
    set_by_the_chart: set[str],
    container: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Numbers, booleans, strings and maps: the program reads the value that was set."""
    expected = settings(**NOT_DEFAULT[settings])
    changed = expected.model_dump(mode="json", exclude_unset=True)
    allowed = set(settings.model_fields) - set_by_the_chart
    assert changed.keys() == allowed, "a setting is missing here"
    values: Json = {
        Settings: {"settings": changed},
        GatewaySettings: {"gateway": {"settings": changed}},
        AgentSettings: {"agent": {"settings": changed}},
    }[settings]
    variables = environment(dict(containers(render(**values)))[container])
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    for name in ("ESG_GATEWAY_POD_NAME", "ESG_GATEWAY_POD_NAMESPACE"):  # of the downward API
        monkeypatch.setenv(name, "any")
    read = settings()
    assert {name: getattr(read, name) for name in allowed} == {
        name: getattr(expected, name) for name in allowed
    }
    assert {f"{prefix}{name.upper()}" for name in allowed} <= variables.keys()


@pytest.mark.slow
@needs_helm
@pytest.mark.parametrize(
    "settings",
    [{name: "1"} for name in sorted(OF_THE_CHART)],
    ids=lambda settings: next(iter(settings)),
)
def test_settings_that_the_chart_sets_are_no_values(settings: Json) -> None:
    """Probes, Services and certificates of the chart depend on them."""
    with pytest.raises(RefusedError, match="not allowed"):
        render(settings=settings)


@pytest.mark.slow
@needs_helm
@pytest.mark.parametrize(
    "values",
    [
        {"settings": {"policy": "cheapest"}},
        {"settings": {"margin_ratio": 2}},
        {"settings": {"candidates": "five"}},
        {"scheduler": {"replicas": 0}},
        {"webhook": {"replicas": 0}},
        {"webhook": {"failurePolicy": "fail"}},
        {"image": {"digest": "sha256:12"}},
        {"mps": {"root": "run/mps"}},
        {"agent": {"settings": {"read_every_s": 60}}},
        {"scheduler": {"name": "default-scheduler"}},
        {"networkPolicy": {"apiServerPorts": []}},
        {"webhook": {"certificateDays": 1_000_000}},
        {"gateway": {"groups": ["metrics"]}},
        {"gateway": {"groups": ["a-metrics"]}},
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
def test_invalid_values_are_refused_before_installation(values: Json) -> None:
    """The schema has the ranges of the settings and of the chart's own values."""
    with pytest.raises(RefusedError, match="don't meet the specifications of the schema"):
        render(**values)


@pytest.mark.slow
@needs_helm
def test_other_flags_of_kube_scheduler_are_allowed() -> None:
    """Flags that only start like those of the chart are not refused."""
    flags = ["--v=4", "--configure-cloud=1", "--bind-address-of=a", "--feature-gates=A=true"]
    scheduler = {"kubeScheduler": {"extraArgs": flags}}
    command = dict(containers(render(scheduler=scheduler)))["Deployment/kube-scheduler"]["command"]
    assert command[-len(flags) :] == flags


@cache
def notes(*values: str) -> str:
    """Return what `helm install` prints after the objects."""
    flags = [flag for value in values for flag in ("--set", value)]
    command = ("install", "esg", str(CHART), "--dry-run=client", "--namespace", "serving", *flags)
    return helm(*command).partition("NOTES:")[2]


@pytest.mark.slow
@needs_helm
@pytest.mark.parametrize(
    ("tls_secret", "scheme", "curl"),
    [("", "http", "curl http"), ("gateway-tls", "https", "curl --insecure https")],
)
def test_the_notes_show_how_to_call_the_gateway(tls_secret: str, scheme: str, curl: str) -> None:
    """The address in the cluster, and a request through a forwarded port of its Service."""
    text = notes(f"gateway.tlsSecretName={tls_secret}")
    gateway = {"tlsSecretName": tls_secret} if tls_secret else {}
    service = one(render(gateway=gateway), "Service", "-gateway")
    name, namespace = service["metadata"]["name"], service["metadata"]["namespace"]
    assert f"{scheme}://{name}.{namespace}/<namespace>/v2/models/<workflow>/infer" in text
    assert f"port-forward service/{name} 8081:{service['spec']['ports'][0]['name']}\n" in text
    assert f"{curl}://127.0.0.1:8081/<namespace>/v2/models/<workflow>/infer" in text


@pytest.mark.slow
@needs_helm
def test_the_notes_name_the_grpc_address_where_there_is_one() -> None:
    """Without the gateway there is no address at all."""
    assert "-gateway.serving:8082 (gRPC" in notes("gateway.grpc=true")
    assert "8082" not in notes()
    assert "Open Inference Protocol" not in notes("gateway.enabled=false")


@needs_helm
def test_the_notes_name_pod_security_of_function_namespaces() -> None:
    """Function pods mount a folder of the host, which their namespace must allow."""
    _, _, step = notes().partition("3. Create FunctionProfiles")
    assert (
        "kubectl label namespace <namespace> pod-security.kubernetes.io/enforce=privileged" in step
    )


NOT_DEFAULT: dict[type[BaseSettings], Json] = {
    GatewaySettings: {
        "default_namespace": "vision",
        "memory_max_mib": 2048,
        "body_max_mib": 128,
        "json_max_mib": 16,
        "trust_arrival": True,
        "rows_max": 1_000_000,
        "connections_max": 100,
        "grpc_connections_max": 50,
        "trace_max_mib": 16,
        "trace_every": 1000,
        "otlp_url": "http://collector:4318/v1/traces",
        "drain_s": 12.5,
        "cpus_per_gpu": 16.5,
        "pool_gpus": 3,
        "access": True,
        "access_issuers": "https://login.example.com",
        "pod_room_s": 90.5,
        "pod_start_s": 600.5,
        "share": "pooled",
    },
    Settings: {
        "health_host": "127.0.0.1",
        "page": True,
        "body_max_mib": 32,
        "log_level": "debug",
        "log_json": True,
        "webhook_host": "127.0.0.1",
        "mps_uid": 1000,
        "check_pull_secrets": "one,two",
        "runtime_class_name": "nvidia",
        "cdi_kind": "nvidia.com/gpu",
        "ceiling_headroom_ratio": 0.25,
        "vcpu_hour_dollars": 0.05,
        "gpu_hour_dollars": 3,
        "gpu_hour_dollars_of": {"Tesla T4": 0.35, "a \"model\" of 40 % 'more'": 1},
        "policy": "esg",
        "group_size": 4,
        "stages_max": 12,
        "latency": "p95",
        "candidates": 7,
        "on_lost_slo": "cheapest",
        "margin_ratio": 0.2,
        "spread_ratio": 0.1,
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
        "deletion_grace_max_s": 65,
        "stale_after_s": 1e6,
        "abandoned_after_s": 1200,
        "keep_alive_s": 60,
    },
    AgentSettings: {
        "cdi_folder": "/run/cdi",
        "cdi_kind": "nvidia.com/gpu",
        "host": "127.0.0.1",
        "log_level": "warning",
        "log_json": True,
        "read_every_s": 1.5,
        "nvml_silent_after_s": 10,
        "nvml_restart_after_s": 90,
        "forget_after_s": 1e7,
        "xids_ignored": "13,31",
        "ecc_uncorrected_max": 2,
        "check_claims": False,
        "memory_tolerance_ratio": 0.2,
        "evict_after_s": 60,
        "mps_limits": False,
        "mps_silent_after_s": 7,
        "mps_control": "/usr/bin/nvidia-cuda-mps-control",
        "mps_exclusive": False,
        "mps_multiuser": True,
        "mps_own_shm": False,
        "mps_check_every_s": 1,
        "mps_ask_timeout_s": 4,
        "mps_fault_grace_s": 20,
        "mps_stop_s": 60,
        "mps_shm_mib": 512,
    },
}
