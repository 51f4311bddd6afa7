"""The fixtures of the agent's tests; the control plane is the test bed's."""

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import structlog.testing

from tests.agent.daemons import FakeDaemons
from tests.agent.gpus import FakeGpus, compiled, load
from tests.testbed.fixtures import cluster, control_plane

__all__ = ["cluster", "control_plane"]


@pytest.fixture(scope="session")
def libraries(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of our NVML and CUDA."""
    return compiled(tmp_path_factory.mktemp("libraries"))


@pytest.fixture
def gpus(libraries: Path, tmp_path: Path) -> FakeGpus:
    """Eight GPUs for programs that are started with `FakeGpus.environment`."""
    return FakeGpus(tmp_path, libraries, 8)


@pytest.fixture
def own_gpus(libraries: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeGpus:
    """Two GPUs that this process' NVML shows."""
    load(libraries)
    made = FakeGpus(tmp_path, libraries, 2)
    monkeypatch.setenv("FAKE_NVML", made.environment["FAKE_NVML"])
    return made


@pytest.fixture
def mps_root() -> Iterator[Path]:
    """A folder whose path is short enough for sockets in it."""
    folder = Path(tempfile.mkdtemp(prefix="mps-"))
    yield folder
    shutil.rmtree(folder)


@pytest.fixture
def daemons(mps_root: Path, tmp_path: Path) -> FakeDaemons:
    """MPS daemons that fail when the test says so."""
    return FakeDaemons(mps_root, tmp_path)


@pytest.fixture
def logged() -> Iterator[list[dict[str, Any]]]:
    """What is logged with structlog."""
    with structlog.testing.capture_logs() as entries:
        yield entries
