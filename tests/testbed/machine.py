"""A machine inside this one, for a real node: its own processes, network and mounts.

It is made of Linux namespaces, so what a kubelet and a container runtime do to a machine (mounts,
iptables, interfaces, processes that outlive their parents) they do to that, and when its first
process ends the kernel takes all of it away. One wire leads to it. Here stay only its cgroups,
which `stop` removes, and its files, which are in the folder given.
"""

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from tests.testbed.processes import Guard, Process, StartFailedError

START_TIMEOUT_S = 180.0
CGROUPS = Path("/sys/fs/cgroup")
PRIVATE = ("run", "var/lib", "var/log")
"""Folders that the machine has for itself. They lie below `files`, where tests see them."""

_CGROUP = "esg-testbed-"


@dataclass(frozen=True, slots=True)
class Network:
    """Addresses of one machine, from ranges (RFC 6598) that no private network should use.

    Attributes:
        number: 0 to 255; machines of different numbers can run side by side.
    """

    number: int

    @property
    def host(self) -> str:
        """This machine's end of the wire."""
        return f"100.64.{self.number}.1"

    @property
    def machine(self) -> str:
        """The other end."""
        return f"100.64.{self.number}.2"

    @property
    def pods(self) -> str:
        """Where its pods are."""
        return f"100.65.{self.number}.0/24"

    @property
    def services(self) -> str:
        """Where services are, for the machine and for who asks it."""
        return f"100.66.{self.number}.0/24"

    @property
    def first_service(self) -> str:
        """The API server's, as pods know it."""
        return f"100.66.{self.number}.1"

    @property
    def dns(self) -> str:
        """The cluster's DNS, as pods know it."""
        return f"100.66.{self.number}.10"

    @property
    def interface(self) -> str:
        """This machine's end of the wire, by name."""
        return f"esg{self.number}"


class Machine:
    """Namespaces with a first process; made by `start`, gone after `stop`.

    Args:
        files: a folder of its own, with `run`, `var/lib` and `var/log` of the machine in it.
        logs: where its programs log.
        guard: who ends it should this process die.
    """

    def __init__(self, files: Path, *, logs: Path, guard: Guard) -> None:
        self.files = files
        self.network = _unused_network()
        self.cgroup = f"{_CGROUP}{self.network.number}"
        self._logs = logs
        self._guard = guard
        self._programs: list[Process] = []
        self._init = Process("machine", _init_command(), log_folder=logs, guard=guard)
        self._pid = 0

    def start(self) -> None:
        """Make it, and the wire.

        Raises:
            StartFailedError: it could not be made; the message says what was said against it.
        """
        self._init.start()
        self._init.wait_ready(
            lambda: "up" in self._init.log.read_text(encoding="utf-8"), timeout_s=START_TIMEOUT_S
        )
        self._pid = _only_child(self._init.pid)
        self._mount()
        self._wire()
        _remove_cgroups_of_the_dead()
        for hierarchy in _hierarchies():
            (hierarchy / self.cgroup).mkdir(exist_ok=True)

    def stop(self) -> None:
        """End all that runs in it; harmless when called twice."""
        self._init.kill()  # `unshare` lets no other signal through
        for program in self._programs:
            program.kill()
        self._programs.clear()
        with suppress(subprocess.CalledProcessError):  # it may never have been there
            _ip("link", "delete", self.network.interface)
        for hierarchy in _hierarchies():
            _remove_cgroup(hierarchy / self.cgroup)

    def command(self, *command: str) -> list[str]:
        """What to run here so that the command runs there."""
        into = ["nsenter", f"--target={self._pid}", "--mount", "--net", "--pid"]
        return [*into, "--", *command]

    def run(self, *command: str) -> str:
        """What a command prints that runs there.

        Raises:
            StartFailedError: it ended with an error; the message has what it printed.
        """
        done = subprocess.run(self.command(*command), check=False, capture_output=True, text=True)
        if done.returncode != 0:
            raise StartFailedError(f"{' '.join(command)} failed: {done.stdout}{done.stderr}")
        return done.stdout

    def program(
        self, name: str, command: Sequence[str], *, environment: Mapping[str, str] | None = None
    ) -> Process:
        """A program (not started) that runs there, and ends with the machine."""
        process = Process(
            name,
            self.command(*command),
            log_folder=self._logs,
            guard=self._guard,
            environment=environment,
        )
        self._programs.append(process)
        return process

    @contextmanager
    def held(self, program: Process) -> Iterator[None]:
        """The machine with one of its programs stopped short, as if it had no time to run."""
        inner = _only_child(program.pid)
        os.kill(inner, signal.SIGSTOP)
        try:
            yield
        finally:
            os.kill(inner, signal.SIGCONT)
            if program.pid is not None:
                os.kill(program.pid, signal.SIGCONT)  # `nsenter` stops when its child does

    def end(self, program: Process) -> None:
        """End one of its programs at once; its own `kill` would end `nsenter` alone."""
        os.kill(_only_child(program.pid), signal.SIGKILL)
        program.kill()

    def _mount(self) -> None:
        for place in PRIVATE:
            folder = self.files / place
            folder.mkdir(parents=True)
            self.run("mount", "--bind", str(folder), f"/{place}")

    def _wire(self) -> None:
        """A wire with routes to what is behind it, which go when the machine's end does."""
        network = self.network
        here, there = network.interface, "eth0"
        peer = ("peer", "name", there, "netns", str(self._pid))
        _ip("link", "add", here, "type", "veth", *peer)
        _ip("address", "add", f"{network.host}/30", "dev", here)
        _ip("link", "set", here, "up")
        for command in (
            ["ip", "link", "set", "lo", "up"],
            ["ip", "address", "add", f"{network.machine}/30", "dev", there],
            ["ip", "link", "set", there, "up"],
            ["ip", "route", "add", "default", "via", network.host],
            ["sh", "-c", "echo 1 > /proc/sys/net/ipv4/ip_forward"],
        ):
            self.run(*command)
        for behind in (network.pods, network.services):
            _ip("route", "add", behind, "via", network.machine)


def _init_command() -> list[str]:
    script = Path(__file__).with_name("machine_init.py")
    return [
        *("unshare", "--mount", "--net", "--pid", "--fork", "--kill-child", "--mount-proc"),
        *(sys.executable, "-I", "-S", str(script)),
    ]


def _unused_network() -> Network:
    for number in random.SystemRandom().sample(range(256), 256):
        network = Network(number)
        if not _has_wire(network):
            return network
    raise StartFailedError("256 machines are there already")


def _has_wire(network: Network) -> bool:
    return Path("/sys/class/net", network.interface).exists()


def _only_child(parent: int | None) -> int:
    children = Path(f"/proc/{parent}/task/{parent}/children").read_text(encoding="ascii")
    [child] = children.split()
    return int(child)


def _hierarchies() -> list[Path]:
    """Where cgroups are made: one place in version 2; in version 1 one for each controller."""
    if (CGROUPS / "cgroup.controllers").exists():
        return [CGROUPS]
    return [path for path in CGROUPS.iterdir() if path.is_dir() and not path.is_symlink()]


def _remove_cgroups_of_the_dead() -> None:
    """What the machines of a killed test run left: they have no wire any more."""
    for hierarchy in _hierarchies():
        for folder in hierarchy.glob(f"{_CGROUP}*"):
            number = folder.name.removeprefix(_CGROUP)
            if number.isdecimal() and not _has_wire(Network(int(number))):
                _remove_cgroup(folder)


def _remove_cgroup(folder: Path) -> None:
    """A cgroup and those below it; the processes in them have been killed, and may linger."""
    for root, _, _ in os.walk(folder, topdown=False):
        deadline = time.monotonic() + START_TIMEOUT_S
        while True:
            try:
                Path(root).rmdir()
            except OSError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.05)
            else:
                break


def _ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True, capture_output=True)
