"""containerd on a `Machine`: images from archives, containers from images."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.testbed import images
from tests.testbed.machine import Machine
from tests.testbed.processes import Process, StartFailedError

SOCKET = "/run/containerd/containerd.sock"
START_TIMEOUT_S = 180.0
_CTR = ("ctr", f"--address={SOCKET}", "--namespace=k8s.io")
_CNI_PROGRAMS = "/usr/lib/cni"

_CONFIG = """\
version = 2
root = "/var/lib/containerd"
state = "/run/containerd"
disabled_plugins = ["io.containerd.internal.v1.opt"]  # it would create /opt/containerd
[grpc]
address = "{socket}"
[plugins."io.containerd.grpc.v1.cri"]
sandbox_image = "{pause}"
# Machines may lack CAP_SYS_RESOURCE; without this every pod then fails there.
restrict_oom_score_adj = true
[plugins."io.containerd.grpc.v1.cri".cni]
bin_dir = "{programs}"
conf_dir = "/run/cni"
"""

_NETWORK = """\
{{"cniVersion": "0.4.0", "name": "pods", "plugins": [
    {{"type": "ptp", "ipMasq": false,
      "ipam": {{"type": "host-local", "subnet": "{pods}", "dataDir": "/run/cni/addresses",
                "routes": [{{"dst": "0.0.0.0/0"}}]}}}}
]}}
"""


class ContainerRuntime:
    """containerd with a network that gives each pod an address which the machine routes to.

    Args:
        machine: the machine that runs it.
    """

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        run = machine.files / "run"
        self._config = run / "containerd.toml"
        self._pause = run / "pause.tar"
        self._network = run / "cni" / "pods.conflist"
        self.process: Process = machine.program(
            "containerd", ["containerd", "--config=/run/containerd.toml"]
        )

    def start(self) -> None:
        """Start it; return when it answers.

        Raises:
            StartFailedError: it did not start; the message ends with its log's tail.
            ImageError: the pause program could not be compiled.
        """
        config = _CONFIG.format(socket=SOCKET, pause=images.PAUSE, programs=_CNI_PROGRAMS)
        self._config.write_text(config, encoding="utf-8")
        self._network.parent.mkdir()
        self._network.write_text(_NETWORK.format(pods=self._machine.network.pods), encoding="utf-8")
        self.process.start()
        self.process.wait_ready(self._answers, timeout_s=START_TIMEOUT_S)
        self.load(images.pause_image(self._pause))

    def load(self, archive: Path) -> None:
        """Import the images of an archive.

        Raises:
            StartFailedError: the import failed; the message contains containerd's output.
        """
        self.ctr("images", "import", str(archive))

    def ctr(self, *arguments: str) -> str:
        """Run containerd's client in the kubelet's namespace; return its output."""
        return self._machine.run(*_CTR, *arguments)

    def container(
        self,
        name: str,
        image: str,
        arguments: Sequence[str],
        *,
        environment: Mapping[str, str],
        folder: Path,
    ) -> Process:
        """Return a container (not started) on the machine's network, with its image's user.

        Args:
            name: name of the container; `ctr("tasks", "kill", name)` ends it.
            image: a loaded image.
            arguments: the command; it replaces the image's.
            environment: variables in addition to the image's.
            folder: a folder of the host, mounted read-only below ``/`` under its own name.
        """
        mount = f"--mount=type=bind,src={folder},dst=/{folder.name},options=rbind:ro"
        variables = [f"--env={key}={value}" for key, value in environment.items()]
        return self._machine.program(
            name,
            [*_CTR, "run", "--rm", "--net-host", mount, *variables, image, name, *arguments],
        )

    def _answers(self) -> bool:
        try:
            self.ctr("plugins", "list")
        except StartFailedError:
            return False
        return True
