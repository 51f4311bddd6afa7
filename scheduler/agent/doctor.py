"""`esg doctor`: what this node has of what GPU shares need, and what is missing.

It only reads. In the agent's pod, container ``mps`` sees most: the GPUs, the daemons and, by the
host's process ids, the files of the host.
"""

import re
import shutil
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from scheduler.agent.dra.container_runtime import ContainerRuntime, cdi_devices, container_runtime
from scheduler.agent.dra.kubelet_messages import plugin_sockets
from scheduler.agent.gpus.health import health_problem
from scheduler.agent.gpus.nvml import NvmlError
from scheduler.agent.gpus.reading import DeviceReading
from scheduler.agent.mps.check import visible_devices
from scheduler.agent.mps.daemon_state import read_state, trouble_of
from scheduler.agent.pods.claimants import Claims, NodeUsers
from scheduler.agent.pods.process_pods import pod_uid_of_process
from scheduler.agent.settings import AgentSettings

Verdict = Literal["ok", "missing", "unknown"]
_KIND = "nvidia.com/gpu"
_HANDLER = "nvidia"
_SERVER = "nvidia-cuda-mps-server"
_KUBELET_WITH_CLAIMS = (1, 34)  # resource.k8s.io/v1, and the kubelet's DRA API v1
_CONTAINERD_WITH_CDI = (1, 7)
_INSTALL_TOOLKIT = (
    "install NVIDIA's container toolkit on the node (the GPU Operator does) and restart its "
    "container runtime"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One requirement of GPU shares on this node.

    Attributes:
        subject: requirement that was checked.
        verdict: ``ok``, ``missing`` if it needs a remedy, or ``unknown`` if it could not be read
            here.
        text: state of the node.
        remedy: action for the operator; empty if none is needed.
    """

    subject: str
    verdict: Verdict
    text: str
    remedy: str = ""


def host_root() -> Path:
    """Return the host's root as this process can see it: by process 1, or its own."""
    by_init = Path("/proc/1/root")
    try:
        return by_init if (by_init / "etc").is_dir() else Path("/")
    except OSError:
        return Path("/")


def findings(
    settings: AgentSettings,
    users: NodeUsers | None,
    *,
    root: Path,
    devices: Callable[[], tuple[DeviceReading, ...]] = visible_devices,
    clock: Callable[[], float] = time.monotonic,
) -> Iterator[Finding]:
    """Check the node, in the order in which requirements build on one another.

    Args:
        settings: settings of the agent.
        users: node and its pods; None: the API server did not show them.
        root: root folder of the host.
        devices: function that reads the GPUs.
        clock: monotonic clock of the machine, in seconds.
    """
    try:
        gpus = devices()
    except NvmlError as error:
        gpus = ()
        yield Finding(
            subject="driver", verdict="missing", text=str(error), remedy="install NVIDIA's driver"
        )
    else:
        yield _driver(gpus)
    yield _programs(settings)
    runtime = container_runtime(root)
    yield _delivery(runtime, cdi_devices(root), users)
    if settings.kubelet_root:
        yield _claims(settings.kubelet_root, runtime, users, root)
    yield from _node(users)
    claims = Claims(
        Path(settings.mps_permits) if settings.mps_permits else None, uid_of=pod_uid_of_process
    )
    for device in gpus:
        yield _gpu(device, settings, claims.claim(device, users), clock)


def _driver(gpus: tuple[DeviceReading, ...]) -> Finding:
    if not gpus:
        return Finding(
            subject="driver",
            verdict="missing",
            text="NVML works and shows no GPU here",
            remedy="give this container all GPUs: agent.runtimeClassName or agent.cdiDevices",
        )
    models = sorted({gpu.model for gpu in gpus})
    return Finding(subject="driver", verdict="ok", text=f"{len(gpus)} GPUs: {', '.join(models)}")


def _programs(settings: AgentSettings) -> Finding:
    subject = "MPS programs"
    control, server = shutil.which(settings.mps_control), shutil.which(_SERVER)
    if control and server:
        return Finding(subject=subject, verdict="ok", text=control)
    absent = settings.mps_control if control is None else _SERVER
    return Finding(
        subject=subject,
        verdict="missing",
        text=f"{absent} is not in PATH",
        remedy="run this in the agent's container `mps`; there, the runtime adds them with "
        "NVIDIA_DRIVER_CAPABILITIES=compute,utility",
    )


def _delivery(
    runtime: ContainerRuntime | None,
    devices: Mapping[str, frozenset[str]],
    users: NodeUsers | None,
) -> Finding:
    """Find out how a GPU gets into a container of this node."""
    subject = "GPUs into containers"
    kinds = ", ".join(sorted(devices)) or "none"
    reported = _reported_handlers(users)
    if runtime is not None and _HANDLER in runtime.default:
        text = f"{runtime.name}'s default runtime is {runtime.default}; CDI kinds: {kinds}"
        return Finding(subject=subject, verdict="ok", text=text)
    if _HANDLER in ((runtime.handlers if runtime else frozenset()) | reported):
        return Finding(
            subject=subject,
            verdict="ok",
            text=f"runtime handler {_HANDLER}, not the default; CDI kinds: {kinds}",
            remedy="set settings.runtime_class_name and agent.runtimeClassName to a RuntimeClass "
            f"with handler {_HANDLER}",
        )
    if _KIND in devices:
        return Finding(
            subject=subject,
            verdict="ok",
            text=f"CDI devices {_KIND}: {len(devices[_KIND])}, no runtime handler {_HANDLER}",
            remedy=f"set settings.cdi_kind: {_KIND}, and agent.cdiDevices; it needs the toolkit's "
            "NRI plugin",
        )
    if runtime is None and not reported:
        return Finding(
            subject=subject,
            verdict="unknown",
            text=f"no configuration of containerd or CRI-O can be read; CDI kinds: {kinds}",
            remedy="run this in the agent's container `mps`, which sees the files of the host",
        )
    return Finding(
        subject=subject,
        verdict="missing",
        text=f"no runtime handler {_HANDLER}; CDI kinds: {kinds}",
        remedy=_INSTALL_TOOLKIT,
    )


def _claims(
    kubelet_root: str, runtime: ContainerRuntime | None, users: NodeUsers | None, root: Path
) -> Finding:
    """Find out if resource claims can give function pods the folders of their GPU."""
    subject = "resource claims"
    info = _node_info(users)
    kubelet, program = str(info.get("kubeletVersion", "")), str(info.get("containerRuntimeVersion"))
    for version, oldest, name in (
        (kubelet, _KUBELET_WITH_CLAIMS, "kubelet"),
        (program.removeprefix("containerd://"), _CONTAINERD_WITH_CDI, "containerd"),
    ):
        if (number := _release(version)) and number < oldest:
            needed = ".".join(map(str, oldest))
            return Finding(
                subject=subject,
                verdict="missing",
                text=f"{name} {version}; claims need {needed}",
                remedy=f"upgrade {name}, or set dra.enabled: false",
            )
    cdi = runtime.cdi if runtime else None
    if cdi is False or (cdi is None and _release(program.removeprefix("containerd://")) == (1, 7)):
        return Finding(
            subject=subject,
            verdict="missing",
            text="containerd's CDI is off",
            remedy="set enable_cdi = true in its CRI plugin's configuration, and restart it",
        )
    absent = [path for path in plugin_sockets(kubelet_root) if not _on_host(root, path).is_socket()]
    if absent:
        return Finding(
            subject=subject,
            verdict="missing",
            text=f"the agent's plugin has no socket {absent[0]}",
            remedy="read the log of container `agent`; dra.kubeletRoot is the kubelet's --root-dir",
        )
    parts = (f"kubelet {kubelet}" if kubelet else "", program if info else "")
    versions = ", ".join(part for part in parts if part)
    return Finding(
        subject=subject,
        verdict="ok",
        text=f"the agent's plugin is there; {versions or 'node unknown'}",
    )


def _on_host(root: Path, path: Path) -> Path:
    return root / path.relative_to("/")


def _release(version: str) -> tuple[int, ...]:
    """Return major and minor number of a version; empty if it is none."""
    match = re.match(r"v?(\d+)\.(\d+)", version)
    return tuple(map(int, match.groups())) if match else ()


def _node_info(users: NodeUsers | None) -> Mapping[str, object]:
    status = ((users.node if users else None) or {}).get("status") or {}
    info: Mapping[str, object] = status.get("nodeInfo") or {}
    return info


def _reported_handlers(users: NodeUsers | None) -> frozenset[str]:
    """Return the handlers that the kubelet reports, from Kubernetes 1.31 on."""
    status = ((users.node if users else None) or {}).get("status") or {}
    return frozenset(str(h.get("name") or "") for h in status.get("runtimeHandlers") or ())


def _node(users: NodeUsers | None) -> Iterator[Finding]:
    if users is None or users.node is None:
        yield Finding(
            subject="node",
            verdict="unknown",
            text="the API server shows no Node object of this machine",
            remedy="give --node, and a kubeconfig that may list nodes and pods",
        )
        return
    labels = (users.node.get("metadata") or {}).get("labels") or {}
    shared = labels.get("esg-scheduler.io/shared")
    yield Finding(
        subject="node opted in",
        verdict="ok" if shared == "true" else "missing",
        text=f"label esg-scheduler.io/shared={shared}" if shared else "no such label",
        remedy=""
        if shared == "true"
        else "kubectl label node NODE esg-scheduler.io/shared=true; other labels by "
        "agent.nodeSelector",
    )


def _gpu(
    device: DeviceReading, settings: AgentSettings, claim: str, clock: Callable[[], float]
) -> Finding:
    """Check one GPU: who uses it, its health, its MPS daemon."""
    subject = f"GPU {device.index}"
    trouble = ""
    if settings.require_mps:
        folder = Path(settings.mps_root) / device.uuid
        trouble = trouble_of(
            read_state(folder, clock=clock, silent_after_s=settings.mps_silent_after_s)
        )
    problem = health_problem(device, (), trouble, settings)
    if claim:
        return Finding(subject=subject, verdict="missing", text=f"{device.uuid}: {claim}")
    if problem is not None:
        text = f"{device.uuid}: {problem.message}"
        remedy = "read the log of container `mps`" if problem.reason == "mps" else ""
        return Finding(subject=subject, verdict="missing", text=text, remedy=remedy)
    mode = "EXCLUSIVE_PROCESS" if device.exclusive else "shared with processes outside of MPS"
    return Finding(subject=subject, verdict="ok", text=f"{device.uuid}: compute mode {mode}")
