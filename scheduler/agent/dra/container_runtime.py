"""The node's container runtime, and its CDI devices, from the files of the host.

Sources: config.md of containerd's CRI plugin (versions 2 and 3 of its configuration), crio.conf(5),
and the CDI specification (cncf-tags/container-device-interface, SPEC.md).
"""

import os.path
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

_CONTAINERD = (
    "etc/containerd/config.toml",
    "var/lib/rancher/k3s/agent/etc/containerd/config.toml",
    "var/lib/rancher/rke2/agent/etc/containerd/config.toml",
    "etc/cri/containerd.toml",  # Talos
)
_CRIO = "etc/crio/crio.conf"
_CDI_FOLDERS = ("etc/cdi", "var/run/cdi", "run/cdi")


@dataclass(frozen=True, slots=True)
class ContainerRuntime:
    """The configured runtime.

    Attributes:
        name: ``containerd`` or ``CRI-O``.
        file: main configuration file, on the host.
        handlers: names of its runtime handlers.
        default: handler of pods without a runtime class.
        cdi: true or false if its configuration switches CDI on or off; None: its version decides.
    """

    name: str
    file: str
    handlers: frozenset[str]
    default: str
    cdi: bool | None = None


def container_runtime(root: Path) -> ContainerRuntime | None:
    """Read the runtime's configuration below the host's root; None without a readable one."""
    for name in _CONTAINERD:
        if tables := list(_with_imports(root, root / name)):
            return _containerd(f"/{name}", tables)
    crio = [root / _CRIO, *sorted((root / f"{_CRIO}.d").glob("*.conf"))]
    if tables := [table for path in crio if (table := _toml(path)) is not None]:
        return _crio(tables)
    return None


def cdi_devices(root: Path) -> Mapping[str, frozenset[str]]:
    """Read the names of all CDI devices below the host's root, by kind."""
    devices: dict[str, frozenset[str]] = {}
    for folder in _CDI_FOLDERS:
        for path in sorted((root / folder).glob("*.*")):
            spec = _cdi_spec(path)
            names = frozenset(
                str(device.get("name"))
                for device in spec.get("devices") or ()
                if isinstance(device, Mapping)
            )
            if kind := spec.get("kind"):
                devices[str(kind)] = devices.get(str(kind), frozenset()) | names
    return devices


def _cdi_spec(path: Path) -> Mapping[str, Any]:
    if path.suffix not in {".json", ".yaml", ".yml"}:
        return {}
    try:
        spec = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, yaml.YAMLError):
        return {}
    return spec if isinstance(spec, Mapping) else {}


def _with_imports(root: Path, path: Path) -> Iterator[Mapping[str, Any]]:
    """Read containerd's file and those that it imports, which may import others, each once."""
    pending, begun = [path], {path}
    for file in pending:
        if (table := _toml(file)) is None:
            continue
        yield table
        for pattern in map(Path, map(str, table.get("imports") or ())):
            folder = root if pattern.is_absolute() else file.parent
            relative = str(pattern).lstrip("/")
            matches = folder.glob(relative) if pattern.name else ()
            imported = {Path(os.path.normpath(match)) for match in matches} - begun
            begun |= imported
            pending += sorted(imported)


def _toml(path: Path) -> Mapping[str, Any] | None:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None


def _containerd(file: str, tables: list[Mapping[str, Any]]) -> ContainerRuntime:
    handlers: set[str] = set()
    default = "runc"
    cdi = None
    for table in tables:
        plugins = table.get("plugins") or {}
        for plugin in ("io.containerd.grpc.v1.cri", "io.containerd.cri.v1.runtime"):
            settings = plugins.get(plugin) or {}
            cdi = settings.get("enable_cdi", cdi)
            runtimes = settings.get("containerd") or {}
            handlers |= (runtimes.get("runtimes") or {}).keys()
            default = runtimes.get("default_runtime_name") or default
    return ContainerRuntime("containerd", file, frozenset(handlers) | {default}, default, cdi)


def _crio(tables: list[Mapping[str, Any]]) -> ContainerRuntime:
    handlers: set[str] = set()
    default = "crun"
    for table in tables:
        runtime = (table.get("crio") or {}).get("runtime") or {}
        handlers |= (runtime.get("runtimes") or {}).keys()
        default = runtime.get("default_runtime") or default
    return ContainerRuntime("CRI-O", f"/{_CRIO}", frozenset(handlers) | {default}, default)
