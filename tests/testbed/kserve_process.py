"""KServe's Python server."""

from collections.abc import Sequence
from pathlib import Path

from tests.testbed.model_server_process import (
    NUMPY_MODELS,
    ModelServerProcess,
    needing_environment,
    program,
)

needs_kserve = needing_environment("kserve")


class KServe(ModelServerProcess):
    """One server of KServe, without its controller."""

    def _command(self, folder: Path) -> Sequence[str]:
        ports = (str(self.http_port), str(self.grpc_port))
        python = program("kserve", "python")
        return [str(python), str(NUMPY_MODELS / "kserve_server.py"), *ports]
