"""A model server of one architecture, by PyTorch: the Open Inference Protocol by HTTP.

    python -m studies.vision.server FUNCTION

It prints its port when it serves. Images come as UINT8 and are scaled on the GPU. A batch size is
captured as a CUDA graph at its first run, as serving runtimes compile a model: later runs are a
copy to the GPU, the graph, and a copy of its output back. Without a GPU it runs on the CPU.
"""

import argparse
import asyncio
import sys
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
from torchvision.models import get_model

from studies.vision.stand_ins import StandIn, stand_in
from workbench.cluster.model_server import Array, PlayedModelServer

_WARM_UP_RUNS = 3  # before a capture: libraries choose their kernels in the first runs
_WHITE = 255.0


class GraphedModel:
    """A model with a CUDA graph for each batch size; all graphs share one pool of memory.

    Args:
        architecture: architecture of the model.
    """

    def __init__(self, architecture: StandIn) -> None:
        self._on_gpu = torch.cuda.is_available()
        self._pixels = architecture.pixels
        model = get_model(architecture.architecture, **architecture.options).eval()
        if self._on_gpu:
            torch.backends.cudnn.benchmark = True
            model = model.cuda().half().to(memory_format=torch.channels_last)
            self._pool = torch.cuda.graph_pool_handle()
        self._model = model
        self._runs: dict[int, Callable[[Array], Array]] = {}

    def run(self, images: Array) -> Array:
        """Return the model's answer: classes of an image, or the class of each pixel."""
        rows = len(images)
        with torch.inference_mode():
            if not self._on_gpu:
                answer: Array = self._forward(torch.from_numpy(np.array(images)).float()).numpy()
                return answer
            if rows not in self._runs:
                self._runs[rows] = self._capture(rows)
            return self._runs[rows](images)

    def _forward(self, images: Any) -> Any:
        answer = self._model(images / _WHITE)
        if isinstance(answer, Mapping):  # of a segmentation model
            return answer["out"].argmax(1).to(torch.uint8)
        return answer.float()

    def _capture(self, rows: int) -> Callable[[Array], Array]:
        shape = (rows, 3, self._pixels, self._pixels)
        host_input = torch.empty(shape, dtype=torch.uint8, pin_memory=True)
        gpu_input = torch.zeros(shape, dtype=torch.uint8, device="cuda")

        def forward() -> Any:
            return self._forward(gpu_input.half().contiguous(memory_format=torch.channels_last))

        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            for _ in range(_WARM_UP_RUNS):
                forward()
        torch.cuda.current_stream().wait_stream(stream)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool=self._pool):
            gpu_output = forward()
        host_output = torch.empty(gpu_output.shape, dtype=gpu_output.dtype, pin_memory=True)

        def run(images: Array) -> Array:
            np.copyto(host_input.numpy(), images)
            gpu_input.copy_(host_input, non_blocking=True)
            graph.replay()
            host_output.copy_(gpu_output, non_blocking=True)
            torch.cuda.current_stream().synchronize()
            answer: Array = host_output.numpy()
            return answer

        return run


class VisionServer(PlayedModelServer):
    """Serves one architecture; a run takes what the model takes."""

    def __init__(self, architecture: StandIn) -> None:
        super().__init__()
        self._pixels = architecture.pixels
        self._batches = GraphedModel(architecture)
        self._row = self._batches.run(np.zeros((1, 3, self._pixels, self._pixels), np.uint8))[0]

    def outputs(self, inputs: Mapping[str, Array], number: int) -> dict[str, Array]:
        """Run the model."""
        del number
        self.runs.clear()
        return {"answer": self._batches.run(inputs["image"])}

    def signature(self) -> dict[str, Any]:
        """Describe the image and the answer."""
        image = {"datatype": "UINT8", "shape": [-1, 3, self._pixels, self._pixels]}
        datatype = {"float32": "FP32", "uint8": "UINT8"}[str(self._row.dtype)]
        answer = {"datatype": datatype, "shape": [-1, *self._row.shape]}
        return {"inputs": [{"name": "image", **image}], "outputs": [{"name": "answer", **answer}]}


async def _serve(function: str) -> None:
    server = VisionServer(stand_in(function))
    async with server.serving():
        print(server.port, flush=True)
        await asyncio.to_thread(sys.stdin.read)  # until its parent closes it


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("function")
    asyncio.run(_serve(parser.parse_args().function))
