"""A first request of a workflow as a command line, from the metadata of its models."""

import json
import shlex
from collections.abc import Mapping
from math import prod
from pathlib import Path
from typing import Any

from scheduler.oip.datatypes import BOOL, BYTES, DATATYPES

_VALUES_MAX = 64  # on a command line; more are in a file
_ROWS = 1
_SAMPLES = {BOOL: False, BYTES: "text"}


def curl_command(url: str, metadata: Mapping[str, Any], folder: Path) -> str:
    """Return a ``curl`` that sends one row of zeros to a workflow.

    It is empty if the metadata have no inputs, or some that JSON cannot carry.

    Args:
        url: URL of the workflow, whose route ``/infer`` takes the request.
        metadata: the protocol's metadata of the workflow.
        folder: folder for the body, if it is too long for a command line.
    """
    tensors = [_example(entry) for entry in metadata["inputs"]]
    if not tensors or None in tensors:
        return ""
    body = json.dumps({"inputs": tensors})
    if sum(len(tensor["data"]) for tensor in tensors if tensor) > _VALUES_MAX:
        file = folder / f"{metadata['name']}.json"
        file.write_text(body, encoding="utf-8")
        body = f"@{file}"
    return f"curl -s {url}/infer -d {shlex.quote(body)}"


def _example(entry: Mapping[str, Any]) -> dict[str, Any] | None:
    datatype = DATATYPES.get(entry.get("datatype", ""))
    if datatype is None or not datatype.json_types:
        return None
    sizes = [int(size) for size in entry.get("shape", ())]
    if sizes[:1] in ([-1], [_ROWS]):  # otherwise they leave out the rows
        del sizes[0]
    shape = [_ROWS, *(size if size > 0 else 1 for size in sizes)]
    data = [_SAMPLES.get(datatype, 0)] * prod(shape)
    return {"name": entry["name"], "datatype": datatype.name, "shape": shape, "data": data}
