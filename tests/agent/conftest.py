"""Fixtures of the agent's tests; the test bed provides the control plane."""

import shutil
import tempfile
from pathlib import Path

import pytest

from tests.agent.fakes import FakeDaemons, FakeGpus, compiled, load
from tests.testbed.fixtures import cluster, control_plane

__all__ = ["cluster", "control_plane"]


@pytest.fixture(scope="session")
def libraries(tmp_path_factory):
    """Compile the fake NVML and CUDA; return their folder."""
    return compiled(tmp_path_factory.mktemp("libraries"))


@pytest.fixture
def gpus(libraries, tmp_path):
    """Create eight GPUs for programs that start with `FakeGpus.environment`."""
    return FakeGpus(tmp_path, libraries, 8)


@pytest.fixture
def own_gpus(libraries, tmp_path, monkeypatch):
    """Create two GPUs for this process's NVML."""
    load(libraries)
    fakes = FakeGpus(tmp_path, libraries, 2)
    monkeypatch.setenv("FAKE_NVML", fakes.environment["FAKE_NVML"])
    return fakes


@pytest.fixture
def mps_root():
    """Create a folder whose path is short enough for sockets in it."""
    folder = Path(tempfile.mkdtemp(prefix="mps-"))
    yield folder
    shutil.rmtree(folder)


@pytest.fixture
def daemons(mps_root, tmp_path):
    """Create MPS daemons that fail on request."""
    return FakeDaemons(mps_root, tmp_path)
