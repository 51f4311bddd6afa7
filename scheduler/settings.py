"""Settings of the service: environment variables ``ESG_…`` with unit, default and off value."""

from dataclasses import asdict
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, NonNegativeFloat, ValidationInfo, field_validator
from pydantic_settings import BaseSettings, SettingsConfigDict

from scheduler.model.documents import STAGES_MAX
from scheduler.model.names import CDI_KIND_PATTERN
from scheduler.model.plan import Prices
from scheduler.placement.options import Limits, PlacementPolicy
from scheduler.search.rules import EXPANSIONS_MAX, SPREAD_RATIO, Rules


class Settings(BaseSettings):
    """Settings of ``esg serve`` and ``esg webhook``.

    A command-line option of the same name overrides the variable.
    """

    model_config = SettingsConfigDict(env_prefix="ESG_", frozen=True, extra="ignore")

    # -- serving
    host: str = Field("127.0.0.1", description="address of the extender")
    port: int = Field(8888, ge=0, le=65535, description="port of the extender; 0: any free port")
    health_port: int | None = Field(
        None,
        ge=0,
        le=65535,
        description="port of the health and metrics server for probes and Prometheus (/metrics, "
        "/healthz and /readyz only); 0: any free port; unset: no such server",
    )
    page: bool = Field(
        False,
        description="serve the live page, read only, on the health port of gateway and extender: "
        "whoever reaches that port sees names of pods, nodes and functions",
    )
    health_host: str = Field(
        "::", description="address of the health and metrics server; `::`: all, IPv4 and IPv6"
    )
    body_max_mib: int = Field(
        4,
        ge=1,
        le=1024,
        description="largest request body that the extender accepts, MiB. Names of 15,000 nodes "
        "are 1 MiB; with nodeCacheCapable: false every call contains whole Node objects, some "
        "5 KiB each",
    )
    log_level: Literal["debug", "info", "warning", "error"] = Field(
        "info", description="lowest level that is logged"
    )
    log_json: bool = Field(False, description="write log lines as JSON; false: as text")

    # -- webhook
    webhook_port: int = Field(
        8443,
        ge=0,
        le=65535,
        description="port of the webhook (`esg webhook`), POST /mutate; 0: any free port",
    )
    webhook_host: str = Field("::", description="address of the webhook; `::`: all, IPv4 and IPv6")
    tls_cert: Path | None = Field(
        None, description="file with the webhook's certificate chain, PEM; required by the webhook"
    )
    tls_key: Path | None = Field(
        None, description="file with the private key of that certificate, PEM"
    )
    mps_root: str = Field(
        "/run/esg-scheduler/mps",
        pattern=r"^(/[A-Za-z0-9_][A-Za-z0-9._-]*)+$",
        description="host folder with one MPS pipe directory per GPU",
    )
    mps_uid: int = Field(
        1000,
        ge=0,
        le=2**31 - 1,
        description="user id set on the GPU container: an MPS server serves one user at a time, "
        "and lets root lift limits; 0: the container's user stays, and pods of another user than "
        "the GPU's other pods wait without end",
    )
    mps_check_image: str = Field(
        "",
        description="image of this project for an init container of function pods that runs esg "
        "mps check: a pod does not start if its limits are not enforced; needs ESG_MPS_UID; "
        "empty: no check",
    )
    check_pull_secrets: str = Field(
        "",
        pattern=r"^([a-z0-9]([-.a-z0-9]*[a-z0-9])?(,[a-z0-9]([-.a-z0-9]*[a-z0-9])?)*)?$",
        description="Secrets, separated by commas, to pull that image with; each namespace of "
        "function pods needs them. Empty: none",
    )
    runtime_class_name: str = Field(
        "",
        max_length=253,
        pattern=r"^([a-z0-9]([-.a-z0-9]*[a-z0-9])?)?$",
        description="runtimeClassName set on function pods that have none: `nvidia` where NVIDIA's "
        "runtime is not the nodes' default; empty: unchanged",
    )
    cdi_kind: str = Field(
        "",
        pattern=CDI_KIND_PATTERN,
        description="kind of the CDI devices that NVIDIA's container toolkit gives to pods by NRI, "
        "`nvidia.com/gpu`: the Binding names the pod's GPU in the annotation "
        "`nvidia.cdi.k8s.io/container.…`; empty: no annotation",
    )
    autoscaled: bool = Field(
        False,
        description="annotate function pods so that Karpenter and Cluster Autoscaler drain no node "
        "of theirs (`karpenter.sh/do-not-disrupt`, "
        "`cluster-autoscaler.kubernetes.io/safe-to-evict`); pods that have such an annotation keep "
        "it",
    )
    resource_claims: bool = Field(
        False,
        description="give function pods their GPU's MPS folders by a ResourceClaim, which the "
        "webhook names and the extender writes, and not by a hostPath volume; needs Kubernetes "
        "1.34, and agents with ESG_AGENT_KUBELET_ROOT",
    )
    scheduler_name: str = Field(
        "",
        max_length=253,
        description="schedulerName set on function pods that have none; empty: unchanged",
    )
    ceiling_headroom_ratio: float = Field(
        0.2,
        ge=0,
        lt=1,
        description="ratio of its slack that a pod may wait and still get a configuration that is "
        "fast enough; 0: ceilings are those of the cheapest configuration at admission",
    )

    # -- planning
    vcpu_hour_dollars: float = Field(0.034, ge=0, description="price of a vCPU, dollars per hour")
    gpu_hour_dollars: float = Field(
        4.69, ge=0, description="price of a whole GPU, dollars per hour"
    )
    gpu_hour_dollars_of: dict[str, NonNegativeFloat] = Field(
        default={},
        description="price by GPU model, dollars per hour, as JSON: "
        '`{"Tesla T4": 0.35}`; other models cost ESG_GPU_HOUR_DOLLARS',
    )
    policy: Literal["exact", "esg"] = Field(
        "exact",
        description="exact: plan all remaining stages at once; esg: as in the ESG paper, plan "
        "groups of stages, each with a part of the SLO",
    )
    group_size: int = Field(
        3, ge=1, le=32, description="maximum number of stages in a group; policy esg only"
    )
    latency: Literal["mean", "p95"] = Field(
        "mean",
        description="plan with mean latencies, or with 95th percentiles if the profile has them (a "
        "configuration without one has the largest ratio of p95 to mean of its function); the sum "
        "of percentiles exceeds the percentile of the sum, so a plan keeps less margin then",
    )
    candidates: int = Field(
        5,
        ge=1,
        le=64,
        description="K: number of configurations that are tried in order, for each GPU model and "
        "each start latency",
    )
    on_lost_slo: Literal["fastest", "cheapest"] = Field(
        "cheapest",
        description="configuration when none meets the SLO; fastest gives late requests whole "
        "GPUs, and a full cluster does not recover from that",
    )
    margin_ratio: float | None = Field(
        None,
        ge=0,
        le=1,
        description="margin that every plan keeps for stages that exceed their profile, as a ratio "
        "of the planned time; 0: no margin; unset: the margin that the workflow's "
        "`slo.objective` needs, by the spread of its functions' run times",
    )
    spread_ratio: float = Field(
        SPREAD_RATIO,
        ge=0,
        le=1,
        description="standard deviation / mean of the run times of functions whose profile has no "
        "p95Ms; 0: such functions always take the profiled time",
    )
    cold_start: bool = Field(
        False,
        description="count a function's coldStartMs against the slack on nodes that did not run it "
        "within ESG_KEEP_ALIVE_S; false suits pods whose model server is already loaded on the "
        "node",
    )
    network_mib_per_s: float | None = Field(
        None,
        ge=0.001,
        allow_inf_nan=False,
        description="bandwidth between nodes, MiB/s: transfer time of the outputMib of direct "
        "predecessors on other nodes counts against the slack, for one request because the batch "
        "is unknown before the plan; unset: transfers are not counted",
    )
    expansions_max: int = Field(
        EXPANSIONS_MAX,
        ge=1,
        le=1_000_000,
        description="states that one search of policy esg may expand; the plan states its distance "
        "from the optimum",
    )

    stages_max: int = Field(
        STAGES_MAX,
        ge=1,
        le=STAGES_MAX,
        description="maximum number of stages of a Workflow; a larger one is not used. Preparation "
        "and memory of a workflow grow with it",
    )

    # -- placement
    placement: PlacementPolicy = Field(
        "defrag",
        description="pack: the GPU with the least free share that fits; spread: the emptiest GPU; "
        "defrag: the GPU where placement adds least fragmentation for the current request mix",
    )
    filter_nodes_max: int = Field(
        1,
        ge=0,
        description="maximum number of nodes that filter returns, best first, for a pod without a "
        "preference of its own (preferred affinity, topology spread); 0: all feasible nodes. For a "
        "single node kube-scheduler neither scores nor calls prioritize. Set 0 if another extender "
        "filters after this one",
    )

    # -- limits of one GPU
    gpu_percent_max: int = Field(
        100, ge=1, le=1000, description="maximum sum of shares on one GPU, percent"
    )
    gpu_clients_max: int = Field(
        48, ge=1, le=60, description="maximum number of MPS clients on one GPU"
    )
    server_context_mib: int = Field(
        1024, ge=0, description="GPU memory reserved for the MPS server, MiB; 0: none"
    )

    # -- the cluster
    api_timeout_s: float = Field(
        3.0,
        gt=0,
        le=4.5,
        description="time limit of one bind call including its reads, s; kube-scheduler waits 5 s",
    )
    assumed_ttl_s: float = Field(
        10.0,
        gt=0,
        description="age at which a Binding that was answered, and that no watch has confirmed, is "
        "reconciled by reading the pod, s",
    )
    deletion_grace_max_s: float = Field(
        35.0,
        ge=0,
        description="longest time for which the share of a pod that vanished without an end that "
        "its kubelet reported stays reserved, s: its grace period and 5 s. An extender that starts "
        "binds no pods for that time after its first list, unless it is the first of all. 0: such "
        "a share is free at once",
    )
    owner_lease_namespace: str | None = Field(
        None,
        pattern=r"^([a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?)?$",
        description="namespace of the Lease that says which process of the extender binds pods; "
        "unset: that of the pod in which the process runs, none outside a pod; empty: none, so "
        "that no two processes may bind pods, not even one after the other",
    )
    stale_after_s: float = Field(
        300.0,
        gt=0,
        description="age of the cache at which the service is not ready, s; an idle watch "
        "receives a bookmark about once a minute",
    )

    # -- workflow requests
    abandoned_after_s: float = Field(
        600.0,
        gt=0,
        description="time without a pod after which a workflow request counts as dropped, s",
    )
    keep_alive_s: float = Field(
        600.0,
        gt=0,
        description="time that a node counts as warm for a function after its last pod, s",
    )

    @field_validator("mps_check_image")
    @classmethod
    def _as_the_functions_user(cls, image: str, info: ValidationInfo) -> str:
        if image and not info.data.get("mps_uid"):
            raise ValueError(
                "ESG_MPS_UID must not be 0: as a different user than the function's, the check "
                "would wait for an MPS server of its own"
            )
        return image

    @property
    def prices(self) -> Prices:
        """Prices for the search."""
        return Prices(self.vcpu_hour_dollars, self.gpu_hour_dollars, self.gpu_hour_dollars_of)

    @property
    def rules(self) -> Rules:
        """Rules of planning for the search."""
        return Rules(
            prices=self.prices,
            policy=self.policy,
            group_size=self.group_size,
            latency=self.latency,
            spread_ratio=self.spread_ratio,
            on_lost_slo=self.on_lost_slo,
            expansions_max=self.expansions_max,
        )

    @property
    def limits(self) -> Limits:
        """Limits of one GPU for the ledger and placement."""
        return Limits(self.gpu_percent_max, self.server_context_mib, self.gpu_clients_max)

    @property
    def simulated(self) -> dict[str, Any]:
        """Settings of planning and placement that a simulation takes over, as plain data."""
        return {
            "rules": asdict(self.rules),
            "limits": asdict(self.limits),
            "placement": self.placement,
            "candidates": self.candidates,
            "margin_ratio": self.margin_ratio,
        }
