"""The machine of a real node: separate from the host, and removed with its owner."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.require import needing
from tests.testbed import REPOSITORY, machine_requirements
from tests.testbed.api import wait_until
from tests.testbed.machine import CGROUPS, Machine
from tests.testbed.processes import Guard

needs_root = needing(
    not machine_requirements.missing_for_a_node(),
    machine_requirements.missing_for_a_node() or "nothing is missing",
)
OWNER = """
import pathlib, sys, time
from tests.testbed.machine import Machine
from tests.testbed.processes import Guard
folder = pathlib.Path(sys.argv[1])
machine = Machine(folder / "machine", logs=folder, guard=Guard(grace_s=0.2))
machine.start()
machine.program("sleeper", ["sleep", "1000"]).start()
print(machine.network.interface, flush=True)
time.sleep(60)
"""


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[Machine]:
    guard = Guard()
    machine = Machine(tmp_path / "machine", logs=tmp_path, guard=guard)
    try:
        machine.start()
        yield machine
    finally:
        machine.stop()
        guard.close()


def state(machine: Machine) -> str:
    """Return the kernel's letters for the ticking program's state; empty if it does not run."""
    lines = machine.run("ps", "-e", "-o", "stat,args").splitlines()
    return next((line for line in lines if "echo tick" in line), "")


def interfaces() -> set[str]:
    return {path.name for path in Path("/sys/class/net").iterdir()}


@needs_root
def test_it_has_processes_mounts_and_a_network_of_its_own(machine: Machine) -> None:
    """Process ids start at 1, its folders are private, and an interface leads to it."""
    assert "machine_init" in machine.run("cat", "/proc/1/cmdline")
    machine.run("touch", "/run/inner")
    assert (machine.files / "run" / "inner").exists()
    assert not Path("/run/inner").exists()
    assert machine.network.machine in machine.run("ip", "-brief", "address")
    assert machine.network.interface in interfaces()


@needs_root
def test_a_program_is_paused_and_ended(machine: Machine, tmp_path: Path) -> None:
    """Both reach the program itself, not its parent."""
    ticking = "while true; do echo tick; sleep 0.02; done"
    program = machine.program("ticking", ["sh", "-c", ticking])
    program.start()
    program.wait_ready(lambda: program.log.stat().st_size > 0, timeout_s=60)
    with machine.paused(program):
        wait_until(lambda: state(machine).startswith("T"), what="it is stopped")
        before = program.log.stat().st_size
    wait_until(lambda: program.log.stat().st_size > before, what="it continues")
    machine.end(program)
    wait_until(lambda: state(machine) == "", what="it is ended")


@needs_root
def test_stop_removes_everything(machine: Machine) -> None:
    """Its programs, its interface, its cgroups."""
    sleeper = machine.program("sleeper", ["sleep", "1000"])
    sleeper.start()
    machine.stop()
    assert sleeper.pid is None
    assert machine.network.interface not in interfaces()
    assert not list(CGROUPS.glob(f"**/{machine.cgroup}"))


@needs_root
def test_a_killed_owner_leaves_no_program_and_no_interface(tmp_path: Path) -> None:
    """The kernel removes both; the next machine removes the empty cgroups."""
    with subprocess.Popen(
        [sys.executable, "-c", OWNER, str(tmp_path)],
        stdout=subprocess.PIPE, text=True, cwd=REPOSITORY,
    ) as owner:  # fmt: skip
        assert owner.stdout is not None
        interface = owner.stdout.readline().strip()
        assert interface in interfaces()
        owner.kill()
    wait_until(lambda: interface not in interfaces(), what="the interface is removed")
    guard = Guard()
    logs = tmp_path / "following-logs"
    logs.mkdir()
    following = Machine(tmp_path / "following", logs=logs, guard=guard)
    following.start()
    following.stop()
    guard.close()
    cgroups = {path.name for path in CGROUPS.glob("**/esg-testbed-*")}
    assert interface.replace("esg", "esg-testbed-") not in cgroups


@pytest.mark.parametrize("purpose", ["chart", "agent", "node"])
def test_missing_programs_are_named_by_their_packages(
    monkeypatch: pytest.MonkeyPatch, purpose: str
) -> None:
    """Without any program, every purpose lacks a package."""
    monkeypatch.setenv("PATH", "")
    assert machine_requirements.missing_packages(purpose)


def test_a_machine_without_go_gives_a_reason_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    """A run without the real node prints it."""
    monkeypatch.setenv("PATH", "")
    reason = machine_requirements.missing_for_a_node()
    assert reason
    assert "\n" not in reason
