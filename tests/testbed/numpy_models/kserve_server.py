"""KServe's Python server with the classifier.

python kserve_server.py HTTP_PORT GRPC_PORT
"""

import asyncio
import sys
from typing import Any

from classifier import SHAPE, classify
from kserve import InferOutput, InferRequest, InferResponse, Model, ModelServer
from kserve.errors import InvalidInput
from kserve.protocol.infer_type import to_http_parameters
from kserve.utils.utils import generate_uuid


class Classifier(Model):
    """A model whose request may ask for a pause: parameter ``pause_s``."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.ready = True

    async def get_input_types(self) -> list[dict[str, Any]]:
        """Return the inputs of the model's metadata."""
        return [
            {"name": "image", "datatype": "FP32", "shape": [-1, *SHAPE]},
            {"name": "number", "datatype": "INT64", "shape": [-1, 1]},
        ]

    async def predict(self, payload: InferRequest, *_: Any, **__: Any) -> InferResponse:
        """Run the rows as one batch."""
        if pause_s := to_http_parameters(payload.parameters or {}).get("pause_s"):
            print(f"pausing for {pause_s} s", flush=True)
            await asyncio.sleep(pause_s)
        try:
            outputs = classify(**{x.name: x.as_numpy() for x in payload.inputs})
        except (TypeError, ValueError) as error:
            raise InvalidInput(str(error)) from None
        answer = []
        for name, rows in outputs.items():
            datatype = "FP32" if name == "scores" else "INT64"
            output = InferOutput(name=name, shape=list(rows.shape), datatype=datatype)
            output.set_data_from_numpy(rows, binary_data=True)
            answer.append(output)
        # HTTP requires an id.
        return InferResponse(payload.id or generate_uuid(), self.name, answer)


if __name__ == "__main__":
    HTTP_PORT, GRPC_PORT = map(int, sys.argv[1:])
    ModelServer(http_port=HTTP_PORT, grpc_port=GRPC_PORT, enable_grpc=True).start(
        [Classifier("classifier")]
    )
