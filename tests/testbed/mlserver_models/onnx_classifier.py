"""A small convolutional network for MLServer; its weights are random and always the same.

It runs in MLServer's own environment. Output ``same_number`` is input ``number``, so that a row
that went to another request is seen. ``PLAYED_RUN_MS`` is the time of a run on a whole GPU: a run
takes as much longer on a share as MPS would let it.
"""

import asyncio
import os

import numpy as np
import onnxruntime
from mlserver import MLModel
from mlserver.codecs import NumpyCodec
from mlserver.types import InferenceRequest, InferenceResponse
from onnx import ModelProto, TensorProto, helper, numpy_helper

PERCENT = float(os.environ.get("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", "100"))
RUN_S = float(os.environ.get("PLAYED_RUN_MS", "0")) / 1000 * 100 / PERCENT
CHANNELS, SIDE, MAPS, CLASSES = 3, 8, 4, 5


def network() -> ModelProto:
    random = np.random.default_rng(0)
    weights = {
        "kernels": random.normal(size=(MAPS, CHANNELS, 3, 3)),
        "weights": random.normal(size=(MAPS, CLASSES)),
    }
    nodes = [
        helper.make_node("Conv", ["image", "kernels"], ["maps"], pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["maps"], ["activations"]),
        helper.make_node("GlobalAveragePool", ["activations"], ["pooled"]),
        helper.make_node("Flatten", ["pooled"], ["features"]),
        helper.make_node("MatMul", ["features", "weights"], ["scores"]),
        helper.make_node("Identity", ["number"], ["same_number"]),
    ]
    value = helper.make_tensor_value_info
    graph = helper.make_graph(
        nodes,
        "classifier",
        [
            value("image", TensorProto.FLOAT, ["rows", CHANNELS, SIDE, SIDE]),
            value("number", TensorProto.INT64, ["rows", 1]),
        ],
        [
            value("scores", TensorProto.FLOAT, ["rows", CLASSES]),
            value("same_number", TensorProto.INT64, ["rows", 1]),
        ],
        [numpy_helper.from_array(item.astype(np.float32), name) for name, item in weights.items()],
    )
    opset = helper.make_opsetid("", 17)
    return helper.make_model(graph, opset_imports=[opset], ir_version=8)


class OnnxClassifier(MLModel):
    """A model whose request may ask for a pause: parameter ``pause_s``."""

    async def load(self) -> bool:
        self._session = onnxruntime.InferenceSession(
            network().SerializeToString(), providers=["CPUExecutionProvider"]
        )
        return True

    async def predict(self, payload: InferenceRequest) -> InferenceResponse:
        if pause_s := getattr(payload.parameters, "pause_s", 0):
            print(f"pausing for {pause_s} s", flush=True)
            await asyncio.sleep(pause_s)
        await asyncio.sleep(RUN_S)
        inputs = {tensor.name: NumpyCodec.decode_input(tensor) for tensor in payload.inputs}
        if np.less(inputs.get("number", 0), 0).any():
            raise ValueError("a number is negative")
        names = [output.name for output in self._session.get_outputs()]
        outputs = zip(names, self._session.run(names, inputs), strict=True)
        return InferenceResponse(
            model_name=self.name,
            outputs=[NumpyCodec.encode_output(name, values) for name, values in outputs],
        )
