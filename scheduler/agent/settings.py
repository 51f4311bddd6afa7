"""Settings of `esg agent` and `esg mps`: environment variables ``ESG_AGENT_…``, unit, default."""

from typing import Literal

from pydantic import Field
from pydantic_settings import BaseSettings, SettingsConfigDict

from scheduler.model.names import CDI_KIND_PATTERN

# XIDs of an application that leave the GPU usable: 13 graphics engine exception, 31 memory page
# fault, 43 stopped processing, 45 preemptive cleanup, 68 video processor exception, 109 context
# switch time-out. Source: the list that NVIDIA's device plugin for Kubernetes ignores.
APPLICATION_XIDS = "13,31,43,45,68,109"


class AgentSettings(BaseSettings):
    """Settings of the node agent; a command-line option of the same name has precedence."""

    model_config = SettingsConfigDict(env_prefix="ESG_AGENT_", frozen=True, extra="ignore")

    # -- serving
    host: str = Field(
        "::", description="address of /metrics, /healthz and /readyz; `::`: all, IPv4 and IPv6"
    )
    port: int = Field(8889, ge=0, le=65535, description="its port; 0 selects a free one")
    log_level: Literal["debug", "info", "warning", "error"] = Field(
        "info", description="minimum level of log entries"
    )
    log_json: bool = Field(False, description="log lines as JSON instead of text")

    # -- the GPUs
    read_every_s: float = Field(
        2.0,
        ge=0.1,
        le=5,
        description="time between two readings of the GPUs, s; an XID triggers one at once",
    )
    nvml_silent_after_s: float = Field(
        6.0,
        ge=5.5,
        description="all GPUs are unhealthy after a call of NVML has hung for so long, s",
    )
    nvml_restart_after_s: float = Field(
        60.0,
        ge=1,
        description="/healthz fails after NVML has reported no GPUs for so long, s, to get a new "
        "container: this one may be older than the driver's libraries",
    )
    forget_after_s: float = Field(
        300.0,
        ge=0,
        description="an unreadable GPU is published as unhealthy for so long, s, and then removed",
    )
    xids_ignored: str = Field(
        APPLICATION_XIDS,
        pattern=r"^(\d{1,6}(,\d{1,6})*)?$",
        description="XIDs that do not make a GPU unhealthy: errors of an application",
    )
    ecc_uncorrected_max: int = Field(
        0,
        ge=0,
        description="uncorrected ECC errors since the GPU's last reset above which it is "
        "unhealthy, unless it contains such errors (A100, H100)",
    )
    require_mps: bool = Field(
        True, description="a GPU is unhealthy unless `esg mps` reports that its MPS daemon is ready"
    )
    mps_silent_after_s: float = Field(
        5.0, ge=2, description="`esg mps` counts as dead after so long without a report, s"
    )

    check_claims: bool = Field(
        True,
        description="take no GPU while the node offers `nvidia.com/gpu` by a device plugin, a pod "
        "holds a whole GPU, or a process without a grant computes on it. The last needs "
        "ESG_AGENT_MPS_PERMITS",
    )
    autoscaled: bool = Field(
        False,
        description="taint the node `esg-scheduler.io/no-empty-gpu:PreferNoSchedule` while each of "
        "its healthy GPUs has pods: Karpenter counts room by sums, and adds a node then",
    )
    kubelet_root: str = Field(
        "",
        pattern=r"^((/[A-Za-z0-9_][A-Za-z0-9._-]*)+)?$",
        # A socket's path has at most 107 characters, 48 of them after the root.
        max_length=59,
        description="the kubelet's folder, `/var/lib/kubelet`: the agent is the kubelet's plugin "
        "for the resource claims of function pods (ESG_RESOURCE_CLAIMS of `esg serve`); empty: off",
    )
    cdi_folder: str = Field(
        "/var/run/cdi",
        pattern=r"^(/[A-Za-z0-9_][A-Za-z0-9._-]*)+$",
        description="folder of the container runtime for CDI specifications; the agent writes one "
        "for each resource claim",
    )
    cdi_kind: str = Field(
        "",
        pattern=CDI_KIND_PATTERN,
        description="kind of the CDI devices of NVIDIA's container toolkit, `nvidia.com/gpu`: a "
        "resource claim gives the GPU itself, too; empty: NVIDIA's runtime gives it, by "
        "NVIDIA_VISIBLE_DEVICES",
    )

    memory_tolerance_ratio: float = Field(
        0.1,
        ge=0,
        description="part of its granted GPU memory by which a pod may exceed it without an Event: "
        "NVML and MPS do not count the same",
    )
    evict_after_s: float = Field(
        0,
        ge=0,
        description="evict a pod that has exceeded its granted GPU memory for so long, s; 0: never",
    )

    # -- the MPS daemons
    mps_permits: str = Field(
        "",
        description="file by which the agent permits `esg mps` to take a GPU, which nobody else "
        "may be using; empty: `esg mps` takes every GPU at once",
    )
    mps_root: str = Field(
        "/run/esg-scheduler/mps",
        # A socket's path has at most 107 characters, 65 of them after the root.
        max_length=42,
        pattern=r"^(/[A-Za-z0-9_][A-Za-z0-9._-]*)+$",
        description="host folder with one folder per GPU; the same as ESG_MPS_ROOT of `esg serve`",
    )
    mps_control: str = Field(
        "nvidia-cuda-mps-control", min_length=1, description="the program, or its path"
    )
    mps_exclusive: bool = Field(
        True,
        description="keep the GPUs in compute mode EXCLUSIVE_PROCESS, and PROHIBITED while their "
        "MPS daemon does not answer: otherwise a pod without its daemon silently gets the whole "
        "GPU",
    )
    mps_multiuser: bool = Field(
        False,
        description="start the daemons with -multiuser-server: clients of any user, without "
        "isolation from each other; otherwise a GPU serves one user at a time",
    )
    mps_uid: int = Field(
        1000,
        ge=0,
        description="user of the MPS server that each daemon starts first, as a check; best that "
        "of the clients. With -multiuser-server it is always 0",
    )
    mps_own_shm: bool = Field(
        True,
        description="mount each daemon's GPU folder shm as /dev/shm; needs CAP_SYS_ADMIN. Off: use "
        "the container's /dev/shm",
    )
    mps_shm_mib: int = Field(
        0,
        ge=0,
        le=2**24,
        description="size of a tmpfs that is mounted on the host at each GPU's folder shm, MiB: "
        "its clients can take no more of the host's memory there; needs CAP_SYS_CHROOT; 0: a plain "
        "folder, which only the size of the host's /run limits",
    )
    mps_limits: bool = Field(
        True,
        description="limit all clients of a GPU, by its MPS daemon, to the largest share granted "
        "on it: also a process that has unset its variables",
    )
    mps_grants: str = Field(
        "",
        description="file by which the agent tells `esg mps` the granted pods of the node; empty: "
        "no client is limited by its daemon, or ended",
    )
    mps_check_every_s: float = Field(
        2.0, ge=0.05, le=5, description="time between two checks of a daemon, s"
    )
    mps_ask_timeout_s: float = Field(
        3.0, ge=0.1, le=60, description="time limit of a daemon's answer, s; then it is unhealthy"
    )
    mps_fault_grace_s: float = Field(
        10.0,
        ge=0,
        description="a daemon is restarted after it has been unhealthy (FAULT, no answer) for so "
        "long, s; a FAULT ends by itself when all its clients have ended",
    )
    mps_stop_s: int = Field(
        10, ge=0, le=600, description="time for clients to end before a daemon is stopped, s"
    )

    @property
    def application_xids(self) -> frozenset[int]:
        """`xids_ignored` as numbers."""
        return frozenset(int(xid) for xid in self.xids_ignored.split(",") if xid)
