"""JSON entries and buffers of the tensors in a message to send."""

from itertools import chain
from typing import Any

from scheduler.oip.tensor import Tensor


def write_tensor(tensor: Tensor, buffers: list[memoryview], *, binary: bool) -> dict[str, Any]:
    """Return the entry of a tensor; append its binary data to ``buffers``.

    Raises:
        MessageError: JSON cannot carry the datatype or a value.
    """
    tensor = tensor.to_binary() if binary else tensor.to_json()
    name, datatype, shape, parts, parameters, _ = tensor
    entry: dict[str, Any] = {"name": name, "datatype": datatype.name, "shape": shape}
    contents = [part.content for part in parts]
    if binary:
        entry["parameters"] = {**parameters, "binary_data_size": sum(map(len, contents))}
        buffers += contents
    else:
        if parameters:
            entry["parameters"] = parameters
        entry["data"] = contents[0] if len(contents) == 1 else list(chain.from_iterable(contents))
    return entry
