"""A small network in PyTorch for TorchServe; its weights are random and always the same.

Output ``same_number`` is input ``number``, so that a row that went to another request is seen.
"""

import time
from typing import Any

import numpy as np
import torch
from oip_handler import OipHandler

SHAPE, MAPS, CLASSES = (3, 8, 8), 4, 5


class Classifier(OipHandler):
    """A model whose request may ask for a pause: parameter ``pause_s``."""

    def initialize(self, context: Any) -> None:
        torch.manual_seed(0)
        torch.set_num_threads(1)
        self._network = torch.nn.Sequential(
            torch.nn.Conv2d(SHAPE[0], MAPS, kernel_size=3, padding=1),
            torch.nn.ReLU(),
            torch.nn.AdaptiveAvgPool2d(1),
            torch.nn.Flatten(),
            torch.nn.Linear(MAPS, CLASSES),
        ).eval()
        self._scores(np.zeros((8, *SHAPE), np.float32))

    def run(
        self, inputs: dict[str, np.ndarray], parameters: dict[str, Any]
    ) -> dict[str, np.ndarray]:
        if pause_s := parameters.get("pause_s"):
            print(f"pausing for {pause_s} s", flush=True)
            time.sleep(pause_s)
        image, number = inputs["image"], inputs["number"]
        if image.shape[1:] != SHAPE:
            raise ValueError(f"input image has rows of shape {image.shape[1:]}, not {SHAPE}")
        if (number < 0).any():
            raise ValueError("a number is negative")
        return {"scores": self._scores(image), "same_number": number}

    @torch.no_grad()
    def _scores(self, image: np.ndarray) -> np.ndarray:
        return self._network(torch.from_numpy(image)).numpy()
