"""`esg mps check`: limits that are enforced in a container, and limits that are not."""

import os
import socket

import pytest
from typer.testing import CliRunner

from scheduler.agent.gpus.nvml import NvmlError
from scheduler.agent.mps import check as mps_check
from scheduler.agent.mps.check import run_checks
from scheduler.cli.commands import app
from tests.agent.factories import device
from tests.agent.fakes import EXCLUSIVE_PROCESS

OK, NOT_ENFORCED, NOT_CHECKED = "ok", "not enforced", "not checked"


@pytest.fixture
def pod(mps_root, libraries):
    """Return the environment of a container with 30 % and 4 GiB of an A100, both enforced."""
    path = mps_root / "control"
    with socket.socket(socket.AF_UNIX) as daemon:
        daemon.bind(str(path))
        daemon.listen()
        yield {
            "PATH": os.environ["PATH"],
            "LD_LIBRARY_PATH": str(libraries),
            "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": "30",
            "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT": "0=4096M",
            "CUDA_MPS_PIPE_DIRECTORY": str(mps_root),
            "FAKE_CUDA": f"0 32 {4000 * 2**20}",
        }


def results(environ, *devices):
    visible = devices or (device(0, exclusive=True, memory_used_bytes=0),)
    return [(f.verdict, f.text) for f in run_checks(environ, devices=lambda: visible)]


def problems(environ, *devices):
    return [result for result in results(environ, *devices) if result[0] != OK]


def test_enforced_limits(pod):
    """There is a line for each check, and all are ok."""
    assert [text for _, text in results(pod)] == [
        "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE is 30",
        "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT is 0=4096M",
        f"the MPS daemon answers at {pod['CUDA_MPS_PIPE_DIRECTORY']}/control",
        "compute mode is EXCLUSIVE_PROCESS",
        "effective share: 32 of 108 multiprocessors, for 30 %",
        "effective memory: 4,000 MiB are free for this process, its limit is 4,096 MiB",
    ]
    assert problems(pod) == []


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"FAKE_CUDA": f"0 108 {4000 * 2**20}"}, "effective share: 108 of 108"),
        ({"FAKE_CUDA": f"0 33 {4000 * 2**20}"}, "effective share: 33 of 108"),
        ({"FAKE_CUDA": f"0 32 {80_000 * 2**20}"}, "effective memory: 80,000 MiB"),
        ({"CUDA_MPS_PIPE_DIRECTORY": "/nowhere"}, "/nowhere/control: No such file"),
    ],
)
def test_ineffective_limit(pod, change, expected):
    """The environment has the limit, but CUDA's report counts."""
    [(verdict, text)] = problems(pod | change)
    assert verdict == NOT_ENFORCED
    assert expected in text


@pytest.mark.parametrize("used_bytes", [78_000 * 2**20, None])
def test_scarce_memory_of_the_whole_gpu_is_undecided(pod, used_bytes):
    """4,000 MiB are free for this process, but perhaps for all: that is no error."""
    [(verdict, text)] = problems(pod, device(0, exclusive=True, memory_used_bytes=used_bytes))
    assert verdict == "undecided"
    assert "other processes may leave no more than that" in text


@pytest.mark.parametrize(
    "variable",
    [
        "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE",
        "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT",
        "CUDA_MPS_PIPE_DIRECTORY",
    ],
)
def test_missing_variable(pod, variable):
    """The result names it."""
    del pod[variable]
    assert any(verdict == NOT_ENFORCED and variable in text for verdict, text in problems(pod))


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
def test_value_that_limits_nothing(pod, variable, value):
    """MPS would ignore it, or a second GPU's entry would invalidate all entries."""
    expected = (NOT_ENFORCED, f"{variable} is {value!r}: not a limit of one GPU")
    assert expected in problems(pod | {variable: value})


def test_share_below_the_granularity_is_enforced(pod):
    """The smallest share is two multiprocessors, however few percent."""
    tiny = {"CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": "1", "FAKE_CUDA": f"0 2 {2**30}"}
    assert problems(pod | tiny) == []


def test_dead_daemon(pod, mps_root):
    """Its socket still exists."""
    (mps_root / "control").unlink()
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(mps_root / "control"))
    [(verdict, text)] = problems(pod)
    assert verdict == NOT_ENFORCED
    assert "refused" in text


def test_daemon_with_another_socket_type(pod, mps_root):
    """NVIDIA chooses the type."""
    (mps_root / "control").unlink()
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as daemon:
        daemon.bind(str(mps_root / "control"))
        daemon.listen()
        assert problems(pod) == []


def test_compute_mode(pod):
    """In any other mode, a process without the daemon gets the whole GPU."""
    [(verdict, text)] = problems(pod, device(0, exclusive=False, memory_used_bytes=0))
    assert verdict == NOT_ENFORCED
    assert "EXCLUSIVE_PROCESS" in text


def test_several_visible_gpus(pod):
    """The container must see only its granted GPU."""
    first, second, *_ = problems(pod, device(0, exclusive=True), device(1, exclusive=True))
    assert first == (
        NOT_ENFORCED,
        "2 GPUs are visible, not one; set NVIDIA_VISIBLE_DEVICES to the granted GPU",
    )
    assert second[0] == NOT_CHECKED  # the total of multiprocessors is unknown


def test_without_nvml(pod):
    """The compute mode and the size of the whole GPU are unknown."""

    def devices():
        raise NvmlError(_Missing())

    verdicts = [result.verdict for result in run_checks(pod, devices=devices)]
    assert verdicts.count(NOT_CHECKED) == 2
    assert verdicts.count("undecided") == 1
    assert NOT_ENFORCED not in verdicts


class _Missing:
    value = 12


@pytest.mark.parametrize(
    ("status", "expected"), [("807", "the MPS server is not ready"), ("-2", "ended the process")]
)
def test_cuda_fails(pod, status, expected):
    """The result has its reason, even after a crash."""
    [(verdict, text)] = problems(pod | {"FAKE_CUDA": f"{status} 0 0"})
    assert verdict == NOT_CHECKED
    assert expected in text


def test_cuda_hangs(pod, monkeypatch):
    """CUDA waits for an MPS server that does not come."""
    monkeypatch.setattr(mps_check, "_CUDA_S", 0.5)
    [(verdict, text)] = problems(pod | {"FAKE_CUDA": "-1 0 0"})
    assert verdict == NOT_CHECKED
    assert "did not start within 0.5 s" in text


def test_machine_without_a_gpu(pod):
    """Without a CUDA driver, the limits of the environment have no effect."""
    del pod["LD_LIBRARY_PATH"]
    text = "effective limits: the CUDA driver (libcuda.so.1) is not installed here"
    assert problems(pod) == [(NOT_ENFORCED, text)]


def test_exit_status_of_the_command(pod, own_gpus, monkeypatch):
    """0 if all limits are enforced, else 1; one line per check."""
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
    assert "not enforced: effective share: 108 of 108 multiprocessors, for 30 %" in bad.output
