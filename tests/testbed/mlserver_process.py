"""A real MLServer with a small ONNX network, as a process on loopback.

It has an environment of its own, `build/model-servers`, because its dependencies conflict with
those of the service. `make build/model-servers/.installed` creates it.
"""

import json
from pathlib import Path

from tritonclient.grpc import InferenceServerClient
from tritonclient.utils import InferenceServerException

from tests.require import needing
from tests.testbed import REPOSITORY
from tests.testbed.processes import Process
from workbench.cluster.guard import Guard
from workbench.cluster.process import free_port

PROGRAM = REPOSITORY / "build" / "model-servers" / "bin" / "mlserver"
MODELS = Path(__file__).with_name("mlserver_models")
MODEL = "classifier"
INPUTS = [
    {"name": "image", "datatype": "FP32", "shape": [-1, 3, 8, 8]},
    {"name": "number", "datatype": "INT64", "shape": [-1, 1]},
]
OUTPUTS = [
    {"name": "scores", "datatype": "FP32", "shape": [-1, 5]},
    {"name": "same_number", "datatype": "INT64", "shape": [-1, 1]},
]
SETTINGS = {
    "debug": False,
    "grpc_max_message_length": 64 * 2**20,
    "metrics_endpoint": None,
    "parallel_workers": 0,
}
MODEL_SETTINGS = {
    "name": MODEL,
    "implementation": "onnx_classifier.OnnxClassifier",
    "inputs": INPUTS,
    "outputs": OUTPUTS,
}
START_S = 120.0
needs_mlserver = needing(
    PROGRAM.exists(),
    "MLServer is not installed: run `make build/model-servers/.installed`",
)


class MlServer:
    """One MLServer; it can be killed and started again on the same ports.

    Args:
        folder: for its settings and its log.

    Attributes:
        grpc_port: that of its gRPC service.
        process: the process.
    """

    def __init__(self, folder: Path) -> None:
        self.grpc_port = free_port()
        settings = {
            **SETTINGS,
            "host": "127.0.0.1",
            "http_port": free_port(),
            "grpc_port": self.grpc_port,
            "environments_dir": str(folder / "environments"),
        }
        repository = folder / MODEL
        repository.mkdir()
        (folder / "settings.json").write_text(json.dumps(settings), encoding="utf-8")
        (repository / "model-settings.json").write_text(
            json.dumps(MODEL_SETTINGS), encoding="utf-8"
        )
        self._guard = Guard()
        self.process = Process(
            "mlserver",
            [str(PROGRAM), "start", str(folder)],
            log_folder=folder,
            guard=self._guard,
            environment={"PYTHONPATH": str(MODELS)},
        )

    def start(self) -> None:
        """Start it; wait until its model is ready."""
        self.process.start()
        self.process.wait_ready(self._is_ready, timeout_s=START_S)

    def stop(self) -> None:
        """End it, and what watches it."""
        self.process.kill()
        self._guard.close()

    def _is_ready(self) -> bool:
        """Ask over gRPC, which MLServer serves last."""
        try:
            with InferenceServerClient(f"127.0.0.1:{self.grpc_port}") as client:
                return bool(client.is_model_ready(MODEL))
        except InferenceServerException:
            return False
