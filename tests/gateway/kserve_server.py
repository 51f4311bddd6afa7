"""A model of KServe's Python server: it doubles its input.

python kserve_server.py HTTP_PORT GRPC_PORT
"""

import sys
from typing import Any

from kserve import InferOutput, InferRequest, InferResponse, Model, ModelServer
from kserve.utils.utils import generate_uuid


class Doubling(Model):
    """Answers ``y`` = 2 ``x``."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.ready = True

    def predict(self, payload: InferRequest, *_: Any, **__: Any) -> InferResponse:
        """Run the rows as one batch."""
        x = payload.inputs[0]
        y = InferOutput(name="y", shape=x.shape, datatype=x.datatype)
        y.set_data_from_numpy(2 * x.as_numpy(), binary_data=True)
        return InferResponse(payload.id or generate_uuid(), self.name, [y])  # HTTP requires one


if __name__ == "__main__":
    HTTP_PORT, GRPC_PORT = map(int, sys.argv[1:])
    ModelServer(http_port=HTTP_PORT, grpc_port=GRPC_PORT, enable_grpc=True).start(
        [Doubling("doubling")]
    )
