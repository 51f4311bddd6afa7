"""Public architectures that take the places of the six sample functions.

They are those of torchvision, without weights: times and memory do not depend on the values. The
ESG paper (arXiv 2404.16812) names other models, so a time here is none of the paper's.
"""

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class StandIn:
    """An architecture in the place of a sample function.

    Attributes:
        function: name of the sample function.
        architecture: name of the architecture in torchvision.
        pixels: height and width of an image.
        options: arguments of the architecture's constructor.
    """

    function: str
    architecture: str
    pixels: int
    options: dict[str, Any]


_RANDOM: dict[str, Any] = {"weights": None, "weights_backbone": None}

# The heavier the function is in the samples, the heavier its architecture.
STAND_INS = (
    StandIn("classification", "resnet50", 224, {"weights": None}),
    StandIn("super-resolution", "lraspp_mobilenet_v3_large", 512, _RANDOM),
    StandIn("segmentation", "deeplabv3_mobilenet_v3_large", 512, _RANDOM),
    StandIn("deblur", "fcn_resnet50", 512, _RANDOM),
    StandIn("depth-recognition", "vit_l_16", 384, {"weights": None, "image_size": 384}),
    StandIn("background-removal", "deeplabv3_resnet101", 512, _RANDOM),
)


def stand_in(function: str) -> StandIn:
    """Return the architecture of a sample function; raises a `KeyError`."""
    return {known.function: known for known in STAND_INS}[function]
