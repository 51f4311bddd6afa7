"""Settings of `esg agent` and `esg mps`: environment variables ``ESG_AGENT_…``, unit, default."""

from typing import Literal

from pydantic import Field
from pydantic_settings import BaseSettings, SettingsConfigDict

# Errors of an application that leave the GPU as it was: 13 graphics engine exception, 31 memory
# page fault, 43 stopped processing, 45 preemptive cleanup, 68 video processor exception, 109
# context switch time-out. Source: what NVIDIA's device plugin for Kubernetes ignores.
APPLICATION_XIDS = "13,31,43,45,68,109"


class AgentSettings(BaseSettings):
    """What an operator can set; a command-line option of the same name wins."""

    model_config = SettingsConfigDict(env_prefix="ESG_AGENT_", frozen=True, extra="ignore")

    # -- serving
    host: str = Field("0.0.0.0", description="address of /metrics, /healthz and /readyz")  # noqa: S104 - probes come from outside
    port: int = Field(8889, ge=0, le=65535, description="its port; 0 takes a free one")
    log_level: Literal["debug", "info", "warning", "error"] = Field(
        "info", description="least level logged"
    )
    log_json: bool = Field(False, description="log lines as JSON instead of text")

    # -- the GPUs
    read_every_s: float = Field(
        2.0,
        ge=0.1,
        le=5,
        description="time between two readings of the GPUs, s; an XID is taken up at once",
    )
    nvml_silent_after_s: float = Field(
        6.0,
        ge=5.5,
        description="all GPUs are ill when a call of NVML has hung for so long, s",
    )
    nvml_restart_after_s: float = Field(
        60.0,
        ge=1,
        description="the container is to be made anew when NVML has told nothing for so long, s: "
        "it may have been made before the driver's libraries could be put into it",
    )
    forget_after_s: float = Field(
        300.0,
        ge=0,
        description="how long a GPU that can no longer be read is published as ill, s; then it is "
        "not published at all",
    )
    xids_ignored: str = Field(
        APPLICATION_XIDS,
        pattern=r"^(\d{1,6}(,\d{1,6})*)?$",
        description="XIDs that do not make a GPU ill: errors of an application",
    )
    ecc_uncorrected_max: int = Field(
        0,
        ge=0,
        description="uncorrected ECC errors since the GPU's last reset above which it is ill",
    )
    require_mps: bool = Field(
        True, description="a GPU is ill while `esg mps` does not say that its MPS daemon answers"
    )
    mps_silent_after_s: float = Field(
        5.0, ge=2, description="`esg mps` counts as dead when it has written nothing for so long, s"
    )

    # -- the MPS daemons
    mps_root: str = Field(
        "/run/esg-scheduler/mps",
        # A socket's path has 107 characters at most, and 65 of them come after the root.
        max_length=42,
        pattern=r"^(/[A-Za-z0-9_][A-Za-z0-9._-]*)+$",
        description="host folder with one folder a GPU; the same as ESG_MPS_ROOT of `esg serve`",
    )
    mps_control: str = Field(
        "nvidia-cuda-mps-control", min_length=1, description="the program, or its path"
    )
    mps_exclusive: bool = Field(
        True,
        description="keep the GPUs in compute mode EXCLUSIVE_PROCESS, and PROHIBITED while their "
        "MPS daemon does not answer: without it a pod that misses its daemon has the whole GPU, "
        "silently",
    )
    mps_multiuser: bool = Field(
        False,
        description="start the daemons with -multiuser-server: clients of any user, none of them "
        "kept from the others; without it a GPU serves one user at a time",
    )
    mps_uid: int = Field(
        0,
        ge=0,
        description="user whose MPS server each daemon starts first, to see that one can be "
        "started; best that of the clients. With -multiuser-server it is always 0",
    )
    mps_own_shm: bool = Field(
        True,
        description="give each daemon its GPU's folder shm as /dev/shm; needs CAP_SYS_ADMIN. Off: "
        "its container's /dev/shm is taken as it is",
    )
    mps_check_every_s: float = Field(
        2.0, ge=0.05, le=5, description="time between two looks at a daemon, s"
    )
    mps_ask_timeout_s: float = Field(
        3.0, ge=0.1, le=60, description="a daemon that takes longer over a question is ill, s"
    )
    mps_fault_grace_s: float = Field(
        10.0,
        ge=0,
        description="how long a daemon may be ill (FAULT, no answer) before it is restarted, s; a "
        "FAULT ends by itself when all its clients have",
    )
    mps_stop_s: int = Field(
        10, ge=0, le=600, description="time for clients to end when a daemon is stopped, s"
    )

    @property
    def application_xids(self) -> frozenset[int]:
        """`xids_ignored` as numbers."""
        return frozenset(int(xid) for xid in self.xids_ignored.split(",") if xid)
