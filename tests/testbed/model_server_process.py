"""A real model server as a process on loopback.

Each server has an environment of its own below `build`, because its dependencies conflict with
those of the service. `make build/NAME/.installed` creates it.
"""

import os
import signal
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest
from tritonclient import grpc, http
from tritonclient.utils import InferenceServerException

from tests.require import needing
from tests.testbed import REPOSITORY
from tests.testbed.processes import Process
from workbench.cluster.guard import Guard
from workbench.cluster.process import free_port

MODEL = "classifier"
START_S = 180.0
NUMPY_MODELS = Path(__file__).with_name("numpy_models")


def program(environment: str, name: str) -> Path:
    """Return the path of an environment's program."""
    return REPOSITORY / "build" / environment / "bin" / name


def needing_environment(environment: str) -> pytest.MarkDecorator:
    """Skip a test where the environment is missing."""
    reason = f"the server is not installed: run `make build/{environment}/.installed`"
    return needing(program(environment, "python").exists(), reason)


class ModelServerProcess(ABC):
    """One server of the classifier; it can be killed and started again on the same ports.

    Args:
        folder: for its settings and its log.

    Attributes:
        http_port: that of its HTTP service.
        grpc_port: that of its gRPC service.
        process: the process.
    """

    def __init__(self, folder: Path) -> None:
        self.http_port, self.grpc_port = free_port(), free_port()
        self._guard = Guard()
        self.process = Process(
            type(self).__name__,
            self._command(folder),
            log_folder=folder,
            guard=self._guard,
            environment=self._variables(),
        )

    @abstractmethod
    def _command(self, folder: Path) -> Sequence[str]:
        """Write the server's files, and return its command."""

    def _variables(self) -> Mapping[str, str]:
        return {}

    def start(self) -> None:
        """Start it; wait until its model is ready."""
        self.process.start()
        self.process.wait_ready(self._is_ready, timeout_s=START_S)

    def kill(self) -> None:
        """Kill it and its children, as the end of a container does."""
        if (pid := self.process.pid) is not None:
            os.killpg(pid, signal.SIGKILL)
        self.process.kill()

    def stop(self) -> None:
        """End it, and what watches it."""
        self.kill()
        self._guard.close()

    def _is_ready(self) -> bool:
        """Return true if the model is ready over gRPC, which MLServer serves last, and HTTP."""
        try:
            with (
                grpc.InferenceServerClient(f"127.0.0.1:{self.grpc_port}") as grpc_client,
                http.InferenceServerClient(f"127.0.0.1:{self.http_port}") as http_client,
            ):
                return all(client.is_model_ready(MODEL) for client in (grpc_client, http_client))
        except (InferenceServerException, OSError):
            return False
