"""Triton with its Python backend, from the wheel of PyTriton; it runs without a GPU."""

import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.require import needing
from tests.testbed.model_server_process import (
    MODEL,
    NUMPY_MODELS,
    ModelServerProcess,
    program,
)
from workbench.cluster.process import free_port

ECHO = "echo"
SHARED_MEMORY = Path("/dev/shm")
PYTHON = f"{sys.version_info.major}.{sys.version_info.minor}"
BIN = program("triton", "")
TRITON = BIN.parent / "lib" / f"python{PYTHON}" / "site-packages" / "pytriton" / "tritonserver"
TENSORS = {
    MODEL: (
        {"image": ("FP32", "3, 8, 8"), "number": ("INT64", "1")},
        {"scores": ("FP32", "5"), "same_number": ("INT64", "1")},
    ),
    ECHO: ({"half": ("FP16", "-1"), "text": ("STRING", "1")},) * 2,
}
needs_triton = needing(
    TRITON.exists(),
    "Triton is not installed: run `make build/triton/.installed` with Python 3.11 or 3.12",
)


class Triton(ModelServerProcess):
    """One Triton, set as docs/gateway.md says, with the classifier and a model that echoes."""

    def _command(self, folder: Path) -> Sequence[str]:
        backend = folder / "backends" / "python"
        backend.mkdir(parents=True)
        stub = TRITON / "python_backend_stubs" / PYTHON / "triton_python_backend_stub"
        for path in (stub, *(TRITON / "backends" / "python").iterdir()):
            (backend / path.name).symlink_to(path)
        for model in TENSORS:
            _write_model(folder / "models" / model)
        return [
            str(TRITON / "bin" / "tritonserver"),
            f"--model-repository={folder / 'models'}",
            f"--backend-directory={backend.parent}",
            f"--backend-config=python,shm-region-prefix-name={self._region_prefix}",
            "--disable-auto-complete-config",
            "--http-address=127.0.0.1",
            f"--http-port={self.http_port}",
            "--grpc-address=127.0.0.1",
            f"--grpc-port={self.grpc_port}",
            f"--metrics-port={free_port()}",
        ]

    def stop(self) -> None:
        """End it, and remove the shared memory that a killed server leaves."""
        super().stop()
        for region in SHARED_MEMORY.glob(f"{self._region_prefix}*"):
            region.unlink()

    @property
    def _region_prefix(self) -> str:
        return f"triton-{self.http_port}-"

    def _variables(self) -> Mapping[str, str]:
        # The backend's process takes its packages from the first `python3` of the path.
        return {"PATH": f"{BIN}:{os.environ['PATH']}"}


def _write_model(folder: Path) -> None:
    """Write a model with a configuration like that of docs/gateway.md."""
    inputs, outputs = TENSORS[folder.name]
    lines = [
        f'name: "{folder.name}"',
        'backend: "python"',
        "max_batch_size: 8",
        "instance_group [{ kind: KIND_CPU, count: 1 }]",
    ]
    for key, tensors in (("input", inputs), ("output", outputs)):
        for name, (datatype, dims) in tensors.items():
            lines.append(
                f'{key} [{{ name: "{name}", data_type: TYPE_{datatype}, dims: [{dims}] }}]'
            )
    version = folder / "1"
    version.mkdir(parents=True)
    (folder / "config.pbtxt").write_text("\n".join(lines), encoding="utf-8")
    (version / "model.py").symlink_to(NUMPY_MODELS / f"triton_{folder.name}.py")
    (version / "classifier.py").symlink_to(NUMPY_MODELS / "classifier.py")
