"""Settings of the service: every one an environment variable ``ESG_…``, with unit and default."""

from pathlib import Path
from typing import Literal

from pydantic import Field, NonNegativeFloat, ValidationInfo, field_validator
from pydantic_settings import BaseSettings, SettingsConfigDict

from scheduler.model.plan import Prices
from scheduler.placement.options import FitPolicy, Limits
from scheduler.search.rules import EXPANSIONS_MAX, Rules


class Settings(BaseSettings):
    """What an operator can set; a command-line option of the same name wins."""

    model_config = SettingsConfigDict(env_prefix="ESG_", frozen=True, extra="ignore")

    # -- serving
    host: str = Field("127.0.0.1", description="address the extender listens on")
    port: int = Field(8888, ge=0, le=65535, description="its port; 0 takes a free one")
    observe_port: int | None = Field(
        None,
        ge=0,
        le=65535,
        description="a second port, of /metrics, /healthz and /readyz alone: for probes and "
        "Prometheus, while the extender's own is for kube-scheduler; unset: none",
    )
    observe_host: str = Field("0.0.0.0", description="address of that port")  # noqa: S104 - probes come from outside
    body_max_mib: int = Field(
        64,
        ge=1,
        le=1024,
        description="largest request body taken, MiB; with nodeCacheCapable: "
        "false every call carries whole Node objects",
    )
    log_level: Literal["debug", "info", "warning", "error"] = Field(
        "info", description="least level logged"
    )
    log_json: bool = Field(False, description="log lines as JSON instead of text")

    # -- webhook
    webhook_port: int | None = Field(
        None, ge=0, le=65535, description="port of POST /mutate; unset: no webhook"
    )
    webhook_host: str = Field("0.0.0.0", description="address the webhook listens on")  # noqa: S104 - the API server calls it
    tls_cert: Path | None = Field(None, description="the webhook's certificate chain, PEM")
    tls_key: Path | None = Field(None, description="the key to it, PEM")
    mps_root: str = Field(
        "/run/esg-scheduler/mps",
        pattern=r"^(/[A-Za-z0-9_][A-Za-z0-9._-]*)+$",
        description="host folder with one MPS pipe directory a GPU",
    )
    mps_uid: int | None = Field(
        None,
        ge=1,
        le=2**31 - 1,
        description="user that the GPU's container runs as: an MPS server serves one, or, as a "
        "-multiuser-server, lets a container that runs as root lift limits; unset: left as it is",
    )
    mps_check_image: str = Field(
        "",
        description="this project's image, for an init container of function pods: it runs esg mps "
        "check, and no pod starts whose limits are not in force; wants ESG_MPS_UID; empty: none",
    )
    scheduler_name: str = Field(
        "",
        max_length=253,
        description="schedulerName put on function pods that name none; empty: left as it is",
    )
    ceiling_headroom_ratio: float = Field(
        0.2,
        ge=0,
        lt=1,
        description="part of its slack that a pod may wait and still be given a configuration as "
        "fast as it then needs; 0: its ceilings are those of the cheapest one at admission",
    )

    # -- planning
    price_vcpu_hour: float = Field(0.034, ge=0, description="dollars an hour for a vCPU")
    price_gpu_hour: float = Field(4.69, ge=0, description="dollars an hour for a whole GPU")
    price_gpu_hour_of: dict[str, NonNegativeFloat] = Field(
        default={},
        description="the same for single models of GPU, as JSON: "
        '`{"Tesla T4": 0.35}`; the others cost ESG_PRICE_GPU_HOUR',
    )
    policy: Literal["exact", "esg"] = Field(
        "exact",
        description="how a stage is planned: over all stages left at once; or as the ESG paper "
        "does, in groups that each have a part of the SLO",
    )
    group_size: int = Field(3, ge=1, le=32, description="most stages of a group, for policy esg")
    latency: Literal["mean", "p95"] = Field(
        "mean",
        description="plan with the profiles' mean times, or with their 95th percentiles where they "
        "have them; the sum of percentiles is more than the percentile of the sum",
    )
    candidates: int = Field(
        5,
        ge=1,
        le=64,
        description="K: how many configurations are tried in order, on each GPU model and "
        "for each time that a start may take",
    )
    on_lost_slo: Literal["fastest", "cheapest"] = Field(
        "cheapest",
        description="what runs when no configuration meets the SLO any more; fastest takes whole "
        "GPUs for requests that are late, and a full cluster does not recover from it",
    )
    margin_ratio: float = Field(
        0.1,
        ge=0,
        le=1,
        description="by how much stages may run over their profile, as a ratio of it: noise, and "
        "neighbours on the GPU (9 % in the median and 20 % at the 99th percentile on a V100)",
    )
    cold_start: Literal["ignored", "counted"] = Field(
        "ignored",
        description="whether a function's coldStartMs counts against its slack on nodes that did "
        "not run it within ESG_KEEP_ALIVE_S; ignored fits pods whose work a server does that is "
        "loaded on the node already",
    )
    network_mib_per_s: float | None = Field(
        None,
        ge=0.001,
        allow_inf_nan=False,
        description="bandwidth between nodes, MiB/s: the outputMib of stages right before that ran "
        "on another node then counts against the slack, one request's, as the batch is not known "
        "before the plan; unset: transfers are not counted",
    )
    expansions_max: int = Field(
        EXPANSIONS_MAX,
        ge=1,
        le=1_000_000,
        description="states that one search may expand, where the stages left are not "
        "series-parallel: about 10 us each; a plan says how far from the optimum it may be",
    )

    # -- placing
    placement: Literal["pack", "spread", "defrag"] = Field(
        "pack",
        description="tightest fit first; the emptiest; or where the least free share becomes of no "
        "use to what usually asks, by what is held now",
    )
    filter_nodes_max: int = Field(
        32,
        ge=0,
        description="most nodes that filter lets through, best first, for a pod that states no "
        "preference of its own (preferred affinity, topology spread); 0: all that fit. Fewer spare "
        "kube-scheduler its scoring; 1 spares the prioritize call too. Where another extender "
        "filters after this one, set 0",
    )

    # -- limits of one GPU
    gpu_percent_max: int = Field(100, ge=1, le=1000, description="sum of the shares on one GPU")
    gpu_clients_max: int = Field(48, ge=1, le=60, description="MPS clients on one GPU")
    server_context_mib: int = Field(
        1024, ge=0, description="GPU memory left to the MPS server, MiB"
    )

    # -- the cluster
    api_timeout_s: float = Field(
        3.0,
        gt=0,
        le=4.5,
        description="time for one bind call, its reads and its Binding, s; kube-scheduler waits 5",
    )
    assumed_ttl_s: float = Field(
        75.0,
        gt=0,
        description="after that a Binding that nobody saw is asked about, s; the API server may "
        "take 60 s over a request (its --request-timeout)",
    )
    stale_after_s: float = Field(
        300.0,
        gt=0,
        description="not ready when the API server was not heard for so long, s; a quiet "
        "watch hears a bookmark about once a minute",
    )

    # -- what became of it
    abandoned_after_s: float = Field(
        600.0, gt=0, description="an instance without a living pod is dropped after, s"
    )
    keep_alive_s: float = Field(
        600.0, gt=0, description="how long a node counts as warm for a function, s"
    )

    @field_validator("mps_check_image")
    @classmethod
    def _as_the_functions_user(cls, image: str, info: ValidationInfo) -> str:
        if image and info.data.get("mps_uid") is None:
            raise ValueError(
                "it wants ESG_MPS_UID: as another user than the function's, the check would wait "
                "for an MPS server of its own"
            )
        return image

    @property
    def prices(self) -> Prices:
        """The prices as the search takes them."""
        return Prices(self.price_vcpu_hour, self.price_gpu_hour, self.price_gpu_hour_of)

    @property
    def rules(self) -> Rules:
        """The rules of planning as the search takes them."""
        return Rules(
            prices=self.prices,
            policy=self.policy,
            group_size=self.group_size,
            latency=self.latency,
            on_lost_slo=self.on_lost_slo,
            expansions_max=self.expansions_max,
        )

    @property
    def fit(self) -> FitPolicy:
        """The policy of fit as placement takes it, where fragmentation decides nothing."""
        return "spread" if self.placement == "spread" else "pack"

    @property
    def limits(self) -> Limits:
        """The limits of one GPU as ledger and placement take them."""
        return Limits(self.gpu_percent_max, self.server_context_mib, self.gpu_clients_max)
