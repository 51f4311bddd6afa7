"""Open Inference Protocol in a handler of TorchServe, for the gateway's requests over HTTP.

A model's handler derives from `OipHandler`; docs/gateway.md has an example. TorchServe hands the
body of a request to its handler as it is, so the handler reads and writes the protocol.
"""

import json
from typing import Any

import numpy as np
from ts.utils.util import PredictionException

HEADER_LENGTH = "Inference-Header-Content-Length"
DATATYPES = {
    "BOOL": "bool",
    "INT8": "int8",
    "INT16": "int16",
    "INT32": "int32",
    "INT64": "int64",
    "UINT8": "uint8",
    "UINT16": "uint16",
    "UINT32": "uint32",
    "UINT64": "uint64",
    "FP16": "float16",
    "FP32": "float32",
    "FP64": "float64",
}
NAMES = {dtype: name for name, dtype in DATATYPES.items()}


class OipHandler:
    """A handler whose request is one batch of the gateway: several rows, with ``batchSize`` 1."""

    def initialize(self, context: Any) -> None:
        """Load the model, and run a first batch: the gateway cannot warm TorchServe up."""
        raise NotImplementedError

    def run(
        self, inputs: dict[str, np.ndarray], parameters: dict[str, Any]
    ) -> dict[str, np.ndarray]:
        """Return the outputs by name, with one row for each row of the inputs.

        Raises:
            ValueError: the rows are invalid; its text is the answer, with status 400.
        """
        raise NotImplementedError

    def handle(self, data: list[dict[str, Any]], context: Any) -> list[Any]:
        """Answer one request in its own form: ``http-binary`` or ``http-json``."""
        body = data[0]["body"]
        is_json = isinstance(body, dict)
        try:
            if is_json:
                inputs = {entry["name"]: _from_json(entry) for entry in body["inputs"]}
            else:
                length = int(context.get_request_header(0, HEADER_LENGTH))
                data_bytes, body = body[length:], json.loads(body[:length])
                inputs = _from_binary(body["inputs"], data_bytes)
            outputs = self.run(inputs, body.get("parameters", {}))
        except (KeyError, TypeError, ValueError) as error:
            raise PredictionException(str(error), 400) from error
        entries = [
            {"name": name, "datatype": NAMES[rows.dtype.name], "shape": rows.shape}
            for name, rows in outputs.items()
        ]
        answer = {"model_name": context.model_name, "outputs": entries}
        if is_json:
            for entry, rows in zip(entries, outputs.values(), strict=True):
                entry["data"] = rows.ravel().tolist()
            return [answer]
        for entry, rows in zip(entries, outputs.values(), strict=True):
            entry["parameters"] = {"binary_data_size": rows.nbytes}
        header = json.dumps(answer).encode()
        context.set_response_header(0, HEADER_LENGTH, str(len(header)))
        return [b"".join([header, *(rows.tobytes() for rows in outputs.values())])]


def _from_json(entry: dict[str, Any]) -> np.ndarray:
    return np.array(entry["data"], DATATYPES[entry["datatype"]]).reshape(entry["shape"])


def _from_binary(entries: list[dict[str, Any]], data_bytes: bytearray) -> dict[str, np.ndarray]:
    """Return the inputs as views of the data: each follows the one before it."""
    inputs, begin = {}, 0
    for entry in entries:
        end = begin + entry["parameters"]["binary_data_size"]
        rows = np.frombuffer(data_bytes[begin:end], DATATYPES[entry["datatype"]])
        inputs[entry["name"]] = rows.reshape(entry["shape"])
        begin = end
    return inputs
