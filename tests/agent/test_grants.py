"""The granted pods of a node, from `esg agent` to `esg mps`."""

import pytest

from scheduler.agent.pods.granted_pod import GrantedPod
from scheduler.agent.pods.grants import (
    GpuGrants,
    MpsLimits,
    NodeGrants,
    read_grants,
    write_grants,
)
from tests.agent.fakes import Clock

PODS = {
    "a": GrantedPod("a", "n", "a", "GPU-1", 30, 1024),
    "b": GrantedPod("b", "n", "b", "GPU-1", 20, 4096),
    "c": GrantedPod("c", "n", "c", "GPU-2", 5, 512),
}
GPU_1 = GpuGrants(frozenset("ab"), MpsLimits(30, 4096), is_complete=True)


def read(folder, clock):
    return read_grants(folder / "grants.json", clock=clock, silent_after_s=5)


def test_round_trip(tmp_path):
    """The limits of a GPU are its largest grants; a GPU without pods has none."""
    clock = Clock()
    write_grants(tmp_path / "grants.json", PODS, clock=clock)
    grants = read(tmp_path, clock)
    assert grants.of("GPU-1", memory_mib=8192) == GPU_1
    assert grants.of("GPU-2", memory_mib=8192) == GpuGrants(
        frozenset("c"), MpsLimits(5, 512), is_complete=True
    )
    assert grants.of("GPU-3", memory_mib=8192) == GpuGrants(is_complete=True)
    assert [path.name for path in tmp_path.iterdir()] == ["grants.json"]


@pytest.mark.parametrize("seconds", [5.1, -1])
def test_an_old_file_limits_nobody(tmp_path, seconds):
    """Pods may be missing, and the ones that it has are still granted."""
    clock = Clock()
    write_grants(tmp_path / "grants.json", PODS, clock=clock)
    clock.now_s += seconds
    expected = GpuGrants(GPU_1.pods, MpsLimits(100, 8192))
    assert read(tmp_path, clock).of("GPU-1", memory_mib=8192) == expected


@pytest.mark.parametrize(
    "text",
    [
        None,
        b"",
        b"\xff",
        b"[]",
        b'{"at_s": 1000, "gpus": {"GPU-1": {"a": [101, 1]}}}',
        b'{"at_s": 1000, "gpus": {"GPU-1": {"a": [1, 0]}}}',
    ],
)
def test_no_valid_file(tmp_path, text):
    """No pod is known, so nobody is limited or ended."""
    if text is not None:
        (tmp_path / "grants.json").write_bytes(text)
    grants = read(tmp_path, Clock())
    assert grants == NodeGrants()
    assert grants.of("GPU-1", memory_mib=8192) == GpuGrants(limits=MpsLimits(100, 8192))
