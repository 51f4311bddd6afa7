"""A real MLServer with a small ONNX network."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.testbed.model_server_process import (
    MODEL,
    ModelServerProcess,
    needing_environment,
    program,
)

PROGRAM = program("model-servers", "mlserver")
MODELS = Path(__file__).with_name("mlserver_models")
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
needs_mlserver = needing_environment("model-servers")


class MlServer(ModelServerProcess):
    """One MLServer."""

    def _command(self, folder: Path) -> Sequence[str]:
        settings = {
            **SETTINGS,
            "host": "127.0.0.1",
            "http_port": self.http_port,
            "grpc_port": self.grpc_port,
            "environments_dir": str(folder / "environments"),
        }
        repository = folder / MODEL
        repository.mkdir()
        (folder / "settings.json").write_text(json.dumps(settings), encoding="utf-8")
        (repository / "model-settings.json").write_text(
            json.dumps(MODEL_SETTINGS), encoding="utf-8"
        )
        return [str(PROGRAM), "start", str(folder)]

    def _variables(self) -> Mapping[str, str]:
        return {"PYTHONPATH": str(MODELS)}
