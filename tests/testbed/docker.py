"""Docker for the test bed: the machine's daemon where one runs, else one of the test bed's own.

The test bed's daemon runs in namespaces: its interfaces, firewall rules, mounts and processes are
invisible to the machine, and the kernel removes them with the namespaces, whatever ended their
first process. Its images stay in the user's cache folder for the next run. A machine's own Docker
is only a client's server here: its settings and objects of others stay as they are.
"""

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from tests.testbed import oci_runtime
from tests.testbed.build_steps import cache_folder, locked, run
from tests.testbed.machine_requirements import docker_answers
from tests.testbed.processes import Process
from workbench.cluster.guard import Guard

START_TIMEOUT_S = 120.0
CGROUP = "esg-testbed-docker"
CGROUPS = Path("/sys/fs/cgroup")
_NAMESPACES = ("--mount", "--net", "--pid", "--fork", "--kill-child", "--mount-proc")
_INSIDE = "ESG_TESTBED_NAMESPACES"


def enter_namespaces(command: Sequence[str]) -> None:
    """Become `command` in new namespaces, unless this process is in them or a Docker answers."""
    if os.environ.get(_INSIDE) or docker_answers():
        return
    os.environ[_INSIDE] = "true"
    os.execvp("unshare", ["unshare", *_NAMESPACES, "--", *command])


@contextmanager
def daemon() -> Iterator[None]:
    """Use the machine's Docker, or start one in these namespaces and end it afterwards.

    Raises:
        StartFailedError: it did not start; the message ends with its log's tail.
    """
    if docker_answers():
        yield
        return
    with tempfile.TemporaryDirectory(prefix="esg-docker-") as scratch, locked("docker"):
        subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
        folder, guard = Path(scratch), Guard()
        socket = f"unix://{folder}/docker.sock"
        process = Process("dockerd", _command(folder, socket), log_folder=folder, guard=guard)
        process.start()
        os.environ["DOCKER_HOST"] = socket
        try:
            process.wait_ready(docker_answers, timeout_s=START_TIMEOUT_S)
            _remove_leftovers()
            yield
        finally:
            process.stop(grace_s=30)
            guard.close()
            del os.environ["DOCKER_HOST"]
            _remove_cgroups()


def docker(*arguments: str) -> str:
    """Run a Docker command; return its output.

    Raises:
        BuildFailedError: it failed.
    """
    return run(["docker", *arguments])


def _command(folder: Path, socket: str) -> list[str]:
    data = cache_folder().with_name("docker")
    return [
        "dockerd",
        f"--host={socket}",
        f"--data-root={data}",
        f"--exec-root={folder}/exec",
        f"--pidfile={folder}/dockerd.pid",
        "--exec-opt=native.cgroupdriver=cgroupfs",  # not the machine's systemd, if it has one
        f"--cgroup-parent=/{CGROUP}",
        f"--add-runtime=limited={_runtime(folder)}",
        "--default-runtime=limited",
    ]


def _runtime(folder: Path) -> Path:
    """Write the program that the daemon calls in place of runc."""
    path = folder / "runc-limited"
    path.write_text(
        f'#!/bin/sh\nexec {sys.executable} -I -S {Path(oci_runtime.__file__)} "$@"\n',
        encoding="utf-8",
    )
    path.chmod(0o700)
    return path


def _remove_leftovers() -> None:
    """Remove containers and volumes of a killed run; the daemon belongs to the test bed alone."""
    if containers := docker("ps", "--all", "--quiet").split():
        docker("rm", "--force", "--volumes", *containers)
    docker("volume", "prune", "--force")
    docker("network", "prune", "--force")


def _remove_cgroups() -> None:
    """Remove the containers' cgroups, which no namespace removes: one tree, or one per controller.

    A process that is not quite gone keeps its cgroup; the next run removes that one.
    """
    for root in (CGROUPS / CGROUP, *CGROUPS.glob(f"*/{CGROUP}")):
        for folder, _, _ in os.walk(root, topdown=False):
            with suppress(OSError):
                Path(folder).rmdir()
