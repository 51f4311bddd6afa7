"""The machine that a real node runs on: it is another one, and nothing of it outlives its owner."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.require import needing
from tests.testbed import REPOSITORY, machine_needs
from tests.testbed.api import wait_until
from tests.testbed.machine import CGROUPS, Machine
from tests.testbed.processes import Guard

needs_root = needing(
    not machine_needs.missing_for_a_node(), machine_needs.missing_for_a_node() or "all is there"
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
    made = Machine(tmp_path / "machine", logs=tmp_path, guard=guard)
    try:
        made.start()
        yield made
    finally:
        made.stop()
        guard.close()


def state(machine: Machine) -> str:
    """In the kernel's letters, how the program that ticks is; empty where it is not."""
    lines = machine.run("ps", "-e", "-o", "stat,args").splitlines()
    return next((line for line in lines if "echo tick" in line), "")


def wires() -> set[str]:
    return {path.name for path in Path("/sys/class/net").iterdir()}


@needs_root
def test_it_has_processes_mounts_and_a_network_of_its_own(machine: Machine) -> None:
    """Its first process is the first, its folders are its own, and a wire leads to it."""
    assert "machine_init" in machine.run("cat", "/proc/1/cmdline")
    machine.run("touch", "/run/there")
    assert (machine.files / "run" / "there").exists()
    assert not Path("/run/there").exists()
    assert machine.network.machine in machine.run("ip", "-brief", "address")
    assert machine.network.interface in wires()


@needs_root
def test_a_program_is_ended_and_held(machine: Machine, tmp_path: Path) -> None:
    """Both reach the program itself and not what it was started by."""
    ticking = "while true; do echo tick; sleep 0.02; done"
    program = machine.program("ticking", ["sh", "-c", ticking])
    program.start()
    program.wait_ready(lambda: program.log.stat().st_size > 0, timeout_s=60)
    with machine.held(program):
        assert state(machine).startswith("T")
        before = program.log.stat().st_size
    wait_until(lambda: program.log.stat().st_size > before, what="it goes on")
    machine.end(program)
    assert state(machine) == ""


@needs_root
def test_nothing_of_it_is_left(machine: Machine) -> None:
    """Not its programs, not its wire, not its cgroups."""
    sleeper = machine.program("sleeper", ["sleep", "1000"])
    sleeper.start()
    machine.stop()
    assert sleeper.pid is None
    assert machine.network.interface not in wires()
    assert not list(CGROUPS.glob(f"**/{machine.cgroup}"))


@needs_root
def test_a_killed_owner_leaves_no_program_and_no_wire(tmp_path: Path) -> None:
    """What cannot be seen to, the kernel does; the next machine removes the empty cgroups."""
    with subprocess.Popen(
        [sys.executable, "-c", OWNER, str(tmp_path)],
        stdout=subprocess.PIPE, text=True, cwd=REPOSITORY,
    ) as owner:  # fmt: skip
        assert owner.stdout is not None
        wire = owner.stdout.readline().strip()
        assert wire in wires()
        owner.kill()
    wait_until(lambda: wire not in wires(), what="the wire is gone")
    guard = Guard()
    logs = tmp_path / "following-logs"
    logs.mkdir()
    following = Machine(tmp_path / "following", logs=logs, guard=guard)
    following.start()
    following.stop()
    guard.close()
    left = {path.name for path in CGROUPS.glob("**/esg-testbed-*")}
    assert wire.replace("esg", "esg-testbed-") not in left


@pytest.mark.parametrize("purpose", ["chart", "agent", "node"])
def test_what_is_missing_is_named_by_its_package(
    monkeypatch: pytest.MonkeyPatch, purpose: str
) -> None:
    """Where no program is found, each purpose has something to say."""
    monkeypatch.setenv("PATH", "")
    assert machine_needs.missing_packages(purpose)


def test_a_machine_without_go_is_told_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that a run without the real node says why."""
    monkeypatch.setenv("PATH", "")
    said = machine_needs.missing_for_a_node()
    assert said
    assert "\n" not in said
