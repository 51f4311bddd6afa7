"""A worker of the kind cluster: a container of Docker with systemd, containerd and the kubelet."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from tests.testbed.docker import docker

_CTR = ("ctr", "--namespace=k8s.io")
_KUBELET = ("systemctl", "kill", "--kill-whom=main")


class Worker:
    """A node whose pods are containers.

    Attributes:
        name: name of the node and of Docker's container.
        address: its IP address, which this machine reaches.
        files: its root folder as this machine sees it; root may read it.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        network = "{{range .NetworkSettings.Networks}}{{.IPAddress}}{{end}}"
        self.address = docker("inspect", f"--format={network}", name).strip()
        first_process = docker("inspect", "--format={{.State.Pid}}", name).strip()
        self.files = Path(f"/proc/{first_process}/root")

    def run(self, *command: str) -> str:
        """Run a command on the node; return its output.

        Raises:
            BuildFailedError: it failed; the message ends with its output.
        """
        return docker("exec", self.name, *command)

    def ctr(self, *arguments: str) -> str:
        """Run containerd's client in the kubelet's namespace; return its output."""
        return self.run(*_CTR, *arguments)

    def container_command(
        self, name: str, image: str, arguments: Sequence[str], *options: str
    ) -> list[str]:
        """Return this machine's command that runs a container of a loaded image on the node.

        `ctr("tasks", "kill", name)` ends the container.
        """
        return [
            "docker",
            "exec",
            self.name,
            *_CTR,
            "run",
            "--rm",
            *options,
            image,
            name,
            *arguments,
        ]

    @contextmanager
    def paused_kubelet(self) -> Iterator[None]:
        """Pause the kubelet, as if it got no CPU time."""
        self.run(*_KUBELET, "--signal=STOP", "kubelet")
        try:
            yield
        finally:
            self.run(*_KUBELET, "--signal=CONT", "kubelet")
