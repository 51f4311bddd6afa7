"""Archives of container images, in the format of `docker save`, for container runtimes to load."""

import hashlib
import io
import json
import platform
import tarfile
from collections.abc import Mapping, Sequence
from pathlib import Path

_ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}


def write_image(
    archive: Path, name: str, programs: Mapping[str, Path], *, entrypoint: Sequence[str]
) -> None:
    """Write an image with one layer that contains only these programs.

    Args:
        archive: the file to write.
        name: name of the image, with its tag.
        programs: files by their path in the image, without the leading slash.
        entrypoint: command of its containers.
    """
    layer = _layer(programs)
    config = {
        "architecture": _ARCHITECTURES[platform.machine()],
        "os": "linux",
        "config": {"Entrypoint": list(entrypoint), "Env": ["PATH=/usr/local/bin"]},
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{hashlib.sha256(layer).hexdigest()}"]},
    }
    config_json = json.dumps(config).encode()
    config_name = f"{hashlib.sha256(config_json).hexdigest()}.json"
    manifest = [{"Config": config_name, "RepoTags": [name], "Layers": ["layer.tar"]}]
    with tarfile.open(archive, "w") as file:
        _add(file, "layer.tar", layer)
        _add(file, config_name, config_json)
        _add(file, "manifest.json", json.dumps(manifest).encode())


def content_bytes(archive: Path) -> int:
    """Return the size of an image's files on a node's disk."""
    with tarfile.open(archive) as file:
        manifest = file.extractfile("manifest.json")
        if manifest is None:
            raise ValueError(f"no image in archive: {archive}")
        layers = json.load(manifest)[0]["Layers"]
        return sum(file.getmember(layer).size for layer in layers)


def _layer(programs: Mapping[str, Path]) -> bytes:
    """Write a reproducible layer: no times, and root owns all files."""
    layer = io.BytesIO()
    with tarfile.open(fileobj=layer, mode="w") as file:
        for path, program in programs.items():
            _add(file, path, program.read_bytes(), mode=0o755)
    return layer.getvalue()


def _add(file: tarfile.TarFile, name: str, content: bytes, *, mode: int = 0o644) -> None:
    member = tarfile.TarInfo(name)
    member.size, member.mode = len(content), mode
    file.addfile(member, io.BytesIO(content))
