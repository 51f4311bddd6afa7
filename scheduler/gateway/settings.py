"""Settings of ``esg gateway``: environment variables ``ESG_GATEWAY_…``, unit, default.

Prices, planning, logs and the health server are those of `scheduler.settings`.
"""

from pathlib import Path
from typing import Literal, Self

from pydantic import Field, model_validator
from pydantic_settings import BaseSettings, SettingsConfigDict

from scheduler.model.names import LABEL_GATEWAY_GROUP


class GatewaySettings(BaseSettings):
    """Settings of the gateway."""

    model_config = SettingsConfigDict(env_prefix="ESG_GATEWAY_", frozen=True, extra="ignore")

    host: str = Field("::", description="address of requests; `::`: all, IPv4 and IPv6")
    port: int = Field(
        8081, ge=0, le=65535, description="port of requests over HTTP; 0: any free port"
    )
    grpc_port: int | None = Field(
        None,
        ge=0,
        le=65535,
        description="port of requests over gRPC; 0: any free port; unset: no gRPC",
    )
    tls_cert: Path | None = Field(
        None, description="file with the certificate chain for clients, PEM; unset: no TLS"
    )
    tls_key: Path | None = Field(
        None, description="file with the private key of that certificate, PEM"
    )
    namespace: str = Field(
        "",
        max_length=63,
        description="the only namespace whose Workflows, FunctionServers and pods are served; "
        "empty: all",
    )
    group: str = Field(
        "",
        max_length=40,
        pattern=r"^([a-z0-9]([-a-z0-9]*[a-z0-9])?)?$",
        description="the only Workflows, FunctionServers and pods that are served: those with this "
        "value of the label esg-scheduler.io/gateway-group; empty: those without the label. "
        "Gateways of several groups divide one namespace, and each has its own pool in it",
    )
    default_namespace: str = Field(
        "default", max_length=63, description="namespace of a request whose path names none"
    )
    memory_max_mib: int = Field(
        1024,
        ge=1,
        description="bodies of all requests in progress, MiB; above it a request is refused with "
        "429 before its body is read",
    )
    body_max_mib: int = Field(
        64, ge=1, le=2048, description="largest body of a request, MiB; a larger one gets 413"
    )
    json_max_mib: int = Field(
        1,
        ge=1,
        le=1024,
        description="largest JSON part of a body, MiB; it has 262,144 values for each MiB at most. "
        "Larger ones take the time of other requests: tensors are better sent as binary data",
    )
    rows_max: int = Field(
        10_000,
        ge=1,
        description="rows that may wait in front of a request; with more of them it is refused "
        "with 429 before its body is read",
    )
    connections_max: int = Field(
        10_000,
        ge=1,
        description="connections of clients over HTTP at a time, and calls over gRPC",
    )
    grpc_connections_max: int = Field(
        1_000,
        ge=1,
        description="connections of clients over gRPC at a time; each has up to 256 calls in "
        "progress",
    )
    pods: bool = Field(
        False,
        description="create and end the pods of FunctionServers with a template; it needs the "
        "rights to create and delete pods in their namespaces",
    )
    pod_room_s: float = Field(
        30.0,
        gt=0,
        description="time for kube-scheduler to place such a pod, s; then another share is tried",
    )
    pod_start_s: float = Field(
        900.0,
        gt=0,
        description="time from there until its model is ready, s, and for which it may not be "
        "ready afterwards; then the pod is replaced",
    )
    share: Literal["pooled", "reserved"] = Field(
        "reserved",
        description="share of the pods of a template that names none. pooled: they hold percent of "
        "a GPU only while a batch runs, in slices that the gateway's holders hold for the "
        "pool; reserved: each holds its own all the time",
    )
    pool_gpus: int = Field(
        0,
        ge=0,
        description="whole GPUs of each model that the pool of each namespace holds at any load, "
        "as long as one of its functions has a pod, so that a burst finds warm processes on them",
    )
    holder_image: str = Field(
        "",
        description="image of holders, with a shell and `sleep`; empty: the gateway creates no "
        "slices, and all pods are reserved",
    )
    cpus_per_gpu: float | None = Field(
        None,
        gt=0,
        description="vCPUs of a GPU node for each of its GPUs: a pod counts as the larger part of "
        "the node that it takes, so that no GPU is left without vCPUs; unset: as the nodes have",
    )
    trust_arrival: bool = Field(
        False,
        description="count the SLO of a request from the time in its header `Esg-Arrival-Ms`; only "
        "if all requests come through proxies that set or remove it, because an older request is "
        "served earlier. By default the header is ignored",
    )
    access: bool = Field(
        False,
        description="answer requests only with a Kubernetes token whose user may `create` "
        "`workflows/infer` (group esg-scheduler.io) in the Workflow's namespace",
    )
    access_issuers: str = Field(
        "",
        description="further issuers (`iss`) of tokens that the API server accepts, such as that "
        "of its OIDC users, by commas; `*`: any. By default a token that is no JWT of the "
        "cluster's service accounts, for the gateway's own audience, is refused without asking "
        "the API server",
    )
    peers: str = Field(
        "",
        description="label selector of the pods of all replicas, which divide the namespaces among "
        "themselves by Leases; empty: this is the only replica",
    )
    pod_name: str = Field("", description="name of this pod; needed with peers")
    pod_namespace: str = Field(
        "", max_length=63, description="namespace of this pod and of the Leases; needed with peers"
    )
    trace_max_mib: int = Field(
        4,
        ge=1,
        le=1024,
        description="stages of late requests, and of a sample of the others, that "
        "`/v1/requests/ID` shows, MiB; the oldest ones leave",
    )
    trace_every: int = Field(
        100, ge=0, description="number of requests in time of which one is kept there; 0: none"
    )
    otlp_url: str = Field(
        "",
        description="receiver of OpenTelemetry spans of these requests, and of all that a client "
        "traces, over HTTP, as `http://collector:4318/v1/traces`; empty: none. "
        "`OTEL_EXPORTER_OTLP_…` variables set headers, timeouts and certificates",
    )
    extender_url: str = Field(
        "",
        description="health port of the extender, whose GPUs and pending pods the live page shows, "
        "as `http://esg-scheduler:8890`; empty: the page shows none",
    )
    drain_s: float = Field(
        30.0,
        ge=0,
        description="time after SIGTERM for requests in progress, s; new ones are refused",
    )

    @model_validator(mode="after")
    def _tls_has_both_files(self) -> Self:
        if (self.tls_cert is None) != (self.tls_key is None):
            raise ValueError("tls_cert and tls_key must both be set, or neither")
        return self

    @property
    def group_selector(self) -> str:
        """Label selector of what the gateways of its group serve; no object is of two groups."""
        label = LABEL_GATEWAY_GROUP
        return f"{label}={self.group}" if self.group else f"!{label}"

    @property
    def further_issuers(self) -> frozenset[str]:
        """Issuers of ``access_issuers``."""
        return frozenset(filter(None, map(str.strip, self.access_issuers.split(","))))

    @model_validator(mode="after")
    def _peers_know_this_pod(self) -> Self:
        if self.peers and not (self.pod_name and self.pod_namespace):
            raise ValueError("peers needs pod_name and pod_namespace; set both")
        return self
