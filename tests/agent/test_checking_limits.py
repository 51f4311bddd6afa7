"""`esg mps check`: what is in force in a container, and what is not."""

import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from scheduler.agent import mps_check
from scheduler.agent.mps_check import findings
from scheduler.agent.nvml import NvmlError
from scheduler.cli import app
from tests.agent.gpus import EXCLUSIVE_PROCESS, FakeGpus
from tests.agent.readings import device

OK, NOT_IN_FORCE, NOT_SEEN = "ok", "not in force", "not seen"


@pytest.fixture
def pod(mps_root: Path, libraries: Path) -> Iterator[dict[str, str]]:
    """The environment of a container with 30 % and 4 GiB of an A100, its limits at work."""
    door = mps_root / "control"
    with socket.socket(socket.AF_UNIX) as daemon:
        daemon.bind(str(door))
        daemon.listen()
        yield {
            "PATH": os.environ["PATH"],
            "LD_LIBRARY_PATH": str(libraries),
            "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": "30",
            "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT": "0=4096M",
            "CUDA_MPS_PIPE_DIRECTORY": str(mps_root),
            "FAKE_CUDA": f"0 32 {4000 * 2**20}",
        }


def found(environ, *devices) -> list[tuple[str, str]]:
    shown = devices or (device(0, exclusive=True, memory_used_bytes=0),)
    return [(f.verdict, f.text) for f in findings(environ, devices=lambda: shown)]


def wrong(environ, *devices) -> list[tuple[str, str]]:
    return [each for each in found(environ, *devices) if each[0] != OK]


def test_a_pod_under_its_limits(pod):
    """A line for each thing that was looked at, and all are well."""
    assert [text for _, text in found(pod)] == [
        "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE is 30",
        "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT is 0=4096M",
        f"the MPS daemon answers at {pod['CUDA_MPS_PIPE_DIRECTORY']}/control",
        "compute mode is EXCLUSIVE_PROCESS",
        "share at work: 32 of 108 multiprocessors, for 30 %",
        "memory at work: 4,000 MiB are free to this process, its limit is 4,096 MiB",
    ]
    assert wrong(pod) == []


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"FAKE_CUDA": f"0 108 {4000 * 2**20}"}, "share at work: 108 of 108"),
        ({"FAKE_CUDA": f"0 33 {4000 * 2**20}"}, "share at work: 33 of 108"),
        ({"FAKE_CUDA": f"0 32 {80_000 * 2**20}"}, "memory at work: 80,000 MiB"),
        ({"CUDA_MPS_PIPE_DIRECTORY": "/nowhere"}, "/nowhere/control: No such file"),
    ],
)
def test_a_limit_that_is_not_at_work_is_told(pod, change, says):
    """Though the environment says so: what counts is what CUDA shows."""
    [(verdict, text)] = wrong(pod | change)
    assert verdict == NOT_IN_FORCE
    assert says in text


@pytest.mark.parametrize("used_bytes", [78_000 * 2**20, None])
def test_memory_that_is_scarce_on_the_whole_gpu_proves_no_limit(pod, used_bytes):
    """4,000 MiB are free to this process, but perhaps to everybody: that is told, and no error."""
    told = wrong(pod, device(0, exclusive=True, memory_used_bytes=used_bytes))
    assert [verdict for verdict, _ in told] == ["undecided"]
    assert "its neighbours may leave no more than that" in told[0][1]


@pytest.mark.parametrize(
    "variable",
    [
        "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE",
        "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT",
        "CUDA_MPS_PIPE_DIRECTORY",
    ],
)
def test_a_variable_that_is_missing_is_told(pod, variable):
    """By its name."""
    del pod[variable]
    assert any(verdict == NOT_IN_FORCE and variable in text for verdict, text in wrong(pod))


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", "a lot"),
        ("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", "0"),
        ("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", "nan"),
        ("CUDA_MPS_PINNED_DEVICE_MEM_LIMIT", "4096M"),
        ("CUDA_MPS_PINNED_DEVICE_MEM_LIMIT", "0=4G,1=4G"),
    ],
)
def test_a_value_that_limits_nothing_is_told(pod, variable, value):
    """MPS would drop it, or a second GPU's entry would have it drop them all."""
    told = wrong(pod | {variable: value})
    assert (NOT_IN_FORCE, f"{variable} is {value!r}, which is no limit of one GPU") in told


def test_a_share_smaller_than_one_grain_is_in_force(pod):
    """The smallest there is: two multiprocessors, however few percent."""
    tiny = {"CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": "1", "FAKE_CUDA": f"0 2 {2**30}"}
    assert wrong(pod | tiny) == []


def test_a_daemon_that_died_does_not_answer(pod, mps_root: Path):
    """Its socket is still there."""
    (mps_root / "control").unlink()
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(mps_root / "control"))
    [(verdict, text)] = wrong(pod)
    assert verdict == NOT_IN_FORCE
    assert "refused" in text


def test_a_daemon_with_another_kind_of_socket_answers_too(pod, mps_root: Path):
    """The kind is NVIDIA's own affair."""
    (mps_root / "control").unlink()
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as daemon:
        daemon.bind(str(mps_root / "control"))
        daemon.listen()
        assert wrong(pod) == []


def test_the_compute_mode_counts(pod):
    """In any other, who misses the daemon has the whole GPU."""
    [(verdict, text)] = wrong(pod, device(0, exclusive=False, memory_used_bytes=0))
    assert verdict == NOT_IN_FORCE
    assert "EXCLUSIVE_PROCESS" in text


def test_more_gpus_than_one_are_told(pod):
    """The container is to see the one that it was granted."""
    told = wrong(pod, device(0, exclusive=True), device(1, exclusive=True))
    assert told[0] == (
        NOT_IN_FORCE,
        "2 GPUs are visible, not one: NVIDIA_VISIBLE_DEVICES names the one granted",
    )
    assert told[1][0] == NOT_SEEN  # of how many multiprocessors the share is


def test_what_cannot_be_seen_is_no_proof(pod):
    """Without NVML neither the mode nor the whole GPU's size is known."""

    def devices():
        raise NvmlError(_Missing())

    verdicts = [f.verdict for f in findings(pod, devices=devices)]
    assert verdicts.count(NOT_SEEN) == 2
    assert verdicts.count("undecided") == 1
    assert NOT_IN_FORCE not in verdicts


class _Missing:
    value = 12


@pytest.mark.parametrize(
    ("status", "says"), [("807", "the MPS server is not ready"), ("-2", "ended the process")]
)
def test_a_cuda_that_fails_is_told(pod, status, says):
    """With its reason, be it a crash."""
    [(verdict, text)] = wrong(pod | {"FAKE_CUDA": f"{status} 0 0"})
    assert verdict == NOT_SEEN
    assert says in text


def test_a_cuda_that_waits_for_ever_is_given_up(pod, monkeypatch):
    """As it does for an MPS server that does not come."""
    monkeypatch.setattr(mps_check, "_CUDA_S", 0.5)
    [(verdict, text)] = wrong(pod | {"FAKE_CUDA": "-1 0 0"})
    assert verdict == NOT_SEEN
    assert "did not start within 0.5 s" in text


def test_a_machine_without_a_gpu_has_nothing_in_force(pod):
    """Where there is no CUDA driver, the limits of the environment limit nothing."""
    del pod["LD_LIBRARY_PATH"]
    told = wrong(pod)
    assert told == [(NOT_IN_FORCE, "limits at work: the CUDA driver (libcuda.so.1) is not here")]


def test_the_command_ends_with_0_where_all_is_well(pod, own_gpus: FakeGpus, monkeypatch):
    """And with 1 where anything is not; a line for each finding."""
    own_gpus.remove_last()
    own_gpus.set(0, mode=EXCLUSIVE_PROCESS)
    for name, value in pod.items():
        monkeypatch.setenv(name, value)
    good = CliRunner().invoke(app, ["mps", "check"])
    assert good.exit_code == 0, good.output
    assert [line.split(":")[0] for line in good.output.splitlines()] == ["ok"] * 6

    monkeypatch.setenv("FAKE_CUDA", f"0 108 {4000 * 2**20}")
    bad = CliRunner().invoke(app, ["mps", "check"])
    assert bad.exit_code == 1
    assert "not in force: share at work: 108 of 108 multiprocessors, for 30 %" in bad.output
