"""A machine inside the host, for a real node: separate processes, network and mounts.

It consists of Linux namespaces: kubelet and container runtime change only these (mounts, iptables,
interfaces, orphaned processes), and the kernel removes everything when the first process ends. A
pair of virtual interfaces (veth) connects it to the host. The host has only its cgroups, which
`stop` removes, and its files, in a folder of the caller.
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
"""Private folders of the machine; they lie below `files`, where tests read them."""

_CGROUP = "esg-testbed-"


@dataclass(frozen=True, slots=True)
class Network:
    """Addresses of one machine, from a range (RFC 6598) that no private network should use.

    Attributes:
        number: 0 to 255; machines with different numbers can run at the same time.
    """

    number: int

    @property
    def host(self) -> str:
        """Address of the host's interface."""
        return f"100.64.{self.number}.1"

    @property
    def machine(self) -> str:
        """Address of the machine's interface."""
        return f"100.64.{self.number}.2"

    @property
    def pods(self) -> str:
        """Address range of its pods."""
        return f"100.65.{self.number}.0/24"

    @property
    def services(self) -> str:
        """Address range of the cluster's services."""
        return f"100.66.{self.number}.0/24"

    @property
    def first_service(self) -> str:
        """Service address of the API server."""
        return f"100.66.{self.number}.1"

    @property
    def dns(self) -> str:
        """Service address of the cluster's DNS."""
        return f"100.66.{self.number}.10"

    @property
    def interface(self) -> str:
        """Name of the host's interface."""
        return f"esg{self.number}"


class Machine:
    """Namespaces with a first process; `start` creates and `stop` removes them.

    Args:
        files: an exclusive folder for `run`, `var/lib` and `var/log` of the machine.
        logs: folder of its programs' logs.
        guard: ends it if this process dies.
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
        """Create it and its network interfaces.

        Raises:
            StartFailedError: a step failed; the message contains its output.
        """
        self._init.start()
        self._init.wait_ready(
            lambda: "up" in self._init.log.read_text(encoding="utf-8"), timeout_s=START_TIMEOUT_S
        )
        self._pid = _only_child(self._init.pid)
        self._mount()
        self._connect()
        _remove_orphaned_cgroups()
        for hierarchy in _hierarchies():
            (hierarchy / self.cgroup).mkdir(exist_ok=True)

    def stop(self) -> None:
        """End all its processes; harmless when called twice."""
        self._init.kill()  # `unshare` lets no other signal through
        for program in self._programs:
            program.kill()
        self._programs.clear()
        with suppress(subprocess.CalledProcessError):  # `start` may have failed before it
            _ip("link", "delete", self.network.interface)
        for hierarchy in _hierarchies():
            _remove_cgroup(hierarchy / self.cgroup)

    def command(self, *command: str) -> list[str]:
        """Return the host's command that runs a command on the machine."""
        enter = ["nsenter", f"--target={self._pid}", "--mount", "--net", "--pid"]
        return [*enter, "--", *command]

    def run(self, *command: str) -> str:
        """Run a command on the machine; return its output.

        Raises:
            StartFailedError: it failed; the message contains its output.
        """
        done = subprocess.run(self.command(*command), check=False, capture_output=True, text=True)
        if done.returncode != 0:
            raise StartFailedError(f"{' '.join(command)} failed: {done.stdout}{done.stderr}")
        return done.stdout

    def program(
        self, name: str, command: Sequence[str], *, environment: Mapping[str, str] | None = None
    ) -> Process:
        """Return a program (not started) that runs on the machine and ends with it."""
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
    def paused(self, program: Process) -> Iterator[None]:
        """Pause one of its programs, as if it got no CPU time."""
        inner = _only_child(program.pid)
        os.kill(inner, signal.SIGSTOP)
        try:
            yield
        finally:
            os.kill(inner, signal.SIGCONT)
            if program.pid is not None:
                os.kill(program.pid, signal.SIGCONT)  # `nsenter` stops when its child does

    def end(self, program: Process) -> None:
        """Kill one of its programs; the program's own `kill` would end only `nsenter`."""
        os.kill(_only_child(program.pid), signal.SIGKILL)
        program.kill()

    def _mount(self) -> None:
        for path in PRIVATE:
            folder = self.files / path
            folder.mkdir(parents=True)
            self.run("mount", "--bind", str(folder), f"/{path}")

    def _connect(self) -> None:
        """Create interfaces and routes; the kernel removes both with the machine's interface."""
        network = self.network
        outer, inner = network.interface, "eth0"
        peer = ("peer", "name", inner, "netns", str(self._pid))
        _ip("link", "add", outer, "type", "veth", *peer)
        _ip("address", "add", f"{network.host}/30", "dev", outer)
        _ip("link", "set", outer, "up")
        for command in (
            ["ip", "link", "set", "lo", "up"],
            ["ip", "address", "add", f"{network.machine}/30", "dev", inner],
            ["ip", "link", "set", inner, "up"],
            ["ip", "route", "add", "default", "via", network.host],
            ["sh", "-c", "echo 1 > /proc/sys/net/ipv4/ip_forward"],
        ):
            self.run(*command)
        for addresses in (network.pods, network.services):
            _ip("route", "add", addresses, "via", network.machine)


def _init_command() -> list[str]:
    script = Path(__file__).with_name("machine_init.py")
    return [
        *("unshare", "--mount", "--net", "--pid", "--fork", "--kill-child", "--mount-proc"),
        *(sys.executable, "-I", "-S", str(script)),
    ]


def _unused_network() -> Network:
    for number in random.SystemRandom().sample(range(256), 256):
        network = Network(number)
        if not _has_interface(network):
            return network
    raise StartFailedError("no free network: 256 machines run; stop one")


def _has_interface(network: Network) -> bool:
    return Path("/sys/class/net", network.interface).exists()


def _only_child(parent: int | None) -> int:
    children = Path(f"/proc/{parent}/task/{parent}/children").read_text(encoding="ascii")
    [child] = children.split()
    return int(child)


def _hierarchies() -> list[Path]:
    """Return the roots of cgroups: one in version 2, one per controller in version 1."""
    if (CGROUPS / "cgroup.controllers").exists():
        return [CGROUPS]
    return [path for path in CGROUPS.iterdir() if path.is_dir() and not path.is_symlink()]


def _remove_orphaned_cgroups() -> None:
    """Remove cgroups of machines from killed test runs: their interfaces are gone."""
    for hierarchy in _hierarchies():
        for folder in hierarchy.glob(f"{_CGROUP}*"):
            number = folder.name.removeprefix(_CGROUP)
            if number.isdecimal() and not _has_interface(Network(int(number))):
                _remove_cgroup(folder)


def _remove_cgroup(folder: Path) -> None:
    """Remove a cgroup and those below it; killed processes may still be in them for a moment."""
    for root, _, _ in os.walk(folder, topdown=False):
        deadline_s = time.monotonic() + START_TIMEOUT_S
        while True:
            try:
                Path(root).rmdir()
            except OSError:
                if time.monotonic() > deadline_s:
                    raise
                time.sleep(0.05)
            else:
                break


def _ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True, capture_output=True)
