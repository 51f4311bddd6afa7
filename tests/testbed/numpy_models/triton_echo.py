"""A model for Triton's Python backend that answers its inputs."""

from typing import Any

import triton_python_backend_utils as triton


class TritonPythonModel:
    """Outputs have the inputs' names."""

    def execute(self, requests: list[Any]) -> list[Any]:
        """Answer each request."""
        return [triton.InferenceResponse(request.inputs()) for request in requests]
