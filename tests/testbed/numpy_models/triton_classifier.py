"""The classifier for Triton's Python backend."""

import json
import time
from typing import Any

import triton_python_backend_utils as triton
from classifier import classify


class TritonPythonModel:
    """A model whose request may ask for a pause: parameter ``pause_s``."""

    def execute(self, requests: list[Any]) -> list[Any]:
        """Run each request's rows as one batch."""
        return [self._answer(request) for request in requests]

    def _answer(self, request: Any) -> Any:
        if pause_s := json.loads(request.parameters()).get("pause_s"):
            print(f"pausing for {pause_s} s", flush=True)
            time.sleep(pause_s)
        inputs = {tensor.name(): tensor.as_numpy() for tensor in request.inputs()}
        outputs = classify(**inputs)
        return triton.InferenceResponse([triton.Tensor(*output) for output in outputs.items()])
